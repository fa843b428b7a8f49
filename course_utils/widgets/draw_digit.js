// Chapter 6: draw a digit, and see what a trained ViT makes of it. Python: draw_digit.py.
import withPositions from "./digits-positions.safetensors";
import withoutPositions from "./digits-no-positions.safetensors";
import { asMnist } from "./mnist.js";
import { loadViT } from "./vit.js";
import {
  aDigit, bars, board, button, choice, decimal, digitChoice, freshId, greyPicture, h, legend,
  paint, percent, table, toggle, widget,
} from "./parts.js";

const words = {
  title: "Draw a digit",
  surface: "Drawing surface, 28 × 28 pixels",
  draw: "Draw here, over the digit or after Clear",
  help: "Arrow keys move the pen, Space puts it down and lifts it, Control and Z undo.",
  undo: "Undo",
  clear: "Clear",
  model: "Model trained",
  withPositions: "with positions",
  withoutPositions: "without",
  attention: "Show where [CLS] looks",
  gets: "What the model gets",
  getsHelp: "Arrow keys move from patch to patch.",
  answer: "Its answer",
  scale: "Attention of [CLS], last block, mean over heads",
  least: "0",
  most: (full) => `${full} or more`,
  table: "The attention of [CLS] as numbers",
  corner: "row",
  column: (column) => `column ${column + 1}`,
  remark:
    "The model learned from 6,000 digits in other people's hands. Yours may fool it, and it " +
    "may be sure of itself all the same.",
  empty: "Nothing is drawn, so there is no answer. Draw a digit, or take one from above.",
  none: "–",
  penAt: (y, x, down) => `Pen ${down ? "down" : "up"} at row ${y + 1}, column ${x + 1}.`,
  patch: (cell, row, column, weight) =>
    `Patch ${cell} (row ${row + 1}, column ${column + 1}) gets ${decimal(weight)} ` +
    "of the attention of [CLS].",
  summary: (positions, [first, second], most, own) =>
    `${positions ? "With" : "Without"} positions the model reads ${aDigit(first.label)} ` +
    `(${percent(first.share)}), or else ${aDigit(second.label)} (${percent(second.share)}). ` +
    `[CLS] attends most to patch ${most.cell} (${decimal(most.weight)}) ` +
    `and keeps ${decimal(own)} for itself.`,
};

const SIDE = 28; // pixels
const PEN = 1.2; // pixels, the radius of the pen
const FULL = 0.5; // the attention that gets the full colour
const KEPT = 100; // drawings that Undo can bring back

const encode = (ink) => btoa(String.fromCharCode(...ink));
const decode = (text) => Uint8Array.from(atob(text), (character) => character.charCodeAt(0));

/** Grey values 0..255 as the model reads them, 0..1. */
const shares = (ink) => Float32Array.from(ink, (grey) => grey / 255);

/** Draw a line with a round pen; its rim covers pixels in part. Places in pixels. */
function stroke(ink, from, to) {
  const [dx, dy] = [to.x - from.x, to.y - from.y];
  const length2 = dx * dx + dy * dy;
  for (let i = 0; i < ink.length; i += 1) {
    const [x, y] = [(i % SIDE) + 0.5, Math.floor(i / SIDE) + 0.5];
    const along = length2 ? ((x - from.x) * dx + (y - from.y) * dy) / length2 : 0;
    const t = Math.max(0, Math.min(1, along));
    const distance = Math.hypot(from.x + t * dx - x, from.y + t * dy - y);
    const cover = Math.max(0, Math.min(1, PEN + 0.5 - distance));
    ink[i] = Math.max(ink[i], Math.round(255 * cover));
  }
}

/**
 * A surface to draw on by mouse, finger or keyboard.
 *
 * @param {{life: AbortSignal, onInk: function, onEnd: function, onMove: function,
 *   onRest: function, onUndo: function}} options - onInk is called as ink is added, onEnd
 *   when a stroke has ended, onMove(y, x, down) as the keyboard's pen moves, onRest when
 *   that pen is left for another or for good.
 * @returns {{el: Element, set: function, ink: Uint8Array}} set shows a drawing.
 */
