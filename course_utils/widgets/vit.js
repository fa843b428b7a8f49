// The digit ViT of chapter 6, run in the page: the weights are the file that Python reads,
// the steps and their names those of vit.py, encoder.py and attention.py.
//
// Axes: C channels, H W image, P patch (P high, Q wide), N patches, T tokens, D width,
// A heads, K classes.
import kernel from "./gemm.wasm";

// Reading weights -----------------------------------------------------------------------

const SIZES = { F32: 4, F16: 2 }; // bytes a number, for each type that is read

const bits = new Uint32Array(1);
const asFloat = new Float32Array(bits.buffer);

/** The value of a float16. Its exponent's bias is 112 below that of a float32. */
function fromHalf(half) {
  bits[0] = (half & 0x7fff) << 13;
  const size = asFloat[0] * 2 ** 112; // exact, below the smallest normal number too
  const value = size < 65536 ? size : half & 0x3ff ? NaN : Infinity;
  return half & 0x8000 ? -value : value;
}

/**
 * Read a safetensors file.
 *
 * @param {ArrayBuffer|ArrayBufferView} bytes - the whole file.
 * @returns {{metadata: Object<string, string>,
 *   tensors: Object<string, {shape: number[], data: Float32Array}>}}
 * @throws {Error} if the file is damaged, or holds another type than F32 and F16.
 */
export function readSafetensors(bytes) {
  const view = ArrayBuffer.isView(bytes)
    ? new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
    : new DataView(bytes);
  const damaged = (what) => new Error(`This is no whole safetensors file: ${what}.`);
  if (view.byteLength < 8) {
    throw damaged(`it has ${view.byteLength} bytes, and the header's length alone takes 8`);
  }
  const length = Number(view.getBigUint64(0, true));
  const start = 8 + length;
  if (start > view.byteLength) {
    throw damaged(`its header should end at byte ${start}, the file at ${view.byteLength}`);
  }
  let header;
  try {
    const text = new Uint8Array(view.buffer, view.byteOffset + 8, length);
    header = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(text));
  } catch (error) {
    throw damaged(`its header is not JSON (${error.message})`);
  }
  const { __metadata__: metadata = {}, ...entries } = header;
  const tensors = {};
  for (const [name, { dtype, shape, data_offsets: offsets }] of Object.entries(entries)) {
    const size = SIZES[dtype];
    if (!size) {
      throw new Error(`${name} is stored as ${dtype}; only ${Object.keys(SIZES)} are read.`);
    }
    const count = shape.reduce((product, side) => product * side, 1);
    const [from, to] = offsets.map((offset) => start + offset);
    if (!(from >= start && to <= view.byteLength)) {
      throw damaged(`${name} lies at bytes ${from} to ${to} of ${view.byteLength}`);
    }
    if (to - from !== count * size) {
      throw damaged(`${name} has ${to - from} bytes, its shape ${shape} needs ${count * size}`);
    }
    const read =
      dtype === "F16"
        ? (i) => fromHalf(view.getUint16(from + 2 * i, true))
        : (i) => view.getFloat32(from + 4 * i, true);
    tensors[name] = { shape, data: Float32Array.from({ length: count }, (_, i) => read(i)) };
  }
  return { metadata, tensors };
}

// Matrices ------------------------------------------------------------------------------

// The kernel makes tiles of so many rows and columns, and matrices are padded to them.
const TILE = { rows: 4, columns: 8 };
const PAGE = 65536; // bytes, WebAssembly's unit of memory

const padded = (size, tile) => Math.ceil(size / tile) * tile;

/** A matrix in a memory; its rows are `stride` numbers apart. Padding begins as zeros. */
class Matrix {
  constructor(memory, at, rows, columns, stride) {
    Object.assign(this, { memory, at, rows, columns, stride });
  }

  /** Row i as it stands in memory: what is written there is written to the matrix. */
  row(i) {
    const from = this.at + i * this.stride;
    return this.memory.floats.subarray(from, from + this.columns);
  }

  /** The matrix that stands inside this one; it begins at a multiple of the tile. */
  part(top, left, rows, columns) {
    const at = this.at + top * this.stride + left;
    return new Matrix(this.memory, at, rows, columns, this.stride);
  }

  /** A copy without padding. */
  copy() {
    const data = new Float32Array(this.rows * this.columns);
    for (let i = 0; i < this.rows; i += 1) data.set(this.row(i), i * this.columns);
    return { shape: [this.rows, this.columns], data };
  }
}

