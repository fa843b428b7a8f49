// Chapter 4: does the order of the patches matter to the output? Python: shuffling.py.
import withPositions from "./digits-positions.safetensors";
import withoutPositions from "./digits-no-positions.safetensors";
import { loadViT } from "./vit.js";
import {
  bars, board, button, decimal, digitChoice, facts, h, paint, widget,
} from "./parts.js";

const ROUNDING = 1e-4; // far above float32's rounding, far below any real change of a logit

const words = {
  title: "Shuffling the patches",
  image: (label) => `A ${label}, cut into 16 patches`,
  help:
    "Arrow keys move from place to place. Enter picks a patch; Enter at another place swaps " +
    "the two. Escape lets go.",
  hint: "Tap one patch, then another, to swap the two.",
  swap: (patch) => `Patch ${patch} is picked: tap another to swap the two.`,
  shuffle: "Shuffle",
  restore: "Put back in order",
  original: "In order",
  withPositions: "With positions",
  withoutPositions: "Without positions",
  change: "largest change of a logit",
  none: "no patch has moved",
  rounding: (change) => `up to rounding (${change.toExponential(0).replace("-", "−")})`,
  moved: "from the digit in order",
  at: (place, patch) => `Place ${place} holds patch ${patch}.`,
  inOrder: (label) =>
    `The ${label} lies in order. Shuffle it: which of the two models will notice?`,
  verdict: ({ says, said, change }) =>
    `${says === said ? `still ${says}` : `${says}, no longer ${said}`}, ` +
    (change > ROUNDING
      ? `a logit moved by ${decimal(change)}`
      : "the change is 0, up to rounding"),
  summary: (moved, first, second) =>
    `${moved} of 16 patches are out of place. ` +
    `With positions: ${words.verdict(first)}. Without: ${words.verdict(second)}.`,
};

const best = (values) => values.indexOf(Math.max(...values));

/** Pixels with patch order[i] at place i; both count in reading order. */
function rearranged(picture, order, columns) {
  const P = picture.width / columns;
  const result = new ImageData(picture.width, picture.height);
  const corner = (cell) => [Math.floor(cell / columns) * P, (cell % columns) * P];
  order.forEach((patch, place) => {
    const [[fromY, fromX], [toY, toX]] = [corner(patch), corner(place)];
    for (let y = 0; y < P; y += 1) {
      const start = 4 * ((fromY + y) * picture.width + fromX);
      const row = picture.data.subarray(start, start + 4 * P);
      result.data.set(row, 4 * ((toY + y) * picture.width + toX));
    }
  });
  return result;
}

/** Any order but the one that was, each as likely (Fisher and Yates). */
function shuffled(order) {
  const next = [...order];
  for (let i = next.length - 1; i > 0; i -= 1) {
    const j = Math.floor(Math.random() * (i + 1));
    [next[i], next[j]] = [next[j], next[i]];
  }
  return next.every((patch, place) => patch === order[place]) ? shuffled(order) : next;
}

/** One model's answer: how sure it is of each class, and how far its output moved. */
function reader(name, model) {
  const labels = Array.from({ length: model.config.num_classes }, (_, k) => `${k}`);
  const read = facts({ change: words.change });
  const classes = bars({ caption: name, labels });
  const el = h("div", { class: "vit-stack" }, classes.el, read.el);
  /** Read a digit in an order; what it says, what it said, and the change come back. */
  const show = (pixels, order) => {
    const own = order.map((_, place) => place);
    const before = model.forward(pixels);
    const now = model.forward(pixels, { order });
    const changes = now.logits.map((logit, k) => Math.abs(logit - before.logits[k]));
    const change = Math.max(...changes);
    const [says, said] = [best(now.logits), best(before.logits)];
    classes.set([...now.probabilities], says);
    read.set({
      change:
        change > ROUNDING
          ? [decimal(change), words.moved]
          : ["0", `${order}` === `${own}` ? words.none : words.rounding(change)],
    });
    return { says, said, change };
  };
  return { el, show };
}

async function draw({ state, root, say }) {
  const models = await Promise.all([loadViT(withPositions), loadViT(withoutPositions)]);
  const { rows, columns } = models[0].grid;
  const readers = [words.withPositions, words.withoutPositions].map((name, i) =>
    reader(name, models[i]),
  );
  const which = await digitChoice({
    digits: state.get("digits"),
    value: state.get("digit"),
    onInput: (digit) => state.set({ digit }),
  });
  let picked = null;

  const grid = board({
    label: words.title,
    help: words.help,
    rows,
    columns,
    onPoint: (place) => {
      grid.mark("place", place);
      if (place !== null && grid.surface.matches(":focus-visible")) {
        say(`${words.at(place, state.get("order")[place])} ${sentence}`);
      }
    },
    onPick: (place) => {
      if (picked === null) pick(place);
      else {
        const order = [...state.get("order")];
        [order[picked], order[place]] = [order[place], order[picked]];
        pick(null);
        state.set({ order });
      }
    },
  });
  grid.setGrid(rows, columns);
  grid.surface.addEventListener("keydown", (event) => {
    if (event.key === "Escape") pick(null);
  });
  const hint = h("p", { class: "vit-title", "aria-live": "polite" });
  const original = h("canvas", { class: "vit-thumbnail", "aria-hidden": "true" });
  let sentence = "";

  const inOrder = () => Array.from({ length: rows * columns }, (_, place) => place);

  function pick(place) {
    picked = place;
    grid.mark("picked", place);
    hint.textContent = place === null ? words.hint : words.swap(state.get("order")[place]);
  }

  function update() {
    const [digit, order] = [state.get("digit"), state.get("order")];
    const { label } = state.get("digits")[digit];
    const moved = order.filter((patch, place) => patch !== place).length;
    which.set(digit);
    grid.paint(rearranged(which.pictures[digit], order, columns));
    grid.write(order.map(String));
    grid.surface.setAttribute("aria-label", words.image(label));
    paint(original, which.pictures[digit]);
    const [first, second] = readers.map((one) => one.show(which.pixels[digit], order));
    sentence = moved ? words.summary(moved, first, second) : words.inOrder(label);
    say(sentence);
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
        hint,
        h(
          "div",
          { class: "vit-row" },
          button(words.shuffle, () => {
            pick(null);
            state.set({ order: shuffled(state.get("order")) });
          }),
          button(words.restore, () => {
            pick(null);
            state.set({ order: inOrder() });
          }),
          h("span", { class: "vit-row vit-title" }, original, words.original),
        ),
      ),
      h("div", { class: "vit-pair" }, ...readers.map(({ el }) => el)),
    ),
  );
  pick(null);
  state.on(["digit", "order"], update);
  update();
}

export default widget(words.title, draw);
