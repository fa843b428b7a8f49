// Chapter 6: what each step of the model makes of each token, and what the head would
// answer if it read that token now (the logit lens). Python: through_encoder.py.
import {
  aDigit,
  bars,
  board,
  button,
  decimal,
  digitChoice,
  facts,
  freshId,
  h,
  legend,
  numberPicture,
  percent,
  table,
  widget,
} from "./parts.js";
import { loadViT, softmax } from "./vit.js";
import weights from "./digits-positions.safetensors";

const words = {
  title: "Through the encoder",
  steps: "Step",
  groups: { input: "Input", block: (i) => `Block ${i}`, output: "Output" },
  stations: {
    cls: "embed",
    tokens: "+ position",
    norm1: "norm",
    attn: "attention",
    add1: "add",
    norm2: "norm",
    mlp: "MLP",
    add2: "add",
    norm: "norm",
    logits: "head",
  },
  back: "Back",
  next: "Next",
  station: (group, station) => `${group}: ${station}`,
  place: (at, all, station) => `${at} of ${all} · ${station}`,
  cls: "[CLS]",
  patch: (patch) => `patch ${patch}`,
  tokens: "Choose a token",
  board: (label) => `The patches of ${aDigit(label)}`,
  vectors: "The vectors of all tokens",
  help: "Arrow keys look, Enter chooses.",
  read: (token) => `In each patch: what ${token} reads from it, in %`,
  answers: "In each patch: the head's answer, reading it",
  fromCls: (share) => `[CLS] ${share}`,
  heat: "attention, mean of the heads",
  heatEnds: ["0", "≥ 40 %"],
  lens: (token) => `The head, reading ${token} now`,
  lensBefore: (token) => `The head, reading ${token} before the addition`,
  vector: (token, count) => `The ${count} numbers of ${token}`,
  numbers: "The numbers of the vector",
  numbersHelp: "Arrow keys go from number to number.",
  all: "All 17 tokens, one a row",
  scale: "number",
  scaleEnds: (max) => [`−${max} and less`, `${max} and more`],
  shape: "shape",
  shapes: (T, count) => `${T} × ${count}`,
  shapeRemark: "tokens × numbers",
  logits: (count) => [`${count}`, "one logit a class"],
  length: "length of this vector",
  lengthRemark: (length) => `the stream: ${length}`,
  range: "its numbers",
  ranges: (low, high) => `${low} to ${high}`,
  details: "These numbers as text",
  table: "Each token at this step",
  columns: ["token", "length", "the head would answer", "with"],
  columnRead: "attention on it",
  none: "–",
  number: (index, count, token, value) =>
    `Number ${index} of ${count} in the vector of ${token}: ${value}.`,
  reading: (station, token, length, answer, share) =>
    `${station}, ${token}: length ${length}, read as ${answer} (${share}).`,

  // The walk: one sentence a step. w holds this digit's numbers, see `walk`.
  walk: {
    cls: (w) =>
      w.isCls
        ? `The 16 patches are vectors of 64 numbers now. In front of them stands [CLS], ` +
          `the same learned vector for every image, of length ${w.length}: it knows ` +
          `nothing of this digit, and the head's ${w.answer} is no more than a habit.`
        : `Sixty-four learned filters have read the 49 pixels of ${w.token}: a vector of ` +
          `length ${w.length}. Where in the image the patch lies, it does not say.`,
    tokens: (w) =>
      `Every place adds its own learned row of 64 numbers. For ${w.token} the row has the ` +
      `length ${w.branch}; its vector goes from ${w.before} to ${w.length}.`,
    norm1: (w) =>
      `Attention reads a copy of the vectors, brought to one size: ${w.token} has the ` +
      `length ${w.length} in it, ${w.before} in the stream, which stays as it is.`,
    attn: (w) =>
      `${w.capital} looks at all 17 tokens and reads most from ${w.most} (${w.mostShare}; ` +
      `evenly it would be 6 %). The mixture has the length ${w.length}.`,
    add1: (w) =>
      `What attention read joins the stream: from length ${w.before} to ${w.length}. ` +
      `Reading ${w.token}, the head would now say ${w.answer} (${w.share}); before, it ` +
      `was ${w.answerBefore} (${w.shareBefore}).`,
    norm2: (w) =>
      `A copy of one size again, for the MLP: ${w.token} has the length ${w.length} in it.`,
    mlp: (w) =>
      `The MLP works on each token alone: 64 numbers become 256, and 64 again. For ` +
      `${w.token} its answer has the length ${w.length}; the stream has ${w.before}.`,
    add2: (w) =>
      `The MLP's answer joins the stream: from length ${w.before} to ${w.length}. The head ` +
      `would now say ${w.answer} (${w.share}); before, it was ${w.answerBefore} ` +
      `(${w.shareBefore}).`,
    norm: (w) =>
      w.isCls
        ? `The last norm: length ${w.before} becomes ${w.length}. From here the model goes ` +
          `on with [CLS] alone; the patches have given what they had to give.`
        : `The last norm. The model drops ${w.token} here: only [CLS] is read. The lens ` +
          `shows what the head would have made of it.`,
    logits: (w) =>
      w.isCls
        ? `The head turns the 64 numbers of [CLS] into ten, one a class. The largest is ` +
          `${w.top}; softmax makes ${w.share} of it: ${aDigit(w.answer)}. ` +
          `The digit is ${aDigit(w.label)}.`
        : `The head never sees ${w.token}. If it did, it would say ${w.answer} ` +
          `(${w.share}); nobody trained it for that. The digit is ${aDigit(w.label)}.`,
  },
};

