// Chapter 9: what a real pretrained ViT attends to in a photo; the rows were computed
// beforehand. Python: attention_overlay.py and attention_maps.py.
import { drawOverlay, meanRow, unpackWeights } from "./overlay.js";
import { readPicture, widget } from "./parts.js";

const words = {
  title: "Attention over a photo",
  name: (name) => `the photo ${name}`,
  note:
    "A pretrained ViT of DINOv2-small's shape, fine-tuned by its author; computed " +
    "beforehand. Weights are right to 0.001, above 0.05 to 0.004.",
};

const SIDE = 16; // patches along a side
const T = 1 + SIDE * SIDE;
const BLOCKS = 12;
const HEADS = 6;

async function draw({ state, root, say }) {
  const { name, picture, queries, blocks, trained, random } = state.get("photo");
  const [pixels, ...weights] = await Promise.all([
    readPicture(picture),
    unpackWeights(trained),
    unpackWeights(random),
  ]);
  // The rows, one after the other: [CLS] by block and head; patches by block; rollout.
  const patchesStart = BLOCKS * HEADS;
  const rolloutStart = patchesStart + blocks.length * queries.length;

  drawOverlay(
    { state, root, say },
    {
      rows: SIDE,
      columns: SIDE,
      blocks: BLOCKS,
      heads: HEADS,
      top: 0.02,
      kept: { queries, blocks },
      note: words.note,
      controls: [],
      traits: [],
      picture: () => ({ name: words.name(name), pixels, smooth: true }),
      row({ block, head, query, rollout, random: control }) {
        const all = weights[Number(control)];
        const at = (index) => all.subarray(index * T, (index + 1) * T);
        const patch = queries.indexOf(query); // -1 for [CLS]
        if (rollout) return at(rolloutStart + 1 + patch);
        if (patch >= 0) return at(patchesStart + blocks.indexOf(block) * queries.length + patch);
        if (head !== "mean") return at(block * HEADS + head);
        return meanRow(Array.from({ length: HEADS }, (_, a) => at(block * HEADS + a)));
      },
    },
  );
}

export default widget(words.title, draw);