/** One memory for all matrices of a model, and the product that works in it. */
class Memory {
  #end = 0;

  /** @param {WebAssembly.Module?} compiled - the kernel; null for plain JavaScript. */
  constructor(compiled) {
    if (compiled) {
      this.wasm = new WebAssembly.Memory({ initial: 1 });
      const instance = new WebAssembly.Instance(compiled, { page: { memory: this.wasm } });
      this.gemm = instance.exports.gemm;
      this.floats = new Float32Array(this.wasm.buffer);
    } else {
      this.gemm = this.#plainGemm;
      this.floats = new Float32Array(PAGE / 4);
    }
  }

  /** Take room for a matrix of zeros. */
  matrix(rows, columns) {
    const stride = padded(columns, TILE.columns);
    const at = this.#end;
    this.#end += padded(rows, TILE.rows) * stride;
    this.#grow(4 * this.#end - this.floats.byteLength);
    return new Matrix(this, at, rows, columns, stride);
  }

  #grow(missing) {
    if (missing <= 0) return;
    const pages = Math.ceil(Math.max(missing, this.floats.byteLength) / PAGE);
    if (this.wasm) {
      this.wasm.grow(pages);
      this.floats = new Float32Array(this.wasm.buffer);
    } else {
      const old = this.floats;
      this.floats = new Float32Array(old.length + (pages * PAGE) / 4);
      this.floats.set(old);
    }
  }

  /** c = a b, padding included. */
  multiply(a, b, c) {
    const [rows, columns] = [padded(a.rows, TILE.rows), padded(b.columns, TILE.columns)];
    const left = [4 * a.at, 4 * a.stride, 4]; // in bytes
    const right = [4 * b.at, 4 * b.stride];
    this.gemm(rows, columns, b.rows, ...left, ...right, 4 * c.at, 4 * c.stride);
  }

  /** What gemm.wasm does, for browsers and pages that do not run it. Distances in bytes. */
  #plainGemm(m, n, k, a, aRow, aColumn, b, bRow, c, cRow) {
    const { floats } = this;
    for (let i = 0; i < m; i += 1) {
      for (let j = 0; j < n; j += 4) {
        let [s0, s1, s2, s3] = [0, 0, 0, 0];
        let left = (a + i * aRow) / 4;
        let right = b / 4 + j;
        for (let p = 0; p < k; p += 1, left += aColumn / 4, right += bRow / 4) {
          const x = floats[left];
          s0 += x * floats[right];
          s1 += x * floats[right + 1];
          s2 += x * floats[right + 2];
          s3 += x * floats[right + 3];
        }
        floats.set([s0, s1, s2, s3], (c + i * cRow) / 4 + j);
      }
    }
  }
}

let compiling = null;

/** Compile the kernel, once a page; null where WebAssembly or its SIMD is missing or barred. */
function compileKernel() {
  compiling ??= (async () => WebAssembly.compile(kernel))().catch(() => null);
  return compiling;
}

// The functions of a ViT ----------------------------------------------------------------

/**
 * Turn scores into probabilities, without overflow.
 *
 * @param {ArrayLike<number>} values
 * @returns {Float32Array} as many, none below zero, with the sum 1.
 */
export function softmax(values) {
  let top = -Infinity;
  for (let i = 0; i < values.length; i += 1) top = Math.max(top, values[i]);
  const out = new Float32Array(values.length);
  let sum = 0;
  for (let i = 0; i < out.length; i += 1) {
    out[i] = Math.exp(values[i] - top);
    sum += out[i];
  }
  for (let i = 0; i < out.length; i += 1) out[i] /= sum;
  return out;
}

/**
 * Cut an image into flattened patches in reading order, as `patches.patchify` does.
 *
 * @param {ArrayLike<number>} pixels - C*H*W values, channel by channel, row by row.
 * @param {{img_size: number[], patch_size: number[], in_chans: number}} config
 * @returns {Float32Array} N*P*Q*C values: patch by patch, in it row by row, each pixel's
 *   channels together.
 */
