// Prepare a drawing as MNIST's digits were (LeCun, Cortes and Burges, "The MNIST database
// of handwritten digits"). Python: draw_digit.as_mnist.

const FIELD = 28; // pixels, a side of the image
const BOX = 20; // pixels, the longer side of the digit in it

/** How much of each input pixel goes into each output pixel along one side: a triangle
 *  over one pixel of the coarser grid to either side, as Pillow's BILINEAR has it. */
function resizing(from, to) {
  const step = from / to;
  const reach = Math.max(1, step);
  return Array.from({ length: to }, (_, o) => {
    const centre = (o + 0.5) * step;
    const weights = Array.from({ length: from }, (_, i) =>
      Math.max(0, 1 - Math.abs(i + 0.5 - centre) / reach),
    );
    const sum = weights.reduce((total, weight) => total + weight);
    return weights.map((weight) => weight / sum);
  });
}

/** The smallest box that holds all ink; null where there is none. */
function inkBox(pixels) {
  const box = { top: FIELD, left: FIELD, bottom: 0, right: 0 };
  pixels.forEach((ink, i) => {
    if (!ink) return;
    const [y, x] = [Math.floor(i / FIELD), i % FIELD];
    box.top = Math.min(box.top, y);
    box.left = Math.min(box.left, x);
    box.bottom = Math.max(box.bottom, y + 1);
    box.right = Math.max(box.right, x + 1);
  });
  return box.bottom ? box : null;
}

/**
 * Scale a drawing so that its ink just fits a box of 20 × 20 pixels, and move its centre of
 * mass to the centre of the image, as far as the ink stays inside.
 *
 * @param {ArrayLike<number>} pixels - 28*28 grey values, 0 (paper) to 255, row by row.
 * @returns {Uint8Array} as many; without ink all 0.
 */
export function asMnist(pixels) {
  const result = new Uint8Array(FIELD * FIELD);
  const box = inkBox(pixels);
  if (!box) return result;
  const [height, width] = [box.bottom - box.top, box.right - box.left];
  const scale = BOX / Math.max(height, width);
  const rows = resizing(height, Math.max(1, Math.round(height * scale)));
  const columns = resizing(width, Math.max(1, Math.round(width * scale)));
  const mass = { all: 0, y: 0, x: 0 };
  const scaled = rows.map((down, y) =>
    columns.map((across, x) => {
      let sum = 0;
      down.forEach((weight, i) => {
        if (!weight) return;
        const start = (box.top + i) * FIELD + box.left;
        across.forEach((share, j) => (sum += weight * share * pixels[start + j]));
      });
      const ink = Math.round(sum);
      mass.all += ink;
      mass.y += ink * y;
      mass.x += ink * x;
      return ink;
    }),
  );
  const place = (moment, size) => {
    const start = Math.round(FIELD / 2 - moment / mass.all);
    return Math.max(0, Math.min(FIELD - size, start));
  };
  const [top, left] = [place(mass.y, rows.length), place(mass.x, columns.length)];
  scaled.forEach((row, y) => result.set(row, (top + y) * FIELD + left));
  return result;
}
