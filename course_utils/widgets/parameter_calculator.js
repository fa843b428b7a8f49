// Chapter 7: what a Vision Transformer of any size costs. Python: parameter_calculator.py.
// The formulas stand in counting.js.
import { count, repeated, sum } from "./counting.js";
import { choice, facts, h, percent, slider, table, times, whole, widget } from "./parts.js";

const words = {
  title: "What a ViT costs",
  preset: "Start from",
  sizes: {
    img_size: "Image side",
    patch_size: "Patch side P",
    embed_dim: "Width D",
    depth: "Blocks L",
    num_heads: "Heads A",
    mlp_ratio: "MLP, times the width",
    num_classes: "Classes K",
    in_chans: "Colour channels C",
  },
  short: {
    img_size: "image side",
    patch_size: "P",
    embed_dim: "D",
    depth: "L",
    num_heads: "A",
    mlp_ratio: "MLP",
    num_classes: "K",
    in_chans: "C",
  },
  formats: {
    img_size: (side) => `${side} pixels`,
    patch_size: (P) => `${P} pixels`,
    mlp_ratio: (ratio) => `${ratio} ×`,
    num_classes: (K) => (K ? whole(K) : "no head"),
  },
  facts: {
    parameters: "parameters",
    multiplyAdds: "multiply-adds an image",
    tokens: "tokens",
    pairs: "pairs of tokens",
    weights: "memory of the weights",
    activations: "activations an image",
  },
  grid: (side) => `${side} × ${side} patches and [CLS]`,
  maps: (A, L) => `in each of ${A} × ${L} attention maps`,
  float: "float32, 4 bytes a number",
  attention: (bytes) => `of it ${bytes} attention maps`,
  where: { parameters: "Where the parameters are", multiplyAdds: "Where the arithmetic is" },
  parts: {
    patch: "patch embedding",
    cls: "[CLS]",
    positions: "positions",
    layers: "attention’s layers",
    products: "attention’s products",
    mlp: "MLP",
    norm: "LayerNorm",
    head: "head",
  },
  all: "all",
  caption: "Part by part, all blocks together, to the last digit",
  columns: [
    "part",
    "parameters",
    "share",
    "multiply-adds",
    "share",
    "activation bytes",
    "attention bytes",
  ],
  noShare: "–",
  thousands: ["", " thousand", " million", " billion", " trillion", " quadrillion"],
  bytes: [" bytes", " kB", " MB", " GB", " TB", " PB"],
  patchMoved: (side, old, P) => `${old} does not divide ${side} pixels, so P is now ${P}. `,
  headsMoved: (D, old, A) => `${old} heads cannot share a width of ${D}, so A is now ${A}. `,
  patchMisfits: (side, P) =>
    `A patch side of ${P} does not divide an image side of ${side}: choose one that does.`,
  headsMisfit: (D, A) =>
    `${A} heads cannot share a width of ${D} evenly: choose a number that divides it.`,
  named: (name, { parameters, multiplyAdds, tokens }, mlp, products) =>
    `${name}: ${parameters} parameters, ${multiplyAdds} multiply-adds an image, ` +
    `${tokens} tokens. The MLPs hold ${mlp} of the parameters; attention’s products, which ` +
    `hold none, do ${products} of the arithmetic.`,
  changed: (name, changes, { parameters, multiplyAdds, tokens, pairs }) =>
    `${name} with ${changes}: ${parameters.join(" parameters, ")} those of ${name}; ` +
    `${multiplyAdds.join(" multiply-adds, ")}; ${tokens.join(" tokens, ")}; ` +
    `${pairs.join(" pairs, ")}.`,
  change: (name, value) => `${name} = ${value}`,
};

const SIZES = Object.keys(words.sizes);
const LONGEST = 65_536; // patches at most to choose from: a pixel a token of 256 × 256

// The parts as the page shows them: Python's names, and the number of their colour.
const PARTS = {
  patch: { names: ["patch_embed"], colour: 3 },
  cls: { names: ["cls_token"], colour: 3 },
  positions: { names: ["pos_embed"], colour: 3 },
  layers: { names: ["block.attn.qkv", "block.attn.proj"], colour: 1 },
  products: { names: ["block.attn.scores", "block.attn.mix"], colour: 4 },
  mlp: { names: ["block.mlp.fc1", "block.mlp.act", "block.mlp.fc2"], colour: 2 },
  norm: { names: ["block.norm1", "block.norm2", "norm"], colour: 5 },
  head: { names: ["head"], colour: 6 },
};

const upTo = (last) => Array.from({ length: last }, (_, index) => index + 1);
const divisors = (number) => upTo(number).filter((divisor) => number % divisor === 0);

