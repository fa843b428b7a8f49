// What the widgets share: the frame that starts, names and ends them, and their controls.
// Everything is plain DOM. Each part is { el, … } with the methods that change it.
import css from "./widgets.css";

const words = {
  failed: "This interactive figure could not start.",
  less: "less",
  more: "more",
  digit: "Digit",
};

// The frame -------------------------------------------------------------------------------

/**
 * Make an anywidget of a function that draws.
 *
 * @param {string} label - names the widget for screen readers.
 * @param {function} draw - gets { state, root, say, theme, life } once a view; may be async.
 *   state: the traits, see State. root: where to append. say(text): write the read-out
 *   under the widget and announce it. theme: { dark, on(listener) }. life: an AbortSignal
 *   that ends with the view; give it to what must end too.
 * @returns {{render: function}} the default export of a widget's module.
 */
export function widget(label, draw) {
  return {
    async render({ model, el, signal }) {
      const life = new AbortController();
      const end = () => life.abort();
      signal?.addEventListener("abort", end, { once: true }); // older hosts pass none
      const root = h("div", { class: "vit-widget", role: "group", lang: "en", dir: "ltr" });
      root.setAttribute("aria-label", label);
      const body = h("div", { class: "vit-body" });
      const readOut = spoken(life.signal);
      root.append(h("style", {}, css), body, ...readOut.els);
      el.append(root);
      life.signal.addEventListener("abort", () => root.remove());
      try {
        await draw({
          state: new State(model, life.signal),
          root: body,
          say: readOut.say,
          theme: watchTheme(root, life.signal),
          life: life.signal,
        });
      } catch (error) {
        console.warn(error);
        body.replaceChildren(
          h("p", { class: "vit-failed", role: "alert" }, `${words.failed} ${error.message}`),
        );
      }
      return end;
    },
  };
}

/** The traits of a widget, whatever the host makes of them. */
export class State {
  #model;
  #life;

  constructor(model, life) {
    this.#model = model;
    this.#life = life;
  }

  get(name) {
    return this.#model.get(name);
  }

  /** Set traits and tell the kernel, if there is one; some hosts have none and throw. */
  set(traits) {
    for (const [name, value] of Object.entries(traits)) this.#model.set(name, value);
    try {
      this.#model.save_changes();
    } catch {
      // The page goes on without a kernel.
    }
  }

  /** Call a listener, without arguments, once after any of the traits have changed. */
  on(names, listener) {
    let waiting = false;
    const heard = () => {
      if (waiting || this.#life.aborted) return;
      waiting = true; // traits that change together are seen together
      queueMicrotask(() => {
        waiting = false;
        if (!this.#life.aborted) listener();
      });
    };
    for (const name of names) {
      this.#model.on(`change:${name}`, heard);
      this.#life.addEventListener("abort", () => {
        try {
          this.#model.off(`change:${name}`, heard);
        } catch {
          // This host cannot; the listener does nothing any more.
        }
      });
    }
  }
}

/** A read-out that everybody sees, and its copy that is announced when it has settled. */
function spoken(life) {
  const seen = h("p", { class: "vit-readout" });
  const heard = h("p", { class: "vit-unseen", role: "status" });
  let settling = 0;
  const say = (text) => {
    seen.textContent = text;
    clearTimeout(settling);
    settling = setTimeout(() => (heard.textContent = text), 400);
  };
  seen.setAttribute("aria-hidden", "true");
  life.addEventListener("abort", () => clearTimeout(settling));
  return { els: [seen, heard], say };
}

/** Follow the ground that the widget stands on, dark or light, in any host. */
function watchTheme(root, life) {
  const listeners = new Set();
  const theme = { dark: false, on: (listener) => listeners.add(listener) };
  const look = () => {
    const dark = groundIsDark(root);
    if (dark === theme.dark) return;
    theme.dark = dark;
    root.dataset.theme = dark ? "dark" : "light";
    for (const listener of listeners) listener();
  };
  look();
  const media = matchMedia("(prefers-color-scheme: dark)");
  media.addEventListener("change", look, { signal: life });
  const attributes = {
    attributes: true,
    attributeFilter: ["class", "style", "theme", "data-theme", "data-jp-theme-light"],
  };
  const observer = new MutationObserver(look);
  for (const element of [document.documentElement, document.body]) {
    observer.observe(element, attributes);
  }
  // A view may be made before it stands in the page, and only then has a ground.
  const sizes = new ResizeObserver(look);
  sizes.observe(root);
  life.addEventListener("abort", () => {
    observer.disconnect();
    sizes.disconnect();
  });
  return theme;
}