function paper({ life, onInk, onEnd, onMove, onRest, onUndo }) {
  const canvas = h("canvas", { "aria-hidden": "true" });
  const pen = h("div", { class: "vit-pen" });
  const describedBy = freshId();
  const surface = h(
    "div",
    {
      class: "vit-surface vit-paper",
      role: "application",
      tabindex: 0,
      "aria-label": words.surface,
      "aria-describedby": describedBy,
    },
    pen,
  );
  const help = h("p", { id: describedBy, class: "vit-unseen" }, words.help);
  const el = h("div", { class: "vit-board vit-square" }, canvas, surface, help);
  let ink = new Uint8Array(SIDE * SIDE);
  let pointer = null; // the finger or button that draws
  let last = null; // where it was
  const key = { x: SIDE / 2 - 0.5, y: 6.5, down: false };

  const show = () => paint(canvas, greyPicture(shares(ink), SIDE, SIDE));
  const line = (from, to) => {
    stroke(ink, from, to);
    show();
    onInk();
  };
  const showPen = () => {
    pen.style.setProperty("--x", key.x / SIDE);
    pen.style.setProperty("--y", key.y / SIDE);
    pen.classList.toggle("vit-pen-down", key.down);
  };
  const lift = () => {
    if (!key.down) return;
    key.down = false;
    showPen();
    onEnd();
  };
  const rest = () => {
    lift();
    onRest();
  };
  const placeOf = ({ clientX, clientY }) => {
    const box = surface.getBoundingClientRect();
    const x = ((clientX - box.left) / box.width) * SIDE;
    const y = ((clientY - box.top) / box.height) * SIDE;
    return { x, y };
  };
  const end = (event) => {
    if (event.pointerId !== pointer) return;
    pointer = null;
    onEnd();
  };
  const listen = (name, listener) => surface.addEventListener(name, listener, { signal: life });
  listen("pointerdown", (event) => {
    if (pointer !== null || event.button > 0) return;
    rest();
    pointer = event.pointerId;
    surface.setPointerCapture(pointer);
    last = placeOf(event);
    line(last, last);
  });
  listen("pointermove", (event) => {
    if (event.pointerId !== pointer) return;
    for (const one of event.getCoalescedEvents?.() ?? []) {
      const next = placeOf(one);
      stroke(ink, last, next);
      last = next;
    }
    const next = placeOf(event);
    line(last, next);
    last = next;
  });
  listen("pointerup", end);
  listen("pointercancel", end);
  listen("blur", rest);
  listen("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "z") {
      event.preventDefault();
      lift();
      onUndo();
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const before = { x: key.x, y: key.y };
    if (event.key in step) {
      const inside = (place) => Math.max(0.5, Math.min(SIDE - 0.5, place));
      key.x = inside(key.x + step[event.key][0]);
      key.y = inside(key.y + step[event.key][1]);
      if (key.down) line(before, key);
    } else if (event.key === " " || event.key === "Enter") {
      if (key.down) lift();
      else {
        key.down = true;
        line(key, key);
      }
    } else if (event.key === "Escape") lift();
    else return;
    event.preventDefault();
    showPen();
    onMove(key.y - 0.5, key.x - 0.5, key.down);
  });
  showPen();

  const set = (drawing) => {
    ink = Uint8Array.from(drawing);
    show();
  };
  return { el, set, get ink() { return ink; } };
}