export function patchify(pixels, { img_size: [H, W], patch_size: [P, Q], in_chans: C }) {
  if (pixels.length !== C * H * W) {
    const needed = `${C > 1 ? `${C} × ` : ""}${H} × ${W} = ${C * H * W}`;
    throw new RangeError(`There are ${pixels.length} pixel values; this model reads ${needed}.`);
  }
  const patches = new Float32Array(C * H * W);
  let at = 0;
  for (let top = 0; top < H; top += P) {
    for (let left = 0; left < W; left += Q) {
      for (let y = top; y < top + P; y += 1) {
        for (let x = left; x < left + Q; x += 1) {
          for (let c = 0; c < C; c += 1, at += 1) patches[at] = pixels[(c * H + y) * W + x];
        }
      }
    }
  }
  return patches;
}

// erf and its slope stand in tables, at steps so small that the next two terms of Taylor's
// series bring the error below 1e-9. At the nodes erf comes from its own series
// (Abramowitz & Stegun 1964, 7.1.6), whose terms are all positive.
const NODES = 64; // to the unit
const LAST = 6; // erf(6) is 1 in double precision
const erfs = new Float64Array(LAST * NODES + 1);
const slopes = new Float64Array(LAST * NODES + 1);
for (let i = 0; i < erfs.length; i += 1) {
  const z = i / NODES;
  slopes[i] = (2 / Math.sqrt(Math.PI)) * Math.exp(-z * z);
  for (let n = 0, term = z; term > 1e-17 * erfs[i]; n += 1, term *= (2 * z * z) / (2 * n + 1)) {
    erfs[i] += term;
  }
  erfs[i] *= slopes[i];
}

function erf(x) {
  const size = Math.abs(x);
  if (size >= LAST) return Math.sign(x);
  const i = Math.round(size * NODES);
  const z = i / NODES;
  const d = size - z;
  const value = erfs[i] + slopes[i] * d * (1 - d * (z - (d * (2 * z * z - 1)) / 3));
  return x < 0 ? -value : value;
}

const gelu = (x) => 0.5 * x * (1 + erf(x * Math.SQRT1_2));

/** LayerNorm of one token; `to` may be `from`. */
function normalise(from, { weight, bias, eps }, to) {
  let mean = 0;
  for (const value of from) mean += value;
  mean /= from.length;
  let variance = 0;
  for (const value of from) variance += (value - mean) ** 2;
  const scale = 1 / Math.sqrt(variance / from.length + eps);
  for (let i = 0; i < from.length; i += 1) to[i] = (from[i] - mean) * scale * weight[i] + bias[i];
}

// The model -----------------------------------------------------------------------------

// What the options may be for this engine; sin-cos positions stand in the file as well.
const SUPPORTED = {
  pool: ["cls", "mean"],
  positions: ["learned", "sincos2d", "none"],
  norm: ["pre", "post"],
  activation: ["gelu"],
  layer_scale: [null],
};

class ViT {
  #tensors;
  #memory;
  #embedding;
  #blocks;
  #norm;
  // Where the numbers of one forward pass stand.
  #patches;
  #embedded;
  #x; // the residual stream
  #normed;
  #qkv;
  #keys; // transposed, head under head
  #weights; // attention's, head under head
  #mixed;
  #hidden;
  #branch;

