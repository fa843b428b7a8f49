// What the overlays on digits and on photos share: a row of attention over the image, and
// the choice of who asks. Python: attention_overlay.py.
import {
  board, button, choice, decimal, facts, h, legend, slider, table, toggle,
} from "./parts.js";

const words = {
  picture: (name) => `Attention over ${name}`,
  help: "Arrow keys move from patch to patch and read its weight. Enter lets that patch ask.",
  hint: "[CLS] or any patch can ask: tap one. Point at a patch to read its weight.",
  limited: (blocks) =>
    `When a patch asks, this page has the mean of the heads in blocks ${blocks.join(", ")}.`,
  cls: "[CLS]",
  clsAsks: (weight) => `[CLS] ${weight}: let it ask`,
  block: "Block",
  head: "Head",
  mean: "mean",
  rollout: "Rollout: all blocks",
  random: "Random weights",
  opacity: "Opacity",
  strength: (share) => `${Math.round(100 * share)} %`,
  scale: "Share of the row:",
  more: "more",
  fromCls: "read from [CLS]",
  fromPatches: "from the patches",
  sum: "the row's sum",
  patch: "one patch",
  strongest: (cell) => `patch ${cell}, the strongest`,
  place: (cell, row, column) => `patch ${cell}: row ${row}, column ${column}`,
  numbers: "All numbers of this row",
  table: "What is read from each patch, by its row and column",
  row: "row",
  which: ({ rollout, block, head }) => {
    if (rollout) return "Rollout";
    return `Block ${block}, ${head === "mean" ? "mean of heads" : `head ${head}`}`;
  },
  asker: (query) => (query === "cls" ? words.cls : `patch ${query}`),
  asks: (query) => `${query === "cls" ? words.cls : `Patch ${query}, framed,`} asks`,
  summary: (shown, row, cell, over) =>
    `${words.which(shown)}${shown.random ? ", random weights" : ""}: ` +
    `${words.asker(shown.query)} reads ${decimal(row[0], 3)} from ` +
    `${shown.query === "cls" ? "itself" : words.cls}, most from patch ${cell}: ` +
    `${decimal(row[1 + cell], 3)}.${over ? ` ${words.over(over)}` : ""}`,
  over: (count) =>
    `${count} ${count === 1 ? "patch is" : "patches are"} above the scale, in yellow.`,
  pointed: (cell, row, column, weight) =>
    `Patch ${cell}, row ${row}, column ${column}: ${decimal(weight, 3)} of the row.`,
};

const OVER = [255, 225, 77]; // weights above the scale: a colour that it does not have
const HOT = [217, 72, 15];
const LEGIBLE = 7; // columns; in a finer grid numbers would hide the picture

/** Unpack what Python's `pack` wrote: 8-bit codes of 255 √w, as weights w. */
export async function unpackWeights(text) {
  const packed = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const codes = new Uint8Array(await new Response(stream).arrayBuffer());
  return Float32Array.from(codes, (code) => (code / 255) ** 2);
}

/** The mean of rows of the same length. */
export function meanRow(rows) {
  return rows[0].map((_, i) => rows.reduce((sum, row) => sum + row[i], 0) / rows.length);
}

/**
 * Draw the overlay.
 *
 * @param {object} view - state, root and say, as `widget` gives them.
 * @param {object} source - whose attention it is:
 *   rows, columns: of the grid. blocks, heads: how many. top: the weight that has the full
 *   colour. note: what the numbers are. controls: elements to put in front. traits: names of
 *   further traits that change the picture. picture(): { name, pixels, smooth }.
 *   row({ block, head, query, rollout, random }): the T weights, [CLS] first. kept: null if
 *   every row can be had, otherwise { queries, blocks }: which patches can ask, and where,
 *   as the mean of the heads.
 */