// What the full colours stand for. The first vectors are faint on this scale, because
// they are small; a few of the last go beyond it.
const VECTOR = 4;
const READ = 0.4;

const norm = (vector) => Math.hypot(...vector);
const best = (values) => values.indexOf(Math.max(...values));

/** The steps of a model: their names in its record, and what the stream is by then. */
function stepsOf({ depth }) {
  const step = (name, group, stream) => ({ name, group, stream, kind: name.split(".").pop() });
  const steps = [
    step("cls", words.groups.input, "cls"),
    step("tokens", words.groups.input, "tokens"),
  ];
  for (let i = 0; i < depth; i += 1) {
    for (const kind of ["norm1", "attn", "add1", "norm2", "mlp", "add2"]) {
      const name = `blocks.${i}.${kind}`;
      const stream = kind.startsWith("add") ? name : steps.at(-1).stream;
      steps.push({ ...step(name, words.groups.block(i), stream), block: i });
    }
  }
  for (const name of ["norm", "logits"]) {
    steps.push(step(name, words.groups.output, steps.at(-1).stream));
  }
  return steps;
}

/** The steps as stations that follow each other; one is chosen, also by the arrow keys. */
function stationMap(steps, onInput) {
  const name = freshId();
  const inputs = steps.map((step, index) => {
    const input = h("input", { type: "radio", name, value: index });
    input.setAttribute("aria-label", words.station(step.group, words.stations[step.kind]));
    input.addEventListener("change", () => onInput(index));
    return input;
  });
  const el = h("fieldset", { class: "vit-stations" }, h("legend", {}, words.steps));
  for (const group of new Set(steps.map((step) => step.group))) {
    const stations = h("div", { class: "vit-choice" });
    steps.forEach((step, index) => {
      if (step.group !== group) return;
      stations.append(h("label", {}, inputs[index], h("span", {}, words.stations[step.kind])));
    });
    el.append(h("div", {}, h("p", { class: "vit-title" }, group), stations));
  }
  return { el, set: (index) => (inputs[index].checked = true) };
}