  constructor({ metadata, tensors }, compiled) {
    if (!metadata.config) {
      throw new Error("The file does not say which model its weights make: no config in it.");
    }
    const c = JSON.parse(metadata.config);
    for (const [name, values] of Object.entries(SUPPORTED)) {
      if (!values.includes(c[name])) {
        const [given, known] = [JSON.stringify(c[name]), JSON.stringify(values)];
        throw new Error(`${name} is ${given} in the file; this engine runs ${known}.`);
      }
    }
    if (!c.num_classes) throw new Error("num_classes is 0 in the file: there is no head.");
    const [rows, columns] = [0, 1].map((axis) => c.img_size[axis] / c.patch_size[axis]);
    const N = rows * columns;
    const T = N + Number(c.class_token);
    const D = c.embed_dim;
    const [P, Q] = c.patch_size;
    this.config = c;
    this.grid = { rows, columns, tokens: T };
    /** Whether the WebAssembly kernel runs, and not plain JavaScript. */
    this.simd = compiled !== null;
    this.#tensors = tensors;
    const memory = new Memory(compiled);
    this.#memory = memory;

    // A head's queries, keys and values each begin at a tile's edge, so that the kernel
    // can take a head alone. Number d of D stands at `spread(d)`, all D within `wide`.
    const width = D / c.num_heads;
    const step = padded(width, TILE.columns);
    const wide = c.num_heads * step;
    const spread = (d) => Math.floor(d / width) * step + (d % width);
    // The file's filters are (C, P, Q), patches are (P, Q, C).
    const C = c.in_chans;
    const unfold = (i) => (i % (P * Q)) * C + Math.floor(i / (P * Q));
    this.#embedding = this.#linear("patch_embed.proj", [D, C, P, Q], { from: unfold });
    const hidden = this.tensor("blocks.0.mlp.fc1.weight").shape[0]; // mlp_ratio * D, rounded
    this.#blocks = Array.from({ length: c.depth }, (_, i) => ({
      norm1: this.#layerNorm(`blocks.${i}.norm1`),
      qkv: this.#linear(`blocks.${i}.attn.qkv`, [3 * D, D], {
        bias: c.qkv_bias,
        to: (d) => Math.floor(d / D) * wide + spread(d % D),
        outputs: 3 * wide,
      }),
      proj: this.#linear(`blocks.${i}.attn.proj`, [D, D], { from: spread, inputs: wide }),
      norm2: this.#layerNorm(`blocks.${i}.norm2`),
      fc1: this.#linear(`blocks.${i}.mlp.fc1`, [hidden, D]),
      fc2: this.#linear(`blocks.${i}.mlp.fc2`, [D, hidden]),
    }));
    this.#norm = c.final_norm ? this.#layerNorm("norm") : null;
    if (c.class_token) this.tensor("cls_token", [1, 1, D]);
    if (c.positions !== "none") this.tensor("pos_embed", [1, T, D]);
    this.tensor("head.weight", [c.num_classes, D]);
    this.tensor("head.bias", [c.num_classes]);

    const head = padded(T, TILE.rows); // a head's queries, among the rows of #weights
    this.#patches = memory.matrix(N, P * Q * C);
    this.#embedded = memory.matrix(N, D);
    this.#x = memory.matrix(T, D);
    this.#normed = memory.matrix(T, D);
    this.#qkv = memory.matrix(T, 3 * wide);
    this.#keys = memory.matrix(wide, T);
    this.#weights = memory.matrix(c.num_heads * head, T);
    this.#mixed = memory.matrix(T, wide);
    this.#hidden = memory.matrix(T, hidden);
    this.#branch = memory.matrix(T, D);
  }

  /**
   * A parameter as it stands in the file.
   *
   * @param {string} name - such as "pos_embed" or "blocks.0.attn.qkv.weight".
   * @param {number[]?} shape - what its shape must be, if that matters.
   * @returns {{shape: number[], data: Float32Array}}
   */
  tensor(name, shape = null) {
    const tensor = this.#tensors[name];
    if (!tensor) throw new Error(`The file has no ${name}.`);
    if (shape && `${tensor.shape}` !== `${shape}`) {
      throw new Error(`${name} has the shape ${tensor.shape}; its config asks for ${shape}.`);
    }
    return tensor;
  }

  /**
   * Run the model on one image.
   *
   * @param {ArrayLike<number>} pixels - C*H*W values from 0 to 1, row by row.
   * @param {object} [options]
   * @param {boolean} [options.positions] - false leaves the position table out.
   * @param {ArrayLike<number>?} [options.order] - patch order[i] stands at place i, as if
   *   the image's patches had been shuffled.
   * @param {boolean} [options.record] - whether to keep every intermediate.
   * @returns {{logits: Float32Array, probabilities: Float32Array, attention: Float32Array[],
   *   record: Object<string, {shape: number[], data: Float32Array}>?}} K logits and
   *   probabilities; of each block A*T*T attention weights; the intermediates under the
   *   names that `VisionTransformer.intermediates` gives them, without its batch axis.
   * @throws {RangeError} if the pixels are too few or too many, or `order` is no order.
   */
  forward(pixels, { positions = true, order = null, record = false } = {}) {
    const kept = record ? {} : null;
    const keep = (name, value) => {
      if (kept) kept[name] = value instanceof Matrix ? value.copy() : value;
    };
    this.#embed(pixels, positions, order, keep);
    const attention = this.#blocks.map((block, i) =>
      this.#encode(block, (name, value) => keep(`blocks.${i}.${name}`, value)),
    );
    if (this.#norm) this.#normaliseRows(this.#x, this.#norm, this.#x);
    keep("norm", this.#x);
    const pooled = this.#pool();
    keep("pooled", { shape: [pooled.length], data: pooled });
    const logits = this.#classify(pooled);
    keep("logits", { shape: [logits.length], data: logits.slice() });
    return { logits, probabilities: softmax(logits), attention, record: kept };
  }

  /**
   * Read one vector of the residual stream as the head would: final norm, then head.
   *
   * @param {ArrayLike<number>} vector - D numbers.
   * @returns {Float32Array} K logits.
   */
  head(vector) {
    const D = this.config.embed_dim;
    if (vector.length !== D) {
      throw new RangeError(`The vector has ${vector.length} numbers; the model is ${D} wide.`);
    }
    const normed = Float32Array.from(vector);
    if (this.#norm) normalise(normed, this.#norm, normed);
    return this.#classify(normed);
  }

  // Parameters, placed where the forward pass wants them.

  #layerNorm(name) {
    const { embed_dim: D, layer_norm_eps: eps } = this.config;
    const [weight, bias] = ["weight", "bias"].map((part) => this.tensor(`${name}.${part}`, [D]));
    return { weight: weight.data, bias: bias.data, eps };
  }

  /**
   * A linear layer as y = x weight + bias: the transpose of what the file holds. Its input
   * i is number `from(i)` of x, its output o is number `to(o)` of y.
   */
  #linear(name, shape, options = {}) {
    const same = (i) => i;
    const [outs, ...sides] = shape;
    const ins = sides.reduce((product, side) => product * side);
    const { from = same, inputs = ins, to = same, outputs = outs } = options;
    const { data } = this.tensor(`${name}.weight`, shape);
    const weight = this.#memory.matrix(inputs, outputs);
    const bias = this.#memory.matrix(1, outputs);
    for (let i = 0; i < ins; i += 1) {
      const row = weight.row(from(i));
      for (let o = 0; o < outs; o += 1) row[to(o)] = data[o * ins + i];
    }
    if (options.bias ?? true) {
      const row = bias.row(0);
      this.tensor(`${name}.bias`, [outs]).data.forEach((value, o) => (row[to(o)] = value));
    }
    return { weight, bias };
  }

  // The steps of a forward pass.

  #apply({ weight, bias }, x, y) {
    this.#memory.multiply(x, weight, y);
    const shift = bias.row(0);
    for (let i = 0; i < y.rows; i += 1) {
      const row = y.row(i);
      for (let j = 0; j < row.length; j += 1) row[j] += shift[j];
    }
  }

  #normaliseRows(x, norm, y) {
    for (let i = 0; i < x.rows; i += 1) normalise(x.row(i), norm, y.row(i));
  }

  #embed(pixels, positions, order, keep) {
    const { config } = this;
    const patches = patchify(pixels, config);
    const { rows: N, columns: size } = this.#patches;
    if (order) checkOrder(order, N);
    for (let i = 0; i < N; i += 1) {
      const k = order ? order[i] : i;
      this.#patches.row(i).set(patches.subarray(k * size, (k + 1) * size));
    }
    this.#apply(this.#embedding, this.#patches, this.#embedded);
    keep("patch_embed", this.#embedded);
    const prefix = Number(config.class_token);
    if (prefix) this.#x.row(0).set(this.tensor("cls_token").data);
    for (let i = 0; i < N; i += 1) this.#x.row(prefix + i).set(this.#embedded.row(i));
    if (prefix) keep("cls", this.#x);
    if (positions && config.positions !== "none") {
      const table = this.tensor("pos_embed").data;
      for (let i = 0, at = 0; i < this.#x.rows; i += 1) {
        const row = this.#x.row(i);
        for (let j = 0; j < row.length; j += 1, at += 1) row[j] += table[at];
      }
    }
    keep("tokens", this.#x);
  }

  /** Run one block on the residual stream; the attention weights come back. */
  #encode(block, keep) {
    const x = this.#x;
    let weights;
    if (this.config.norm === "pre") {
      this.#normaliseRows(x, block.norm1, this.#normed);
      keep("norm1", this.#normed);
      weights = this.#attend(block, this.#normed, keep);
      this.#add("add1", keep);
      this.#normaliseRows(x, block.norm2, this.#normed);
      keep("norm2", this.#normed);
      this.#think(block, this.#normed, keep);
      this.#add("add2", keep);
    } else {
      weights = this.#attend(block, x, keep);
      this.#add("add1", keep);
      this.#normaliseRows(x, block.norm1, x);
      keep("norm1", x);
      this.#think(block, x, keep);
      this.#add("add2", keep);
      this.#normaliseRows(x, block.norm2, x);
      keep("norm2", x);
    }
    return weights;
  }

  #attend({ qkv, proj }, input, keep) {
    const { embed_dim: D, num_heads: A } = this.config;
    const T = input.rows;
    const width = D / A;
    this.#apply(qkv, input, this.#qkv);
    const wide = this.#mixed.columns;
    const step = wide / A;
    for (let t = 0; t < T; t += 1) {
      const row = this.#qkv.row(t);
      const { floats } = this.#memory;
      for (let d = 0, to = this.#keys.at + t; d < wide; d += 1, to += this.#keys.stride) {
        floats[to] = row[wide + d];
      }
    }
    const copy = new Float32Array(A * T * T);
    for (let a = 0; a < A; a += 1) {
      const query = this.#qkv.part(0, a * step, T, width);
      const key = this.#keys.part(a * step, 0, width, T);
      const value = this.#qkv.part(0, 2 * wide + a * step, T, width);
      const weights = this.#weights.part((a * this.#weights.rows) / A, 0, T, T);
      this.#memory.multiply(query, key, weights);
      for (let t = 0; t < T; t += 1) {
        const row = weights.row(t);
        for (let j = 0; j < T; j += 1) row[j] /= Math.sqrt(width);
        row.set(softmax(row));
        copy.set(row, (a * T + t) * T);
      }
      this.#memory.multiply(weights, value, this.#mixed.part(0, a * step, T, width));
    }
    keep("attn.weights", { shape: [A, T, T], data: copy.slice() });
    this.#apply(proj, this.#mixed, this.#branch);
    keep("attn", this.#branch);
    return copy;
  }

  #think({ fc1, fc2 }, input, keep) {
    const hidden = this.#hidden;
    this.#apply(fc1, input, hidden);
    for (let i = 0; i < hidden.rows; i += 1) {
      const row = hidden.row(i);
      for (let j = 0; j < row.length; j += 1) row[j] = gelu(row[j]);
    }
    keep("mlp.hidden", hidden);
    this.#apply(fc2, hidden, this.#branch);
    keep("mlp", this.#branch);
  }

  /** Add the branch to the residual stream. */
  #add(name, keep) {
    for (let i = 0; i < this.#x.rows; i += 1) {
      const [row, branch] = [this.#x.row(i), this.#branch.row(i)];
      for (let j = 0; j < row.length; j += 1) row[j] += branch[j];
    }
    keep(name, this.#x);
  }

  #pool() {
    const { pool, class_token: prefix } = this.config;
    if (pool === "cls") return this.#x.row(0).slice();
    const sums = new Float64Array(this.#x.columns);
    const first = Number(prefix);
    for (let i = first; i < this.#x.rows; i += 1) {
      this.#x.row(i).forEach((value, d) => (sums[d] += value));
    }
    return Float32Array.from(sums, (sum) => sum / (this.#x.rows - first));
  }

  #classify(vector) {
    const weight = this.tensor("head.weight").data;
    return this.tensor("head.bias").data.map((bias, k) =>
      vector.reduce((sum, value, d) => sum + value * weight[k * vector.length + d], bias),
    );
  }
}

function checkOrder(order, N) {
  if (order.length !== N) {
    throw new RangeError(`The order has ${order.length} places; the image has ${N} patches.`);
  }
  const places = new Map();
  for (let i = 0; i < N; i += 1) {
    const k = order[i];
    if (!(Number.isInteger(k) && k >= 0 && k < N)) {
      throw new RangeError(`Place ${i} of the order holds ${k}; patches are 0 to ${N - 1}.`);
    }
    if (places.has(k)) {
      throw new RangeError(`The order holds patch ${k} twice, at ${places.get(k)} and ${i}.`);
    }
    places.set(k, i);
  }
}

/**
 * Make the model that a file of weights describes.
 *
 * @param {ArrayBuffer|ArrayBufferView} bytes - a safetensors file that Python's
 *   `save_model` wrote.
 * @param {object} [options]
 * @param {boolean} [options.simd] - false leaves the WebAssembly kernel out.
 * @returns {Promise<ViT>} with `config`, `grid`, `tensor`, `forward` and `head`.
 * @throws {Error} if the file is damaged, or its model is one that this engine lacks.
 */
export async function loadViT(bytes, { simd = true } = {}) {
  return new ViT(readSafetensors(bytes), simd ? await compileKernel() : null);
}