function groundIsDark(element) {
  const above = (inner) => inner.parentElement ?? inner.getRootNode().host;
  for (let at = above(element); at; at = above(at)) {
    const [red, green, blue, alpha = 1] =
      getComputedStyle(at).backgroundColor.match(/[\d.]+/g)?.map(Number) ?? [0, 0, 0, 0];
    if (alpha > 0.5) return 0.2126 * red + 0.7152 * green + 0.0722 * blue < 128;
  }
  const asked = document.documentElement.dataset.theme;
  return !asked && matchMedia("(prefers-color-scheme: dark)").matches;
}

// Elements and numbers --------------------------------------------------------------------

/** Make an element; attributes that are functions are listeners ("onclick"). */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

/** Write a whole number with thousands apart: 2,517,630,976. */
export const whole = (value) => Math.round(value).toLocaleString("en-US");

/** Write a number with as many decimals as asked for, and a true minus sign. */
export const decimal = (value, places = 2) => {
  const text = value.toFixed(places);
  return Number(text) === 0 ? text.replace("-", "") : text.replace("-", "−");
};

/** Write how many times as much: "16 ×", "0.25 ×". */
export const times = (ratio) =>
  `${ratio >= 10 ? whole(ratio) : Number(ratio.toPrecision(2))} ×`;

/** Write a share of one as a percentage. */
export const percent = (value, places = 1) => `${(100 * value).toFixed(places)} %`;

/** Name a digit in a sentence: "a 7", but "an 8". */
export const aDigit = (label) => `${Number(label) === 8 ? "an" : "a"} ${label}`;

let ids = 0;
/** An id that nobody else on the page has. */
export const freshId = () => `vit-${Math.random().toString(36).slice(2, 8)}-${(ids += 1)}`;

// Controls --------------------------------------------------------------------------------

/** A button with words on it. */
export function button(label, onClick) {
  return h("button", { type: "button", class: "vit-button", onclick: onClick }, label);
}

/**
 * A slider over a list of values, with a button at either end.
 *
 * @param {{label: string, values: Array, value: *, format?: function, onInput: function}}
 *   options - format writes a value; onInput gets the value that was chosen.
 */
export function slider({ label, values, value, format = String, onInput }) {
  const id = freshId();
  const input = h("input", { id, type: "range", min: 0, max: values.length - 1, step: 1 });
  const output = h("output", { for: id, class: "vit-value" });
  let at = -1;
  const show = (index) => {
    at = index;
    input.value = index;
    const text = format(values[index]);
    input.setAttribute("aria-valuetext", text);
    output.textContent = text;
    less.disabled = index === 0;
    more.disabled = index === values.length - 1;
  };
  const choose = (index) => {
    if (index === at || !(index in values)) return;
    show(index);
    onInput(values[index]);
  };
  const step = (sign, by, name) =>
    h(
      "button",
      {
        type: "button",
        class: "vit-step",
        "aria-label": `${label}: ${name}`,
        onclick: () => choose(at + by),
      },
      sign,
    );
  const less = step("−", -1, words.less);
  const more = step("+", 1, words.more);
  input.addEventListener("input", () => choose(Number(input.value)));
  const el = h(
    "div",
    { class: "vit-slider" },
    h("label", { for: id }, label),
    h("span", { class: "vit-track" }, less, input, more),
    output,
  );
  const set = (next) => {
    const index = values.indexOf(next);
    if (index < 0) throw new Error(`${label}: ${next} is none of ${values.join(", ")}.`);
    show(index);
  };
  set(value);
  return { el, set };
}

/**
 * A choice of one among a few, side by side.
 *
 * @param {{label: string, options: Array<{value: *, label: string}>, value: *,
 *   onInput: function}} options
 */
