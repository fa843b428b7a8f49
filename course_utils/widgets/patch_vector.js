// Chapter 2: how a patch becomes a vector. Python: patch_vector.py.
//
// Two ways lead to the same number: the flattened patch times a column of E, and a
// convolution whose stride equals its kernel. Both are computed here, each in its own way.
import {
  board,
  decimal,
  digitChoice,
  diverging,
  facts,
  greyPicture,
  h,
  inkOn,
  legend,
  numberPicture,
  paint,
  table,
  widget,
} from "./parts.js";
import { loadViT, patchify } from "./vit.js";
import weights from "./digits-positions.safetensors";

const words = {
  title: "From patch to vector",
  patches: "1 · Choose a patch",
  patchesLabel: "Patches of the digit",
  filters: "2 · Choose one of 64 learned filters",
  filtersLabel: "Filters",
  help: "Arrow keys look, Enter chooses.",
  product: "3 · Multiply pixel by pixel, and add up",
  patch: (patch) => `patch ${patch}`,
  filter: (filter) => `filter ${filter}`,
  products: "products",
  pixelsLabel: "The 49 products",
  flat: "The same, flattened row by row: 49 pixels, 49 weights, 49 products",
  flatLabel: "Pixels, weights and products, flattened",
  pixelsHelp: "Arrow keys go from pixel to pixel.",
  sum: "sum of the 49 products",
  bias: "+ bias of the filter",
  number: "= its number in the vector",
  vector: (patch) => `4 · All 64 filters make the vector of patch ${patch}`,
  vectorLabel: "The 64 numbers of the vector",
  convolution: "The same as a convolution",
  convolutionText: (filter, patch, value) =>
    `Slide filter ${filter} over the digit in steps of 7 pixels, a kernel as wide as its ` +
    `stride. It stops 16 times, once on each patch, and gives 16 numbers. For patch ` +
    `${patch} that is ${value}: the same number.`,
  map: (filter) => `What filter ${filter} gives on each patch`,
  low: (max) => `−${max} and less`,
  high: (max) => `${max} and more`,
  weightScale: "filters, products",
  vectorScale: "vector",
  allNumbers: "All 49 pixels, weights and products",
  columns: ["pixel", "row", "column", "value", "weight", "product"],
  pixel: (row, column, pixel, weight, product) =>
    `Pixel in row ${row}, column ${column}: ${pixel} × ${weight} = ${product}.`,
  summary: (patch, filter, sum, bias, value) =>
    `Patch ${patch} times filter ${filter}: the products sum to ${sum}; with the bias ` +
    `${bias} that is ${value}, number ${filter} of the vector.`,
};

// The magnitudes of the full colours. Few weights and few numbers lie beyond.
const WEIGHTS = 0.4;
const VECTOR = 2;
const ACROSS = 8; // filters in a row of the board
const TILE = 9; // pixels of its cells: a filter of 7 × 7 and room round it

const round = (value) => decimal(value, 3);

/** Place pictures of 7 × 7 pixels on one sheet, a cell each. */
function sheet(pictures, dark) {
  const picture = new ImageData(ACROSS * TILE, (pictures.length / ACROSS) * TILE);
  const ground = [...diverging(0, dark), 255];
  for (let i = 0; i < picture.data.length; i += 4) picture.data.set(ground, i);
  pictures.forEach(({ width, height, data }, k) => {
    const left = (k % ACROSS) * TILE + (TILE - width) / 2;
    const top = Math.floor(k / ACROSS) * TILE + (TILE - height) / 2;
    for (let y = 0; y < height; y += 1) {
      const row = data.subarray(4 * y * width, 4 * (y + 1) * width);
      picture.data.set(row, 4 * ((top + y) * picture.width + left));
    }
  });
  return picture;
}

/** Lay the pixels of each picture in one row, picture under picture. */
function flattened(pictures) {
  const { width, height } = pictures[0];
  const picture = new ImageData(width * height, pictures.length);
  pictures.forEach(({ data }, row) => picture.data.set(data, 4 * row * width * height));
  return picture;
}

