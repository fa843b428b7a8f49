// Chapter 1: what a larger or a smaller patch costs. Python: patch_size.py.
import {
  board, choice, facts, h, paint, readPicture, slider, times, whole, widget,
} from "./parts.js";

const words = {
  title: "Patch size",
  image: "Image",
  size: "Patch size P",
  pixels: (P) => `${P} × ${P} pixels`,
  picture: (name) => `The ${name} under its grid`,
  help: "Arrow keys move from patch to patch.",
  strip: (shown, all) =>
    shown < all
      ? `The sequence, in reading order: the first ${whole(shown)} of ${whole(all)} patches`
      : `The sequence, in reading order: ${whole(all)} ${all === 1 ? "patch" : "patches"}`,
  tokens: "patches (tokens)",
  values: "numbers in each",
  sequence: "sequence with [CLS]",
  pairs: "pairs of patches",
  grid: (rows, columns) => `${whole(rows)} × ${whole(columns)}`,
  shape: (P, channels) => `${P} × ${P} × ${channels}`,
  against: (ratio, P) => `${ratio} of P = ${P}`,
  same: (P) => `P = ${P} is the course's choice`,
  place: (cell, row, column) => `Patch ${whole(cell)}: row ${row}, column ${column}`,
  numbers: (shown, all) =>
    shown < all ? `Its first ${shown} of ${whole(all)} numbers` : `All its ${whole(all)} numbers`,
  pixel: "One pixel a token: each holds no more than its colour.",
  summary: (name, P, tokens, values, pairs) =>
    `${name}, P = ${P}: ${whole(tokens)} ${tokens === 1 ? "patch" : "patches"} ` +
    `of ${whole(values)} numbers, ${whole(pairs)} pairs.`,
};

const STRIP = 400; // so many tiles at most: more would be dust
const LISTED = 12; // so many of a patch's numbers are written out
const FINEST = 3; // CSS pixels; a finer grid would hide the picture

/** All P that divide both sides, small to large. */
function divisors(height, width) {
  const all = [];
  for (let P = 1; P <= Math.min(height, width); P += 1) {
    if (height % P === 0 && width % P === 0) all.push(P);
  }
  return all;
}