export function choice({ label, options, value, onInput }) {
  const name = freshId();
  const inputs = options.map((option, index) => {
    const input = h("input", { type: "radio", name, value: index });
    input.addEventListener("change", () => onInput(option.value));
    return input;
  });
  const el = h(
    "fieldset",
    { class: "vit-choice" },
    h("legend", {}, label),
    ...options.map((option, index) => h("label", {}, inputs[index], h("span", {}, option.label))),
  );
  const set = (next) => {
    options.forEach((option, index) => (inputs[index].checked = option.value === next));
  };
  set(value);
  return { el, set };
}

/**
 * A choice among pictures of digits, as the trait `digits` holds them.
 *
 * @param {{digits: Array, value: number, onInput: function}} options - onInput gets the
 *   number of the digit that was chosen.
 * @returns {Promise<object>} el and set, as `choice` has them; pictures, the ImageData of
 *   each digit; pixels, what a model reads: 784 values 0..1 of each.
 */
export async function digitChoice({ digits, value, onInput }) {
  const pictures = await Promise.all(digits.map(readPicture));
  const options = digits.map(({ label }, index) => {
    const canvas = h("canvas", { class: "vit-thumbnail" }, `${label}`);
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", label);
    paint(canvas, pictures[index]);
    return { value: index, label: canvas };
  });
  const { el, set } = choice({ label: words.digit, options, value, onInput });
  el.classList.add("vit-digits");
  return { el, set, pictures, pixels: pictures.map(greyValues) };
}

/** A switch. */
export function toggle({ label, value, onInput }) {
  const input = h("input", { type: "checkbox", role: "switch" });
  input.addEventListener("change", () => onInput(input.checked));
  const set = (next) => (input.checked = next);
  set(value);
  return { el: h("label", { class: "vit-toggle" }, input, h("span", {}, label)), set };
}

// Read-outs -------------------------------------------------------------------------------

/**
 * Named values, side by side: { tokens: "tokens", … } → set({ tokens: "196" }).
 * A value may be text, or [text, a smaller remark].
 */
export function facts(labels) {
  const values = {};
  const el = h("dl", { class: "vit-facts" });
  for (const [key, label] of Object.entries(labels)) {
    values[key] = h("dd");
    el.append(h("div", {}, h("dt", {}, label), values[key]));
  }
  const set = (texts) => {
    for (const [key, text] of Object.entries(texts)) {
      const [main, remark] = [text].flat();
      values[key].replaceChildren(main, ...(remark ? [h("small", {}, remark)] : []));
    }
  };
  return { el, set };
}

/**
 * Horizontal bars that are a table too: a row a label, its value in words.
 *
 * @param {{caption: string, labels: string[], format?: function, max?: number}} options -
 *   max: the value that fills a bar.
 */
export function bars({ caption, labels, format = percent, max = 1 }) {
  const rows = labels.map((label) => {
    const bar = h("span", { class: "vit-bar" });
    const value = h("span", { class: "vit-bar-value" });
    const row = h("tr", {}, h("th", { scope: "row" }, label), h("td", {}, bar, value));
    return { bar, value, row };
  });
  const el = h(
    "table",
    { class: "vit-bars" },
    h("caption", {}, caption),
    h("tbody", {}, ...rows.map(({ row }) => row)),
  );
  const set = (values, best = values.indexOf(Math.max(...values))) => {
    rows.forEach(({ bar, value, row }, index) => {
      bar.style.setProperty("--share", Math.max(0, Math.min(1, values[index] / max)));
      value.textContent = format(values[index]);
      row.classList.toggle("vit-best", index === best);
    });
  };
  return { el, set };
}

/**
 * What the colours of a heat map mean: the colours from low to high, with words.
 * `over` names what lies above the scale, where the map marks it.
 */
export function legend({ label, low, high, scale = "sequential", over = null }) {
  const texts = [h("span", {}, low), h("span", {}, high)];
  const strip = h("span", { class: `vit-scale vit-scale-${scale}`, "aria-hidden": "true" });
  const el = h("p", { class: "vit-legend" }, h("span", { class: "vit-legend-name" }, label));
  el.append(h("span", { class: "vit-legend-scale" }, texts[0], strip, texts[1]));
  if (over) {
    const sample = h("span", { class: "vit-swatch vit-over", "aria-hidden": "true" });
    el.lastChild.append(sample, over);
  }
  const set = (from, to) => {
    texts[0].textContent = from;
    texts[1].textContent = to;
  };
  return { el, set };
}