/** One filter slid over an image in steps of its own size: a number for each stop. */
function convolve(pixels, width, kernel, P, bias) {
  const numbers = [];
  for (let top = 0; top + P <= pixels.length / width; top += P) {
    for (let left = 0; left + P <= width; left += P) {
      let sum = bias;
      for (let y = 0; y < P; y += 1) {
        for (let x = 0; x < P; x += 1) {
          sum += kernel[y * P + x] * pixels[(top + y) * width + left + x];
        }
      }
      numbers.push(sum);
    }
  }
  return numbers;
}

async function draw({ state, root, say, theme }) {
  const model = await loadViT(weights);
  const { img_size: [, width], patch_size: [P], embed_dim: D } = model.config;
  const { rows, columns } = model.grid;
  const size = P * P;
  const E = model.tensor("patch_embed.proj.weight").data; // (D, 1, P, P)
  const biases = model.tensor("patch_embed.proj.bias").data;
  const filters = Array.from({ length: D }, (_, d) => E.subarray(d * size, (d + 1) * size));

  // What the pointer or the keyboard looks at, before it is chosen.
  const looked = { patch: null, filter: null, pixel: null };
  const shown = (name) => looked[name] ?? state.get(name);
  const look = (name) => (cell) => {
    looked[name] = cell;
    update();
  };
  const choose = (name) => (cell) => {
    looked[name] = null;
    state.set({ [name]: cell });
  };
  const choosing = (name, label, rows, columns) => {
    const made = board({
      label,
      help: words.help,
      rows,
      columns,
      onPoint: look(name),
      onPick: choose(name),
    });
    made.setGrid(rows, columns);
    return made;
  };
  const patchBoard = choosing("patch", words.patchesLabel, rows, columns);
  const filterBoard = choosing("filter", words.filtersLabel, D / ACROSS, ACROSS);
  const vectorBoard = choosing("filter", words.vectorLabel, 1, D);
  const pointing = (label, rows, columns) => {
    const made = board({
      label,
      help: words.pixelsHelp,
      rows,
      columns,
      onPoint: look("pixel"),
    });
    made.setGrid(rows, columns);
    return made;
  };
  const productBoard = pointing(words.pixelsLabel, P, P);
  const flatBoard = pointing(words.flatLabel, 1, size);
  const numberBoards = [filterBoard, vectorBoard, productBoard, flatBoard];
  for (const { el } of numberBoards) el.classList.add("vit-plain");
  for (const { el } of [vectorBoard, flatBoard]) el.classList.add("vit-band");
  flatBoard.el.style.blockSize = "3.75rem"; // three rows
  const tile = () => h("canvas", { class: "vit-tile", "aria-hidden": "true" });

  const digits = await digitChoice({
    digits: state.get("digits"),
    value: state.get("digit"),
    onInput: (digit) => state.set({ digit }),
  });
  const [patchTile, filterTile] = [tile(), tile()];
  const [patchName, filterName, vectorTitle] = [h("span"), h("span"), title("")];
  const arithmetic = facts({ sum: words.sum, bias: words.bias, number: words.number });
  const convolution = h("p");
  const cells = Array.from({ length: rows * columns }, () => h("td"));
  const mapCaption = h("caption");
  const map = h(
    "table",
    { class: "vit-map" },
    mapCaption,
    h(
      "tbody",
      {},
      ...Array.from({ length: rows }, (_, row) =>
        h("tr", {}, ...cells.slice(row * columns, (row + 1) * columns)),
      ),
    ),
  );
  const numbers = table({ caption: words.allNumbers, columns: words.columns });
  const asText = h(
    "details",
    { ontoggle: () => update() },
    h("summary", {}, words.allNumbers),
    numbers.el,
  );
  const scale = (name, max) =>
    legend({ label: name, low: words.low(max), high: words.high(max), scale: "diverging" }).el;

  function paintFilters() {
    const pictures = filters.map((values) => numberPicture(values, P, WEIGHTS, theme.dark));
    filterBoard.paint(sheet(pictures, theme.dark));
  }

  function update() {
    const digit = state.get("digit");
    const [patch, filter] = [shown("patch"), shown("filter")];
    const patches = patchify(digits.pixels[digit], model.config);
    const pixels = patches.subarray(patch * size, (patch + 1) * size);
    const products = pixels.map((value, i) => value * filters[filter][i]);
    const sum = products.reduce((total, value) => total + value, 0);
    const bias = biases[filter];
    const vector = filters.map((values, d) =>
      pixels.reduce((total, value, i) => total + value * values[i], biases[d]),
    );
    const slid = convolve(digits.pixels[digit], width, filters[filter], P, bias);

    digits.set(digit);
    patchBoard.paint(digits.pictures[digit]);
    patchBoard.mark("chosen", patch);
    filterBoard.mark("chosen", filter);
    vectorBoard.mark("chosen", filter);
    const coloured = [filters[filter], products].map((values) =>
      numberPicture(values, P, WEIGHTS, theme.dark),
    );
    const pictures = [greyPicture(pixels, P, P), ...coloured];
    paint(patchTile, pictures[0]);
    paint(filterTile, pictures[1]);
    productBoard.paint(pictures[2]);
    flatBoard.paint(flattened(pictures));
    for (const each of [productBoard, flatBoard]) each.mark("pixel", looked.pixel);
    vectorBoard.paint(numberPicture(vector, D, VECTOR, theme.dark));
    patchName.textContent = words.patch(patch);
    filterName.textContent = words.filter(filter);
    vectorTitle.textContent = words.vector(patch);
    arithmetic.set({ sum: round(sum), bias: round(bias), number: round(vector[filter]) });
    mapCaption.textContent = words.map(filter);
    cells.forEach((cell, k) => {
      const colour = diverging(slid[k] / VECTOR, theme.dark);
      cell.textContent = round(slid[k]);
      cell.style.background = `rgb(${colour})`;
      cell.style.color = inkOn(colour);
      cell.classList.toggle("vit-chosen", k === patch);
    });
    convolution.textContent = words.convolutionText(filter, patch, round(slid[patch]));
    if (asText.open) {
      numbers.set(
        Array.from(pixels, (value, i) => [
          `${i}`,
          `${Math.floor(i / P)}`,
          `${i % P}`,
          ...[value, filters[filter][i], products[i]].map(round),
        ]),
      );
    }
    const i = looked.pixel;
    if (i === null) {
      say(words.summary(patch, filter, round(sum), round(bias), round(vector[filter])));
    } else {
      const factors = [pixels[i], filters[filter][i], products[i]].map(round);
      say(words.pixel(Math.floor(i / P), i % P, ...factors));
    }
  }

  /** Show what is chosen now, also where the keyboard goes on from. */
  function start() {
    patchBoard.cursor = state.get("patch");
    filterBoard.cursor = state.get("filter");
    vectorBoard.cursor = state.get("filter");
    update();
  }

  root.append(
    digits.el,
    h(
      "div",
      { class: "vit-columns" },
      h("div", { class: "vit-stack" }, title(words.patches), patchBoard.el),
      h("div", { class: "vit-stack" }, title(words.filters), filterBoard.el),
    ),
    h(
      "div",
      { class: "vit-stack" },
      title(words.product),
      h(
        "div",
        { class: "vit-equation" },
        h("div", {}, patchTile, patchName),
        h("span", {}, "×"),
        h("div", {}, filterTile, filterName),
        h("span", {}, "="),
        h("div", {}, productBoard.el, h("span", {}, words.products)),
      ),
      h("div", { class: "vit-stack vit-close" }, title(words.flat), flatBoard.el),
      scale(words.weightScale, WEIGHTS),
      arithmetic.el,
    ),
    h(
      "div",
      { class: "vit-stack" },
      vectorTitle,
      vectorBoard.el,
      scale(words.vectorScale, VECTOR),
    ),
    h(
      "div",
      { class: "vit-columns" },
      map,
      h("div", { class: "vit-stack" }, title(words.convolution), convolution),
    ),
    asText,
  );
  state.on(["digit", "patch", "filter"], start);
  theme.on(() => {
    paintFilters();
    update();
  });
  paintFilters();
  start();
}

const title = (text) => h("p", { class: "vit-title" }, text);

export default widget(words.title, draw);
