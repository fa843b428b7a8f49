// Chapter 7: what a Vision Transformer costs, by formula, before it is built. The same as
// course_utils.counting for one image in float32. All numbers are whole, and exact up to
// 2⁵³, the largest that JavaScript counts to.
//
// Axes: C channels, P patch, N patches, T tokens, D width, M the MLP's hidden width,
// A heads, L blocks, K classes.

const BYTES = 4; // of a number in float32

/** Round to the nearest whole number, halves to the even one, as Python does. */
function round(value) {
  const below = Math.floor(value);
  const rest = value - below;
  return below + (rest > 0.5 || (rest === 0.5 && below % 2 === 1) ? 1 : 0);
}

/**
 * Count what a ViT takes in one forward pass of one image.
 *
 * @param {object} config - img_size, patch_size, in_chans, num_classes, embed_dim, depth,
 *   num_heads and mlp_ratio, as ViTConfig has them; the patch must divide the image, and
 *   the heads the width.
 * @returns {{N: number, T: number, parts: Object, total: Object}} patches, tokens, and the
 *   cost of each part, under Python's names, and of all. Parts that begin with "block."
 *   are for one block; the total has L of them. A cost holds parameters; multiplyAdds;
 *   activationBytes, what training keeps without the attention maps; and attentionBytes,
 *   those maps, which a fused attention need not keep.
 */
export function count(config) {
  const { img_size: side, patch_size: P, in_chans: C, num_classes: K } = config;
  const { embed_dim: D, depth: L, num_heads: A, mlp_ratio: ratio } = config;
  const M = round(D * ratio);
  const N = (side / P) ** 2;
  const T = N + 1; // [CLS] stands in front

  const part = (parameters, multiplyAdds = 0, kept = 0, maps = 0) => ({
    parameters,
    multiplyAdds,
    activationBytes: BYTES * kept,
    attentionBytes: BYTES * maps,
  });
  // A linear layer has a weight for each pair of input and output, and a bias for each
  // output; it keeps its inputs.
  const linear = (tokens, inputs, outputs) =>
    part(inputs * outputs + outputs, tokens * inputs * outputs, tokens * inputs);
  // LayerNorm has a scale and a shift, and keeps its input, a mean and a deviation.
  const norm = part(2 * D, 0, T * D + 2 * T);

  const parts = {
    "patch_embed": linear(N, P * P * C, D),
    "cls_token": part(D),
    "pos_embed": part(T * D),
    "block.norm1": norm,
    "block.attn.qkv": linear(T, D, 3 * D),
    "block.attn.scores": part(0, T * T * D, 2 * T * D, A * T * T), // queries · keys
    "block.attn.mix": part(0, T * T * D, T * D), // weights · values
    "block.attn.proj": linear(T, D, D),
    "block.norm2": norm,
    "block.mlp.fc1": linear(T, D, M),
    "block.mlp.act": part(0, 0, T * M), // GELU
    "block.mlp.fc2": linear(T, M, D),
    "norm": norm,
    "head": K ? linear(1, D, K) : part(0),
  };
  const total = sum(
    Object.entries(parts).map(([name, cost]) => repeated(name.startsWith("block.") ? L : 1, cost)),
  );
  return { N, T, parts, total };
}

/** Add costs, entry by entry. */
export function sum(costs) {
  const all = { parameters: 0, multiplyAdds: 0, activationBytes: 0, attentionBytes: 0 };
  for (const cost of costs) for (const name of Object.keys(all)) all[name] += cost[name];
  return all;
}

/** A cost, so many times. */
export const repeated = (factor, cost) =>
  Object.fromEntries(Object.entries(cost).map(([name, value]) => [name, factor * value]));