/** What there is to choose from, small to large; a patch and heads must divide. */
const OFFERED = {
  img_size: () =>
    [28, 32, 56, 64, 96, 112, 128, 160, 192, 224, 256, 288, 320, 336, 384, 448, 512, 518],
  patch_size: ({ img_size }) => divisors(img_size).filter((P) => (img_size / P) ** 2 <= LONGEST),
  embed_dim: () =>
    [16, 32, 48, 64, 96, 128, 192, 256, 320, 384, 512, 640, 768, 896, 1024, 1280, 1536, 2048],
  depth: () => upTo(48),
  num_heads: ({ embed_dim }) => divisors(embed_dim).filter((A) => A <= 64),
  mlp_ratio: () => [0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4, 5, 6, 8],
  num_classes: () => [0, 2, 5, 10, 20, 50, 100, 200, 365, 1000, 21843],
  in_chans: () => [1, 3],
};

/** Why there can be no such model, in words, or null. */
function misfit({ img_size, patch_size, embed_dim, num_heads }) {
  if (img_size % patch_size !== 0) return words.patchMisfits(img_size, patch_size);
  if (embed_dim % num_heads !== 0) return words.headsMisfit(embed_dim, num_heads);
  return null;
}

/** Three digits and a unit of thousands: 86.6 million, 346 MB. */
function short(value, units) {
  let power = 0;
  while (value >= 999.5 && power < units.length - 1) [value, power] = [value / 1000, power + 1];
  const digits = power === 0 ? value : Number(value.toPrecision(3));
  return `${digits}${units[power]}`;
}

const nearest = (values, wanted) =>
  values.reduce((best, value) =>
    Math.abs(value - wanted) < Math.abs(best - wanted) ? value : best,
  );

/** Two bars cut into the parts' shares, each with its name where there is room. */
function stack(title) {
  const segments = {};
  for (const [key, { colour }] of Object.entries(PARTS)) {
    const name = h("span", {}, words.parts[key]);
    const share = h("span");
    const el = h("div", { class: "vit-segment", style: `--part: var(--series-${colour})` });
    el.append(h("div"), h("p", {}, h("span", {}, name, h("br"), share)));
    segments[key] = { el, share };
  }
  const strip = h("div", { class: "vit-segments" });
  strip.append(...Object.values(segments).map(({ el }) => el));
  const el = h("div", { "aria-hidden": "true" }, h("p", { class: "vit-title" }, title), strip);
  const set = (shares) => {
    for (const [key, share] of Object.entries(shares)) {
      segments[key].el.style.flexGrow = share;
      segments[key].el.hidden = share === 0;
      segments[key].share.textContent = percent(share, 0);
    }
  };
  return { el, set };
}