/** A table of text: set(rows), each a list whose first entry names the row. */
export function table({ caption, columns }) {
  const body = h("tbody");
  const el = h(
    "div",
    { class: "vit-table", tabindex: 0, role: "group", "aria-label": caption },
    h(
      "table",
      {},
      h("caption", {}, caption),
      h("thead", {}, h("tr", {}, ...columns.map((name) => h("th", { scope: "col" }, name)))),
      body,
    ),
  );
  const set = (rows) => {
    body.replaceChildren(
      ...rows.map(([name, ...cells]) =>
        h("tr", {}, h("th", { scope: "row" }, name), ...cells.map((cell) => h("td", {}, cell))),
      ),
    );
  };
  return { el, set };
}

// Pictures --------------------------------------------------------------------------------

/**
 * Read a picture trait: { height, width, source } with a data URI.
 *
 * @returns {Promise<ImageData>} its pixels, RGBA.
 */
export async function readPicture({ height, width, source }) {
  const image = new Image();
  image.src = source;
  await image.decode();
  const context = h("canvas", { width, height }).getContext("2d", { willReadFrequently: true });
  context.drawImage(image, 0, 0);
  return context.getImageData(0, 0, width, height);
}

/** Grey values 0..1, row by row, as pixels. */
export function greyPicture(values, height, width) {
  const picture = new ImageData(width, height);
  for (let i = 0; i < height * width; i += 1) {
    const grey = Math.round(255 * Math.max(0, Math.min(1, values[i])));
    picture.data.set([grey, grey, grey, 255], 4 * i);
  }
  return picture;
}

/** The grey values 0..1 of pixels, row by row. */
export function greyValues({ data }) {
  return Float32Array.from({ length: data.length / 4 }, (_, i) => data[4 * i] / 255);
}

/** Put pixels on a canvas, one to one; style sheets scale it. */
export function paint(canvas, picture) {
  if (canvas.width !== picture.width) canvas.width = picture.width;
  if (canvas.height !== picture.height) canvas.height = picture.height;
  canvas.getContext("2d").putImageData(picture, 0, 0);
}

/** The colour of a number between -1 and 1: blue below zero, orange above, RGB. */
export function diverging(value, dark) {
  const ground = dark ? [20, 24, 27] : [255, 255, 255];
  const [below, above] = dark
    ? [[138, 152, 232], [240, 147, 91]]
    : [[62, 80, 158], [200, 85, 27]];
  const end = value < 0 ? below : above;
  const share = Math.min(1, Math.abs(value));
  return ground.map((from, i) => Math.round(from + share * (end[i] - from)));
}

