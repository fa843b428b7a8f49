// Chapter 6: what the digit model attends to, computed here. Python: attention_overlay.py.
import weights from "./digits-positions.safetensors";
import { loadViT } from "./vit.js";
import { drawOverlay, meanRow, unpackWeights } from "./overlay.js";
import { aDigit, digitChoice, widget } from "./parts.js";

const words = {
  title: "Attention over a digit",
  name: aDigit,
  note:
    "The trained model runs here. Random weights: the same model with weights drawn anew, " +
    "computed beforehand and right to 0.002.",
};

/**
 * Follow attention through all blocks: `inspection.rollout` of Python.
 *
 * @param {Float32Array[][]} blocks - of each block its heads, T*T weights each.
 * @param {number} T - tokens.
 * @returns {Float32Array} T*T: how much of input token k is in output token q.
 */
function rollout(blocks, T) {
  let flow = Float32Array.from({ length: T * T }, (_, i) => Number(i % (T + 1) === 0));
  for (const heads of blocks) {
    const mixed = meanRow(heads);
    for (let q = 0; q < T; q += 1) {
      const row = mixed.subarray(q * T, (q + 1) * T);
      row[q] += 1; // the residual branch, as strong as the attention
      const sum = row.reduce((all, weight) => all + weight, 0);
      for (let k = 0; k < T; k += 1) row[k] /= sum;
    }
    const next = new Float32Array(T * T);
    for (let q = 0; q < T; q += 1) {
      for (let j = 0; j < T; j += 1) {
        for (let k = 0; k < T; k += 1) next[q * T + k] += mixed[q * T + j] * flow[j * T + k];
      }
    }
    flow = next;
  }
  return flow;
}

async function draw({ state, root, say }) {
  const [model, control] = await Promise.all([
    loadViT(weights),
    unpackWeights(state.get("control")),
  ]);
  const { rows, columns, tokens: T } = model.grid;
  const { depth, num_heads: A } = model.config;
  const which = await digitChoice({
    digits: state.get("digits"),
    value: state.get("digit"),
    onInput: (digit) => state.set({ digit }),
  });
  const blockSize = A * T * T;
  const computed = new Map(); // digit → the weights of each block

  function maps(digit, random) {
    if (random) {
      const start = digit * depth * blockSize;
      return Array.from({ length: depth }, (_, i) =>
        control.subarray(start + i * blockSize, start + (i + 1) * blockSize),
      );
    }
    if (!computed.has(digit)) computed.set(digit, model.forward(which.pixels[digit]).attention);
    return computed.get(digit);
  }

  drawOverlay(
    { state, root, say },
    {
      rows,
      columns,
      blocks: depth,
      heads: A,
      top: 0.5,
      kept: null,
      note: words.note,
      controls: [which.el],
      traits: ["digit"],
      picture() {
        const digit = state.get("digit");
        which.set(digit);
        const { label } = state.get("digits")[digit];
        return { name: words.name(label), pixels: which.pictures[digit] };
      },
      row({ block, head, query, rollout: all, random }) {
        const heads = maps(state.get("digit"), random).map((weights) =>
          Array.from({ length: A }, (_, a) => weights.subarray(a * T * T, (a + 1) * T * T)),
        );
        const token = query === "cls" ? 0 : 1 + query;
        let map;
        if (all) map = rollout(heads, T);
        else map = head === "mean" ? meanRow(heads[block]) : heads[block][head];
        return map.slice(token * T, (token + 1) * T);
      },
    },
  );
}

export default widget(words.title, draw);
