// Chapter 4: which places a position table holds to be alike.
// Python: position_similarity.py.
import { board, choice, decimal, diverging, facts, h, inkOn, legend } from "./parts.js";
import { numberPicture, table, whole, widget } from "./parts.js";

const words = {
  title: "How alike positions are",
  table: "Position table",
  option: (name, rows, columns) => `${name} ${rows} × ${columns}`,
  board: (name) => `Similarity to the picked patch, table “${name}”`,
  help: "Arrow keys move from patch to patch, Enter picks one to compare with.",
  hint: "Tap or click a patch to compare all others with it; point at one for its number.",
  scale: "cosine similarity",
  pointed: "the patch you point at",
  averages: "Similarity to the picked patch, on average",
  columns: ["of", "patches", "average"],
  neighbours: "its neighbours",
  row: "the rest of its row",
  column: "the rest of its column",
  elsewhere: "all others",
  none: "–",
  place: (row, column) => `row ${row}, column ${column}`,
  pair: (place, picked, value) =>
    `The patch in ${place} and the picked one in ${picked}: ${value}.`,
  itself: (place) => `The patch in ${place} is the picked one; with itself it is 1.00.`,
  summary: (picked, best, value, groups) =>
    `Picked: ${picked}. Most like it: ${best} (${value}). On average: ${groups}.`,
  average: (name, value) => `${name} ${value}`,
  numbers: "All numbers as a table",
  caption: (picked) => `Cosine similarity to the patch in ${picked}`,
  rows: "row",
  unknown: (name) => `There is no table “${name}”.`,
  outside: (cell) => `The table has no patch ${cell}.`,
};

const WRITTEN = 64; // in a grid of so many patches at most, each number is written
const GROUPS = ["neighbours", "row", "column", "elsewhere"];