async function draw({ state, root, say }) {
  const pictures = {};
  for (const [name, picture] of Object.entries(state.get("pictures"))) {
    pictures[name] = { ...picture, image: await readPicture(picture) };
  }
  const names = Object.keys(pictures);

  const grid = board({
    label: words.title,
    help: words.help,
    rows: 1,
    columns: 1,
    onPoint: (cell) => look(cell ?? picked),
    onPick: (cell) => {
      picked = cell;
      look(cell);
    },
  });
  const tile = h("canvas", { class: "vit-tile", "aria-hidden": "true" });
  const place = h("p", { class: "vit-title" });
  const numbersTitle = h("p", { class: "vit-title" });
  const numbers = h("p", { class: "vit-numbers" });
  const strip = h("canvas", { class: "vit-strip", "aria-hidden": "true" });
  const stripTitle = h("p", { class: "vit-title" });
  const costs = facts({
    tokens: words.tokens,
    values: words.values,
    sequence: words.sequence,
    pairs: words.pairs,
  });
  const which = choice({
    label: words.image,
    options: names.map((name) => ({ value: name, label: name })),
    value: state.get("shown"),
    onInput: (name) => {
      const { height, width } = pictures[name];
      const P = state.get("patch_size");
      const fits = height % P === 0 && width % P === 0;
      state.set({ shown: name, patch_size: fits ? P : state.get("reference")[name] });
    },
  });
  const sliderPlace = h("div");
  let size = null;
  let sized = null; // whose divisors the slider offers
  let picked = 0;

  function look(cell) {
    const { image, channels } = pictures[state.get("shown")];
    const P = state.get("patch_size");
    const columns = image.width / P;
    const [row, column] = [Math.floor(cell / columns), cell % columns];
    const cut = new ImageData(P, P);
    const values = [];
    for (let y = 0; y < P; y += 1) {
      const start = 4 * ((row * P + y) * image.width + column * P);
      cut.data.set(image.data.subarray(start, start + 4 * P), 4 * P * y);
    }
    for (let i = 0; values.length < LISTED && i < P * P; i += 1) {
      for (let c = 0; c < channels; c += 1) values.push(cut.data[4 * i + c] / 255);
    }
    paint(tile, cut);
    grid.mark("patch", cell);
    place.textContent = words.place(cell, row, column);
    numbersTitle.textContent = words.numbers(values.length, P * P * channels);
    numbers.textContent = values.map((value) => value.toFixed(2)).join("  ");
    say(`${summary()} ${words.place(cell, row, column)}. ${P === 1 ? words.pixel : ""}`);
  }

  function summary() {
    const name = state.get("shown");
    const { height, width, channels } = pictures[name];
    const P = state.get("patch_size");
    const tokens = (height / P) * (width / P);
    return words.summary(name, P, tokens, P * P * channels, tokens ** 2);
  }

  function drawStrip(image, P, tokens) {
    const shown = Math.min(tokens, STRIP);
    const columns = image.width / P;
    const across = Math.min(shown, Math.max(8, Math.ceil(Math.sqrt(shown * 6))));
    const gap = Math.max(1, Math.round(P / 6));
    const step = P + gap;
    const picture = new ImageData(across * step - gap, Math.ceil(shown / across) * step - gap);
    for (let k = 0; k < shown; k += 1) {
      const from = { x: (k % columns) * P, y: Math.floor(k / columns) * P };
      const to = { x: (k % across) * step, y: Math.floor(k / across) * step };
      for (let y = 0; y < P; y += 1) {
        const start = 4 * ((from.y + y) * image.width + from.x);
        const row = image.data.subarray(start, start + 4 * P);
        picture.data.set(row, 4 * ((to.y + y) * picture.width + to.x));
      }
    }
    paint(strip, picture);
    strip.style.aspectRatio = `${picture.width} / ${picture.height}`;
    stripTitle.textContent = words.strip(shown, tokens);
  }

  function update() {
    const name = state.get("shown");
    const { image, height, width, channels } = pictures[name];
    const P = state.get("patch_size");
    if (height % P || width % P) return; // Python set one trait, the other follows
    const reference = state.get("reference")[name];
    const [rows, columns] = [height / P, width / P];
    const tokens = rows * columns;
    which.set(name);
    if (sized !== name) {
      sized = name;
      size = slider({
        label: words.size,
        values: divisors(height, width),
        value: P,
        format: words.pixels,
        onInput: (value) => state.set({ patch_size: value }),
      });
      sliderPlace.replaceChildren(size.el);
    }
    size.set(P);
    grid.setGrid(rows, columns);
    grid.paint(image, { smooth: channels === 3 });
    grid.surface.setAttribute("aria-label", words.picture(name));
    grid.el.classList.toggle("vit-dust", P * (grid.el.clientWidth / width) < FINEST);
    const compare = (value, other) =>
      P === reference ? words.same(P) : words.against(times(value / other), reference);
    const before = (height / reference) * (width / reference);
    costs.set({
      tokens: [whole(tokens), words.grid(rows, columns)],
      values: [whole(P * P * channels), words.shape(P, channels)],
      sequence: [whole(tokens + 1), compare(tokens + 1, before + 1)],
      pairs: [whole(tokens ** 2), compare(tokens ** 2, before ** 2)],
    });
    drawStrip(image, P, tokens);
    picked = Math.floor(rows / 2) * columns + Math.floor(columns / 2);
    look(picked);
  }

  root.append(
    h("div", { class: "vit-columns" }, names.length > 1 ? which.el : "", sliderPlace),
    h(
      "div",
      { class: "vit-columns" },
      grid.el,
      h("div", { class: "vit-stack" }, place, tile, numbersTitle, numbers),
    ),
    costs.el,
    h("div", { class: "vit-stack vit-close" }, stripTitle, strip),
  );
  state.on(["shown", "patch_size"], update);
  update();
}

export default widget(words.title, draw);