export function drawOverlay({ state, root, say }, source) {
  const { rows, columns, blocks, heads, top, kept } = source;
  const place = (cell) => [Math.floor(cell / columns), cell % columns];
  let row = null;
  let strongest = 0;
  let pointed = null; // the patch under the pointer or the keyboard's cursor

  const grid = board({
    label: "",
    help: words.help,
    rows,
    columns,
    onPoint: (cell) => {
      pointed = cell;
      grid.mark("place", cell);
      showPatch();
      if (!grid.surface.matches(":focus-visible")) return; // the eye sees the number
      say(cell === null ? sentence() : words.pointed(cell, ...place(cell), row[1 + cell]));
    },
    onPick: (cell) => ask(nearest(cell)),
  });
  grid.setGrid(rows, columns);
  grid.el.classList.add("vit-plain");

  const swatch = h("span", { class: "vit-swatch", "aria-hidden": "true" });
  const clsWeight = h("span", { class: "vit-value" });
  const cls = button("", () => ask("cls"));
  cls.append(swatch, `${words.cls} `, clsWeight);

  const asker = h("span", { class: "vit-title" });
  const hint = h("p", { class: "vit-title" });

  const which = facts({
    cls: words.fromCls,
    patches: words.fromPatches,
    sum: words.sum,
    patch: words.patch,
  });
  which.el.classList.add("vit-steady");
  const scale = legend({ label: words.scale, low: "0", high: `${top}`, over: words.more });
  const list = table({
    caption: words.table,
    columns: [words.row, ...Array.from({ length: columns }, (_, column) => `${column}`)],
  });
  const summary = h("summary", {}, words.numbers);
  const numbers = h("details", { ontoggle: () => fill() }, summary, list.el);

  const count = (n) => Array.from({ length: n }, (_, i) => i);
  const byChoice = blocks <= 4;
  let block = null;
  const blockPlace = h("fieldset", { class: "vit-group" });
  let offered = "";
  function offerBlocks(values) {
    if (`${values}` === offered) return;
    offered = `${values}`;
    const onInput = (value) => state.set({ block: value });
    const value = state.get("block");
    block = byChoice
      ? choice({
          label: words.block,
          options: values.map((i) => ({ value: i, label: `${i}` })),
          value,
          onInput,
        })
      : slider({ label: words.block, values, value, onInput });
    blockPlace.replaceChildren(block.el);
  }
  const head = choice({
    label: words.head,
    options: [
      { value: "mean", label: words.mean },
      ...count(heads).map((i) => ({ value: i, label: `${i}` })),
    ],
    value: state.get("head"),
    onInput: (value) => state.set({ head: value }),
  });
  const rollout = toggle({
    label: words.rollout,
    value: state.get("rollout"),
    onInput: (value) => state.set({ rollout: value }),
  });
  const random = toggle({
    label: words.random,
    value: state.get("random_weights"),
    onInput: (value) => state.set({ random_weights: value }),
  });
  const opacity = slider({
    label: words.opacity,
    values: count(11).map((i) => i / 10),
    value: state.get("opacity"),
    format: words.strength,
    onInput: (value) => state.set({ opacity: value }),
  });

  /** The patch that can ask, nearest to a cell. */
  function nearest(cell) {
    if (!kept) return cell;
    const [y, x] = place(cell);
    const distance = (other) => Math.hypot(place(other)[0] - y, place(other)[1] - x);
    return kept.queries.reduce((best, other) => (distance(other) < distance(best) ? other : best));
  }

  function nearestBlock() {
    const now = state.get("block");
    const near = (best, other) => (Math.abs(other - now) < Math.abs(best - now) ? other : best);
    return kept.blocks.reduce(near);
  }

  function ask(query) {
    // The query last: at no moment is a row asked for that the page has not.
    if (query === "cls" || !kept) state.set({ query });
    else state.set({ block: nearestBlock(), head: "mean", query });
  }

  const shown = () => ({
    block: state.get("block"),
    head: state.get("head"),
    query: state.get("query"),
    rollout: state.get("rollout"),
    random: state.get("random_weights"),
  });

  function sentence() {
    const over = row.subarray(1).filter((weight) => weight > top).length;
    return words.summary(shown(), row, strongest, over);
  }

  function showPatch() {
    const at = pointed ?? strongest;
    const remark = pointed === null ? words.strongest(at) : words.place(at, ...place(at));
    which.set({ patch: [decimal(row[1 + at], 3), remark] });
  }

  function fill() {
    if (!numbers.open) return;
    const weights = [...row.subarray(1)].map((weight) => decimal(weight, 3));
    list.set([
      [words.cls, decimal(row[0], 3), ...count(columns - 1).map(() => "")],
      ...count(rows).map((y) => [`${y}`, ...weights.slice(y * columns, (y + 1) * columns)]),
    ]);
  }

  function update() {
    const { query } = shown();
    const limited = kept !== null && query !== "cls";
    if (limited && !kept.blocks.includes(state.get("block"))) {
      return state.set({ block: nearestBlock() }); // which updates
    }
    if (limited && state.get("head") !== "mean") return state.set({ head: "mean" });
    const { name, pixels, smooth } = source.picture();
    row = source.row(shown());
    const weights = row.subarray(1);
    strongest = weights.indexOf(Math.max(...weights));
    offerBlocks(limited ? kept.blocks : count(blocks));
    block.set(state.get("block"));
    head.set(state.get("head"));
    rollout.set(state.get("rollout"));
    random.set(state.get("random_weights"));
    opacity.set(state.get("opacity"));
    blockPlace.disabled = state.get("rollout");
    head.el.disabled = state.get("rollout") || limited;
    const colours = { max: top, opacity: state.get("opacity"), colour: HOT, over: OVER };
    grid.paint(pixels, { smooth });
    grid.heat(weights, colours);
    grid.mark("query", query === "cls" ? null : query);
    grid.surface.setAttribute("aria-label", words.picture(name));
    if (columns <= LEGIBLE) grid.write([...weights].map((weight) => decimal(weight, 2)));
    hint.textContent = limited ? words.limited(kept.blocks) : words.hint;
    asker.textContent = words.asks(query);
    cls.setAttribute("aria-pressed", query === "cls");
    cls.setAttribute("aria-label", words.clsAsks(decimal(row[0], 3)));
    clsWeight.textContent = decimal(row[0], 3);
    swatch.style.setProperty("--share", Math.min(1, row[0] / top));
    swatch.classList.toggle("vit-over", row[0] > top);
    const sum = row.reduce((all, weight) => all + weight, 0);
    which.set({
      cls: decimal(row[0], 3),
      patches: decimal(sum - row[0], 3),
      sum: decimal(sum, 2),
    });
    showPatch();
    fill();
    return say(sentence());
  }

  root.append(
    ...source.controls,
    h(
      "div",
      { class: "vit-columns" },
      h(
        "div",
        { class: "vit-stack" },
        h("div", { class: "vit-row" }, cls, asker),
        grid.el,
        scale.el,
        hint,
      ),
      h(
        "div",
        { class: "vit-stack" },
        blockPlace,
        head.el,
        h("div", { class: "vit-row" }, rollout.el, random.el),
        opacity.el,
        which.el,
      ),
    ),
    numbers,
    h("p", { class: "vit-remark" }, source.note),
  );
  const own = ["block", "head", "query", "rollout", "random_weights", "opacity"];
  state.on([...own, ...source.traits], update);
  update();
}