async function draw({ state, root, say, theme }) {
  const model = await loadViT(weights);
  const { rows, columns, tokens: T } = model.grid;
  const { num_classes: K, num_heads: A } = model.config;
  const steps = stepsOf(model.config);
  const index = () => steps.findIndex(({ name }) => name === state.get("step"));
  const go = (to) => state.set({ step: steps[to].name });
  const nameOf = (token) => (token === 0 ? words.cls : words.patch(token - 1));

  const names = Array.from({ length: T }, (_, t) => (t === 0 ? words.cls : `${t - 1}`));

  // All that one digit gives: the model's intermediates, and the head's answers to them.
  let record, lens;
  let looked = null; // the token under the pointer or the keyboard, before it is chosen
  let lookedNumber = null;
  const shown = () => looked ?? state.get("token");

  const digits = await digitChoice({
    digits: state.get("digits"),
    value: state.get("digit"),
    onInput: (digit) => state.set({ digit }),
  });
  const map = stationMap(steps, go);
  const back = button(words.back, () => go(index() - 1));
  const next = button(words.next, () => go(index() + 1));
  const place = h("p", { class: "vit-title" });
  const sentence = h("p", { role: "status" });
  // The longest sentence keeps room for all.
  const longest = h("p", { class: "vit-ghost", "aria-hidden": "true" });

  const pointing = (label, rows, columns, first) => {
    const made = board({
      label,
      help: words.help,
      rows,
      columns,
      onPoint: (cell) => {
        looked = cell === null ? null : cell + first;
        update();
      },
      onPick: (cell) => {
        looked = null;
        state.set({ token: cell + first });
        update();
      },
    });
    made.setGrid(rows, columns);
    return made;
  };
  const patchBoard = pointing(words.tokens, rows, columns, 1);
  const tokenBoard = pointing(words.vectors, T, 1, 0);
  const strip = board({
    label: words.numbers,
    help: words.numbersHelp,
    rows: 1,
    columns: 1,
    onPoint: (cell) => {
      lookedNumber = cell;
      update();
    },
  });
  for (const { el } of [tokenBoard, strip]) el.classList.add("vit-plain", "vit-band");
  tokenBoard.el.style.blockSize = `${0.95 * T}rem`;
  const cls = button(words.cls, () => state.set({ token: 0 }));
  const boardTitle = h("p", { class: "vit-title vit-roomy" });
  const heatScale = legend({ label: words.heat, low: words.heatEnds[0], high: words.heatEnds[1] });
  const answer = bars({
    caption: words.lens(words.cls),
    labels: Array.from({ length: K }, (_, k) => `${k}`),
  });
  answer.el.caption.classList.add("vit-roomy");
  const sizes = facts({ shape: words.shape, length: words.length, range: words.range });
  const stripTitle = h("p", { class: "vit-title" });
  const rowName = h("span");
  const [low, high] = words.scaleEnds(VECTOR);
  const numbers = h("p", { class: "vit-numbers" });
  const listed = table({
    caption: words.table,
    columns: [...words.columns, words.columnRead],
  });

  const asText = h(
    "details",
    { ontoggle: () => update() },
    h("summary", {}, words.details),
    numbers,
    listed.el,
  );

  /** Token t's vector at a step. The head's are its ten logits, whoever is read. */
  function vectorAt(step, t) {
    if (step.name === "logits") return model.head(vectorOf(step.stream, t));
    return vectorOf(step.name, t);
  }
  function vectorOf(name, t) {
    const { data, shape } = record[name];
    return data.subarray(t * shape[1], (t + 1) * shape[1]);
  }

  /** What the head would answer, reading each token at a state of the stream. */
  function answersAt(stream) {
    lens[stream] ??= names.map((_, t) => softmax(model.head(vectorOf(stream, t))));
    return lens[stream];
  }

  /** How much token t reads from each token in a block: the mean of the heads. */
  function reads(block, t) {
    const { data } = record[`blocks.${block}.attn.weights`];
    const sums = new Array(T).fill(0);
    for (let a = 0; a < A; a += 1) {
      for (let j = 0; j < T; j += 1) sums[j] += data[(a * T + t) * T + j] / A;
    }
    return sums;
  }

  /** The sentence of a step, with this digit's numbers, for one token. */
  function walk(at, t) {
    const step = steps[at];
    const previous = steps[Math.max(0, at - 1)];
    const vector = vectorAt(step, t);
    const stream = vectorOf(previous.stream, t);
    const [now, then] = [step, previous].map((each) => answersAt(each.stream)[t]);
    const read = step.kind === "attn" ? reads(step.block, t) : null;
    return words.walk[step.kind]({
      isCls: t === 0,
      token: nameOf(t),
      capital: nameOf(t).replace(/^p/, "P"),
      label: state.get("digits")[state.get("digit")].label,
      length: decimal(norm(vector)),
      before: decimal(norm(stream)),
      branch: decimal(norm(vector.map((value, i) => value - stream[i]))),
      answer: best(now),
      share: percent(Math.max(...now), 0),
      answerBefore: best(then),
      shareBefore: percent(Math.max(...then), 0),
      most: read && (best(read) === t ? `itself` : nameOf(best(read))),
      mostShare: read && percent(Math.max(...read), 0),
      top: decimal(Math.max(...vector)),
    });
  }

  /** Run the model on the digit. */
  function run() {
    const digit = state.get("digit");
    ({ record } = model.forward(digits.pixels[digit], { record: true }));
    lens = {};
    longest.textContent = walk(0, 0);
    digits.set(digit);
    patchBoard.paint(digits.pictures[digit]);
    patchBoard.surface.setAttribute("aria-label", words.board(state.get("digits")[digit].label));
    update();
  }

  function update() {
    const at = index();
    const step = steps[at];
    const t = shown();
    const token = nameOf(t);
    const vector = vectorAt(step, t);
    const count = vector.length;
    if (looked === null) {
      patchBoard.cursor = Math.max(0, t - 1);
      tokenBoard.cursor = t;
    }
    const read = step.kind === "attn" ? reads(step.block, t) : null;
    const answers = answersAt(step.stream);
    const onBranch = ["norm1", "attn", "norm2", "mlp"].includes(step.kind);

    map.set(at);
    back.disabled = at === 0;
    next.disabled = at === steps.length - 1;
    const station = words.station(step.group, words.stations[step.kind]);
    place.textContent = words.place(at + 1, steps.length, station);
    const said = walk(at, t);
    if (sentence.textContent !== said) sentence.textContent = said;

    cls.setAttribute("aria-pressed", t === 0);
    cls.textContent = read ? words.fromCls(percent(read[0], 0)) : words.cls;
    boardTitle.textContent = read ? words.read(token) : words.answers;
    patchBoard.heat(read && read.slice(1), { max: READ });
    patchBoard.write(
      read
        ? read.slice(1).map((share) => `${Math.round(100 * share)}`)
        : answers.slice(1).map((shares) => `${best(shares)}`),
    );
    patchBoard.mark("chosen", t === 0 ? null : t - 1);
    heatScale.el.style.visibility = read ? "visible" : "hidden";

    answer.el.caption.textContent = onBranch ? words.lensBefore(token) : words.lens(token);
    answer.set([...answers[t]]);

    stripTitle.textContent = words.vector(token, count);
    rowName.textContent = names[t];
    strip.setGrid(1, count);
    strip.paint(numberPicture(vector, count, VECTOR, theme.dark));
    strip.mark("number", lookedNumber);
    const all = Array.from({ length: T }, (_, each) => [...vectorAt(step, each)]);
    tokenBoard.paint(numberPicture(all.flat(), count, VECTOR, theme.dark));
    tokenBoard.mark("chosen", t);
    const [lengthNow, ofStream] = [norm(vector), norm(vectorOf(step.stream, t))];
    sizes.set({
      shape:
        step.name === "logits"
          ? words.logits(count)
          : [words.shapes(T, count), words.shapeRemark],
      length: [decimal(lengthNow), words.lengthRemark(decimal(ofStream))],
      range: words.ranges(decimal(Math.min(...vector), 1), decimal(Math.max(...vector), 1)),
    });
    if (asText.open) {
      numbers.textContent = Array.from(vector, (value) => decimal(value)).join("  ");
      listed.set(
        all.map((values, each) => [
          nameOf(each),
          decimal(norm(values)),
          `${best(answers[each])}`,
          percent(Math.max(...answers[each]), 0),
          read ? percent(read[each]) : words.none,
        ]),
      );
    }
    if (lookedNumber !== null && lookedNumber < count) {
      say(words.number(lookedNumber, count, token, decimal(vector[lookedNumber])));
    } else {
      const share = percent(Math.max(...answers[t]), 0);
      say(words.reading(station, token, decimal(lengthNow), best(answers[t]), share));
    }
  }

  root.append(
    digits.el,
    map.el,
    h(
      "div",
      { class: "vit-guide" },
      h("div", { class: "vit-row" }, back, next, place),
      h("div", { class: "vit-same-place" }, longest, sentence),
    ),
    h(
      "div",
      { class: "vit-pair" },
      h(
        "div",
        { class: "vit-stack vit-close" },
        boardTitle,
        h("div", { class: "vit-tokens" }, cls, patchBoard.el),
        heatScale.el,
      ),
      answer.el,
    ),
    h(
      "div",
      { class: "vit-stack vit-close" },
      stripTitle,
      namedRows([rowName], strip.el),
      h("p", { class: "vit-title" }, words.all),
      namedRows(names.map((name) => h("span", {}, name)), tokenBoard.el),
      legend({ label: words.scale, low, high, scale: "diverging" }).el,
    ),
    sizes.el,
    asText,
  );
  state.on(["digit"], run);
  state.on(["step", "token"], () => {
    lookedNumber = null;
    update();
  });
  theme.on(update);
  run();
}

/** A picture with a name beside each of its rows. */
const namedRows = (names, picture) =>
  h("div", { class: "vit-named-rows" }, h("div", { "aria-hidden": "true" }, ...names), picture);

export default widget(words.title, draw);