/** Black or white, whichever reads better on a ground of this colour, RGB. */
export function inkOn(colour) {
  const [red, green, blue] = colour.map((part) => {
    const share = part / 255; // to linear light, as WCAG 2.2 defines relative luminance
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#000" : "#fff";
}

/** Numbers as colours, `columns` in a row; `max` is the magnitude of the full colour. */
export function numberPicture(values, columns, max, dark) {
  const rows = Math.ceil(values.length / columns);
  const picture = new ImageData(columns, rows);
  values.forEach((value, i) => {
    picture.data.set([...diverging(max ? value / max : 0, dark), 255], 4 * i);
  });
  return picture;
}

/**
 * A picture cut into cells that a finger, a mouse or the arrow keys can point at.
 *
 * @param {{label: string, help?: string, rows: number, columns: number,
 *   onPoint?: function, onPick?: function}} options - onPoint gets the cell under the
 *   pointer or the keyboard's cursor, null when there is none; onPick the cell that was
 *   tapped, clicked or chosen by Enter or Space. Cells count in reading order from 0.
 */
export function board({ label, help, rows, columns, onPoint, onPick }) {
  const pixels = h("canvas", { class: "vit-pixels", "aria-hidden": "true" });
  const heatMap = h("canvas", { class: "vit-heat", "aria-hidden": "true" });
  const lines = h("div", { class: "vit-lines" });
  const inCells = h("div", { class: "vit-in-cells", "aria-hidden": "true" });
  const describedBy = help && freshId();
  const surface = h("div", {
    class: "vit-surface",
    role: "application",
    tabindex: 0,
    "aria-label": label,
    "aria-describedby": describedBy,
  });
  const el = h("div", { class: "vit-board" }, pixels, heatMap, lines, inCells, surface);
  if (help) el.append(h("p", { id: describedBy, class: "vit-unseen" }, help));
  const marks = new Map();
  let cursor = 0;

  const cellAt = ({ clientX, clientY }) => {
    const box = surface.getBoundingClientRect();
    const column = Math.floor(((clientX - box.left) / box.width) * columns);
    const row = Math.floor(((clientY - box.top) / box.height) * rows);
    const inside = row >= 0 && row < rows && column >= 0 && column < columns;
    return inside ? row * columns + column : null;
  };
  const pointAt = (cell) => {
    if (cell !== null) cursor = cell;
    onPoint?.(cell);
  };
  let hovered = null;
  surface.addEventListener("pointermove", (event) => {
    const cell = cellAt(event);
    if (cell === hovered) return;
    hovered = cell;
    pointAt(cell);
  });
  surface.addEventListener("pointerleave", () => {
    hovered = null;
    onPoint?.(surface.matches(":focus-visible") ? cursor : null);
  });
  surface.addEventListener("click", (event) => {
    const cell = cellAt(event);
    if (cell === null) return;
    cursor = cell;
    (onPick ?? onPoint)?.(cell);
  });
  surface.addEventListener("focus", () => {
    if (surface.matches(":focus-visible")) onPoint?.(cursor);
  });
  surface.addEventListener("blur", () => onPoint?.(null));
  surface.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const column = cursor % columns;
    const moves = {
      ArrowLeft: column > 0 ? -1 : 0,
      ArrowRight: column < columns - 1 ? 1 : 0,
      ArrowUp: cursor >= columns ? -columns : 0,
      ArrowDown: cursor < columns * (rows - 1) ? columns : 0,
      Home: -cursor,
      End: rows * columns - 1 - cursor,
    };
    if (event.key in moves) pointAt(cursor + moves[event.key]);
    else if (event.key === "Enter" || event.key === " ") onPick?.(cursor);
    else return;
    event.preventDefault();
  });

  return {
    el,
    surface,
    /** Change the number of cells. */
    setGrid(newRows, newColumns) {
      [rows, columns] = [newRows, newColumns];
      cursor = Math.min(cursor, rows * columns - 1);
      el.style.setProperty("--rows", rows);
      el.style.setProperty("--columns", columns);
    },
    /** Show pixels, an ImageData. */
    paint(picture, { smooth = false } = {}) {
      el.style.aspectRatio = `${picture.width} / ${picture.height}`;
      pixels.classList.toggle("vit-smooth", smooth);
      paint(pixels, picture);
    },
    /**
     * Lay values, one a cell, over the picture: `max` gets the full colour, and what is
     * above it the colour `over`. Null: none.
     */
    heat(values, { max = 1, opacity = 0.8, colour = [217, 72, 15], over = colour } = {}) {
      heatMap.hidden = values === null;
      if (values === null) return;
      const picture = new ImageData(columns, rows);
      values.forEach((value, i) => {
        const share = Math.max(0, Math.min(1, value / max));
        const shown = value > max ? over : colour;
        picture.data.set([...shown, Math.round(255 * opacity * share)], 4 * i);
      });
      paint(heatMap, picture);
    },
    /** Write a short text into the corner of each cell; it is for the eyes alone. */
    write(texts) {
      inCells.replaceChildren(...texts.map((text) => h("span", {}, text)));
    },
    /** Draw a frame round a cell, one frame a name; null takes it away. */
    mark(name, cell) {
      if (!marks.has(name)) {
        marks.set(name, h("div", { class: `vit-mark vit-mark-${name}` }));
        surface.append(marks.get(name));
      }
      const frame = marks.get(name);
      frame.hidden = cell === null;
      if (cell === null) return;
      frame.style.setProperty("--row", Math.floor(cell / columns));
      frame.style.setProperty("--column", cell % columns);
    },
    /** Where the keyboard is. */
    get cursor() {
      return cursor;
    },
    set cursor(cell) {
      cursor = cell;
    },
  };
}