/** Read the rows of a position table: `vectors` holds them as columns, (D, N). */
async function readTable({ rows, columns, steps, values }) {
  const packed = Uint8Array.from(atob(values), (character) => character.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const vectors = new Int16Array(await new Response(stream).arrayBuffer());
  return { rows, columns, steps, vectors };
}

/** The cosine similarity of one cell's row to every row; rows have the length 1. */
function similarities({ rows, columns, steps, vectors }, cell) {
  const N = rows * columns;
  const cosines = new Float64Array(N);
  for (let start = 0; start < vectors.length; start += N) {
    const picked = vectors[start + cell];
    for (let other = 0; other < N; other += 1) cosines[other] += picked * vectors[start + other];
  }
  for (let other = 0; other < N; other += 1) {
    cosines[other] = Math.max(-1, Math.min(1, cosines[other] / steps ** 2));
  }
  cosines[cell] = 1; // rounding aside
  return cosines;
}

/** Sort all other cells by where they lie, as seen from one. */
function around(cell, rows, columns) {
  const groups = Object.fromEntries(GROUPS.map((name) => [name, []]));
  for (let other = 0; other < rows * columns; other += 1) {
    const down = Math.abs(Math.floor(other / columns) - Math.floor(cell / columns));
    const across = Math.abs((other % columns) - (cell % columns));
    if (down + across === 1) groups.neighbours.push(other);
    else if (down === 0 && across > 0) groups.row.push(other);
    else if (across === 0 && down > 0) groups.column.push(other);
    else if (other !== cell) groups.elsewhere.push(other);
  }
  return groups;
}

/** The cell of another grid that holds the middle of this one: the same place. */
function samePlace(cell, from, to) {
  const row = Math.floor(((2 * Math.floor(cell / from.columns) + 1) * to.rows) / (2 * from.rows));
  const column = Math.floor(((2 * (cell % from.columns) + 1) * to.columns) / (2 * from.columns));
  return row * to.columns + column;
}

async function draw({ state, root, say, theme }) {
  const tables = {};
  for (const [name, packed] of Object.entries(state.get("tables"))) {
    tables[name] = await readTable(packed);
  }
  let cosines = [];
  let pointed = null;

  const which = choice({
    label: words.table,
    options: Object.entries(tables).map(([name, { rows, columns }]) => ({
      value: name,
      label: words.option(name, rows, columns),
    })),
    value: state.get("table"),
    onInput: (name) => {
      const cell = samePlace(state.get("cell"), tables[state.get("table")], tables[name]);
      state.set({ table: name, cell });
    },
  });
  const grid = board({
    label: words.title,
    help: words.help,
    rows: 1,
    columns: 1,
    onPoint: point,
    onPick: (cell) => {
      pointed = cell;
      if (cell === state.get("cell")) point(cell);
      else state.set({ cell });
    },
  });
  grid.el.classList.add("vit-plain", "vit-values");
  const read = facts({ pointed: words.pointed });
  const groups = table({ caption: words.averages, columns: words.columns });
  const numbersPlace = h("div");
  const numbers = h(
    "details",
    { ontoggle: listNumbers },
    h("summary", {}, words.numbers),
    numbersPlace,
  );

  const shown = () => tables[state.get("table")];
  const place = (cell) =>
    words.place(Math.floor(cell / shown().columns), cell % shown().columns);

  function point(cell) {
    pointed = cell;
    grid.mark("pointed", cell);
    const picked = state.get("cell");
    read.set({
      pointed: cell === null ? [words.none, "\u00a0"] : [decimal(cosines[cell]), place(cell)],
    });
    if (cell === null) say(summary());
    else if (cell === picked) say(words.itself(place(cell)));
    else say(words.pair(place(cell), place(picked), decimal(cosines[cell])));
  }

  function averages() {
    const { rows, columns } = shown();
    const places = around(state.get("cell"), rows, columns);
    return Object.entries(places).map(([name, cells]) => {
      const sum = cells.reduce((total, cell) => total + cosines[cell], 0);
      const text = cells.length ? decimal(sum / cells.length) : words.none;
      return { name: words[name], count: cells.length, text };
    });
  }

  function summary() {
    const picked = state.get("cell");
    let best = picked === 0 ? 1 : 0;
    cosines.forEach((value, cell) => {
      if (cell !== picked && value > cosines[best]) best = cell;
    });
    const filled = averages().filter(({ count }) => count);
    const texts = filled.map(({ name, text }) => words.average(name, text));
    if (cosines.length === 1) return words.itself(place(picked));
    return words.summary(place(picked), place(best), decimal(cosines[best]), texts.join(", "));
  }

  function paintMap() {
    const { columns } = shown();
    grid.paint(numberPicture([...cosines], columns, 1, theme.dark));
    const few = cosines.length <= WRITTEN;
    grid.write(
      few
        ? [...cosines].map((value) =>
            h("b", { style: `color: ${inkOn(diverging(value, theme.dark))}` }, decimal(value)),
          )
        : [],
    );
  }

  function listNumbers() {
    if (!numbers.open) return;
    const { rows, columns } = shown();
    const list = table({
      caption: words.caption(place(state.get("cell"))),
      columns: [words.rows, ...Array(columns).keys()].map(String),
    });
    list.set(
      Array.from({ length: rows }, (_, row) => [
        String(row),
        ...[...cosines].slice(row * columns, (row + 1) * columns).map((value) => decimal(value)),
      ]),
    );
    numbersPlace.replaceChildren(list.el);
  }

  function update() {
    const { rows, columns } = shown();
    const picked = state.get("cell");
    if (picked >= rows * columns) return; // the cell that goes with this table follows
    cosines = similarities(shown(), picked);
    which.set(state.get("table"));
    grid.setGrid(rows, columns);
    grid.surface.setAttribute("aria-label", words.board(state.get("table")));
    grid.cursor = pointed ?? picked;
    grid.mark("compared", picked);
    paintMap();
    groups.set(averages().map(({ name, count, text }) => [name, whole(count), text]));
    listNumbers();
    point(pointed !== null && pointed < rows * columns ? pointed : null);
  }

  root.append(
    which.el,
    h(
      "div",
      { class: "vit-columns" },
      h(
        "div",
        { class: "vit-stack" },
        grid.el,
        legend({ label: words.scale, low: "−1", high: "1", scale: "diverging" }).el,
      ),
      h(
        "div",
        { class: "vit-stack" },
        h("p", { class: "vit-title" }, words.hint),
        groups.el,
        read.el,
      ),
    ),
    numbers,
  );
  state.on(["table", "cell"], update);
  theme.on(paintMap);
  const [name, cell] = [state.get("table"), state.get("cell")];
  if (!(name in tables)) throw new Error(words.unknown(name));
  if (!(cell < shown().rows * shown().columns)) throw new Error(words.outside(cell));
  update();
}

export default widget(words.title, draw);