async function draw({ state, root, say, life }) {
  const models = await Promise.all([loadViT(withPositions), loadViT(withoutPositions)]);
  const { rows, columns, tokens } = models[0].grid;
  const past = []; // what Undo brings back
  let sentence = ""; // about the answer
  let lead = ""; // about the keyboard's pen, while it moves
  let weights = null; // what [CLS] reads from each patch
  let waiting = 0; // a frame in which the model will answer

  /** Change the drawing so that Undo can bring it back. */
  const change = (traits) => {
    past.push({ digit: state.get("digit"), drawing: state.get("drawing") });
    past.splice(0, past.length - KEPT);
    state.set(traits);
  };
  const undo = () => {
    if (!past.length) return;
    const { digit, drawing } = past.pop();
    state.set(drawing ? { drawing } : { digit, drawing });
  };

  const which = await digitChoice({
    digits: state.get("digits"),
    value: state.get("digit"),
    onInput: (digit) => change({ digit, drawing: "" }),
  });
  const sheet = paper({
    life,
    onInk: () => {
      waiting ||= requestAnimationFrame(answer);
    },
    onEnd: () => change({ drawing: encode(sheet.ink) }),
    onMove: (y, x, down) => {
      lead = `${words.penAt(y, x, down)} `;
      say(lead + sentence);
    },
    onRest: () => (lead = ""),
    onUndo: undo,
  });
  const model = choice({
    label: words.model,
    options: [
      { value: true, label: words.withPositions },
      { value: false, label: words.withoutPositions },
    ],
    value: state.get("positions"),
    onInput: (positions) => state.set({ positions }),
  });
  const attention = toggle({
    label: words.attention,
    value: state.get("show_attention"),
    onInput: (shown) => state.set({ show_attention: shown }),
  });
  const input = board({
    label: words.gets,
    help: words.getsHelp,
    rows,
    columns,
    onPoint: (cell) => {
      input.mark("patch", weights && cell);
      if (!weights) return;
      const [row, column] = [Math.floor(cell / columns), cell % columns];
      const told = cell === null ? "" : `${words.patch(cell, row, column, weights[cell])} `;
      say(told + sentence);
    },
  });
  input.setGrid(rows, columns);
  const labels = Array.from({ length: models[0].config.num_classes }, (_, k) => `${k}`);
  const classes = bars({
    caption: words.answer,
    labels,
    format: (share) => (share === null ? words.none : percent(share)),
  });
  const numbers = table({
    caption: words.table,
    columns: [
      words.corner,
      ...Array.from({ length: columns }, (_, column) => words.column(column)),
    ],
  });

  /** Let the model read what is on the paper, and show what it says. */
  function answer() {
    waiting = 0;
    if (life.aborted) return;
    const prepared = asMnist(sheet.ink);
    const pixels = shares(prepared);
    const empty = !prepared.some((grey) => grey);
    const positions = state.get("positions");
    input.paint(greyPicture(pixels, SIDE, SIDE));
    weights = null;
    if (empty) {
      classes.set(labels.map(() => null), -1);
      sentence = words.empty;
    } else {
      const { probabilities, attention: maps } = models[positions ? 0 : 1].forward(pixels);
      const row = clsRow(maps.at(-1), tokens);
      weights = row.slice(1);
      classes.set([...probabilities]);
      const ranked = [...probabilities]
        .map((share, label) => ({ share, label }))
        .sort((one, other) => other.share - one.share);
      const most = Math.max(...weights);
      sentence = words.summary(
        positions,
        ranked,
        { cell: weights.indexOf(most), weight: most },
        row[0],
      );
    }
    input.heat(state.get("show_attention") ? weights : null, { max: FULL });
    numbers.set(
      Array.from({ length: rows }, (_, y) => [
        `${y + 1}`,
        ...Array.from({ length: columns }, (_, x) =>
          weights ? decimal(weights[y * columns + x]) : words.none,
        ),
      ]),
    );
    say(lead + sentence);
  }

  function update() {
    const [digit, drawing] = [state.get("digit"), state.get("drawing")];
    which.set(drawing ? null : digit);
    model.set(state.get("positions"));
    attention.set(state.get("show_attention"));
    const grey = (share) => Math.round(255 * share);
    sheet.set(drawing ? decode(drawing) : which.pixels[digit].map(grey));
    answer();
  }

  root.append(
    which.el,
    h(
      "div",
      { class: "vit-columns" },
      h(
        "div",
        { class: "vit-stack" },
        h("p", { class: "vit-title" }, words.draw),
        sheet.el,
        h(
          "div",
          { class: "vit-row" },
          button(words.clear, () => change({ drawing: encode(new Uint8Array(SIDE * SIDE)) })),
          button(words.undo, undo),
        ),
      ),
      h(
        "div",
        { class: "vit-stack" },
        h(
          "div",
          { class: "vit-pair" },
          h(
            "div",
            { class: "vit-stack vit-close" },
            h("p", { class: "vit-title" }, words.gets),
            input.el,
          ),
          classes.el,
        ),
        model.el,
        attention.el,
        legend({ label: words.scale, low: words.least, high: words.most(FULL) }).el,
      ),
    ),
    h("details", {}, h("summary", {}, words.table), numbers.el),
    h("p", { class: "vit-remark" }, words.remark),
  );
  life.addEventListener("abort", () => cancelAnimationFrame(waiting));
  state.on(["digit", "drawing", "positions", "show_attention"], update);
  update();
}

/** What [CLS] reads from each token, the mean over the heads of one block's maps. */
function clsRow(maps, tokens) {
  const heads = maps.length / tokens ** 2;
  return Array.from({ length: tokens }, (_, token) => {
    let sum = 0;
    for (let a = 0; a < heads; a += 1) sum += maps[a * tokens ** 2 + token];
    return sum / heads;
  });
}

export default widget(words.title, draw);