function draw({ state, root, say }) {
  const presets = state.get("presets");
  const sizesNow = () => Object.fromEntries(SIZES.map((name) => [name, state.get(name)]));
  const changesFrom = (preset, sizes) =>
    SIZES.filter((name) => presets[preset][name] !== sizes[name]);
  const presetOf = (sizes) =>
    Object.keys(presets).find((preset) => changesFrom(preset, sizes).length === 0) ?? "";

  // What the numbers are compared with: the preset that was left last.
  let base = Object.keys(presets).reduce((best, preset) =>
    changesFrom(preset, sizesNow()).length < changesFrom(best, sizesNow()).length ? preset : best,
  );
  let moved = ""; // what had to follow the reader's choice

  const which = choice({
    label: words.preset,
    options: Object.keys(presets).map((name) => ({ value: name, label: name })),
    value: state.get("preset"),
    onInput: (preset) => state.set({ ...presets[preset], preset }),
  });
  const results = facts(words.facts);
  const parameters = stack(words.where.parameters);
  const arithmetic = stack(words.where.multiplyAdds);
  const list = table({ caption: words.caption, columns: words.columns });
  list.el.classList.add("vit-figures");
  const controls = Object.fromEntries(SIZES.map((name) => [name, { place: h("div"), own: [] }]));

  function choose(name, value) {
    const sizes = { ...sizesNow(), [name]: value };
    const { img_size: side, patch_size: P, embed_dim: D, num_heads: A } = sizes;
    moved = "";
    if (side % P !== 0) {
      sizes.patch_size = nearest(OFFERED.patch_size(sizes), P);
      moved += words.patchMoved(side, P, sizes.patch_size);
    }
    if (D % A !== 0) {
      sizes.num_heads = nearest(OFFERED.num_heads(sizes), A);
      moved += words.headsMoved(D, A, sizes.num_heads);
    }
    state.set({ ...sizes, preset: presetOf(sizes) });
  }

  /** Set a slider; make it anew when there are other values to choose from. */
  function setControl(name, sizes) {
    const control = controls[name];
    const value = sizes[name];
    let values = OFFERED[name](sizes);
    if (!values.includes(value)) control.own.push(value); // set from Python
    const own = control.own.filter((one) => !misfit({ ...sizes, [name]: one }));
    values = [...new Set([...values, ...own])].sort((a, b) => a - b);
    if (String(values) !== String(control.values)) {
      control.values = values;
      control.slider = slider({
        label: words.sizes[name],
        values,
        value,
        format: words.formats[name] ?? String,
        onInput: (next) => choose(name, next),
      });
      control.place.replaceChildren(control.slider.el);
    }
    control.slider.set(value);
  }

  function costsOf(sizes) {
    const { N, T, parts, total } = count(sizes);
    const shown = Object.entries(PARTS).map(([key, { names }]) => {
      const blocks = (name) => (name.startsWith("block.") ? sizes.depth : 1);
      return [key, sum(names.map((name) => repeated(blocks(name), parts[name])))];
    });
    return { N, T, total, parts: Object.fromEntries(shown) };
  }

  const share = (part, all) => (all ? percent(part / all) : words.noShare);

  function sentence(sizes, { T, total, parts }) {
    const preset = presetOf(sizes);
    if (preset) {
      const numbers = {
        parameters: short(total.parameters, words.thousands),
        multiplyAdds: short(total.multiplyAdds, words.thousands),
        tokens: whole(T),
      };
      const mlp = share(parts.mlp.parameters, total.parameters);
      const products = share(parts.products.multiplyAdds, total.multiplyAdds);
      return words.named(preset, numbers, mlp, products);
    }
    const before = costsOf(presets[base]);
    const changes = changesFrom(base, sizes).map((name) =>
      words.change(words.short[name], (words.formats[name] ?? String)(sizes[name])),
    );
    const against = (now, was, text) => [text, times(now / was)];
    const cost = (what) =>
      against(total[what], before.total[what], short(total[what], words.thousands));
    return words.changed(base, changes.join(", "), {
      parameters: cost("parameters"),
      multiplyAdds: cost("multiplyAdds"),
      tokens: against(T, before.T, whole(T)),
      pairs: against(T ** 2, before.T ** 2, whole(T ** 2)),
    });
  }

  function row(name, colour, cost, total) {
    const style = `background: var(--series-${colour})`;
    const swatch = colour ? h("span", { class: "vit-swatch", style }) : "";
    return [
      h("span", { class: "vit-key" }, swatch, name),
      whole(cost.parameters),
      share(cost.parameters, total.parameters),
      whole(cost.multiplyAdds),
      share(cost.multiplyAdds, total.multiplyAdds),
      whole(cost.activationBytes),
      whole(cost.attentionBytes),
    ];
  }

  function update() {
    const sizes = sizesNow();
    const fault = misfit(sizes);
    if (fault) {
      say(fault);
      return;
    }
    base = presetOf(sizes) || base;
    which.set(presetOf(sizes));
    for (const name of SIZES) setControl(name, sizes);
    const costs = costsOf(sizes);
    const { T, total, parts } = costs;
    results.set({
      parameters: [short(total.parameters, words.thousands), whole(total.parameters)],
      multiplyAdds: [short(total.multiplyAdds, words.thousands), whole(total.multiplyAdds)],
      tokens: [whole(T), words.grid(sizes.img_size / sizes.patch_size)],
      pairs: [whole(T ** 2), words.maps(sizes.num_heads, sizes.depth)],
      weights: [short(4 * total.parameters, words.bytes), words.float],
      activations: [
        short(total.activationBytes + total.attentionBytes, words.bytes),
        words.attention(short(total.attentionBytes, words.bytes)),
      ],
    });
    const shares = (what) =>
      Object.fromEntries(
        Object.entries(parts).map(([key, cost]) => [key, cost[what] / total[what]]),
      );
    parameters.set(shares("parameters"));
    arithmetic.set(shares("multiplyAdds"));
    list.set([
      ...Object.entries(PARTS).map(([key, { colour }]) =>
        row(words.parts[key], colour, parts[key], total),
      ),
      row(words.all, 0, total, total),
    ]);
    say(moved + sentence(sizes, costs));
    moved = "";
  }

  root.append(
    which.el,
    results.el,
    parameters.el,
    arithmetic.el,
    h("div", { class: "vit-columns" }, ...SIZES.map((name) => controls[name].place)),
    list.el,
  );
  state.on(SIZES, update);
  update();
}

export default widget(words.title, draw);
