// The legend, drawn as the picture is.

import { BARS, drawArrow, drawCell, drawEntry, SIGNS, STAGES } from "./cell.js";
import { element, svg } from "./dom.js";
import { ONE_BY_ONE } from "./layout.js";
import { palette } from "./palette.js";
import { SvgPen } from "./pens.js";

const SIZE = 36;
const PLAIN = { stage: "joined", number: 7, position: -1, value: "", decision: -1, read: 0, patience: -1 };
const SHOWN = { acted: { acted: true }, waits: { waits: true }, reads: { read: 0.6 }, awaited: { patience: 0.6 } };

export function legend(setting) {
  if (setting.processes > ONE_BY_ONE) return legendOfTiles();
  const item = (look, words) => drawn((pen, colours) => drawCell(pen, 0, 0, SIZE, { ...PLAIN, ...look }, colours), words);
  const arrow = (isLit) => (pen, colours) => drawArrow(pen, SIZE / 2 - 4, SIZE / 2, isLit, colours);
  const entry = (pen, colours) => drawEntry(pen, 0, 0, SIZE - 1, { position: 4, process: 3, value: "a" }, colours);
  const signs = SIGNS.filter(([sign]) => sign !== "byzantine" || setting.cast);
  return element("ul", { class: "legend" },
    ...STAGES.map(([stage, words]) => item({ stage, position: stage === "won" ? 3 : -1 }, words)),
    item({ stage: "left", decision: 1, value: "b" }, "has decided otherwise than others"),
    ...signs.map(([sign, words]) => item(SHOWN[sign] ?? { [sign]: true }, words)),
    drawn(arrow(true), "the scheduled warp"), drawn(arrow(false), "the warp that is next"), drawn(entry, "entry 4 of the list, added by process 3"));
}

function drawn(draw, words) {
  const pen = new SvgPen();
  draw(pen, palette());
  return element("li", {}, svg("svg", { width: SIZE, height: SIZE, "aria-hidden": "true" }, ...pen.nodes), element("span", { text: words }));
}

// Of tiles, each of which stands for a warp or for several: their bars, from left to right.
function legendOfTiles() {
  return element("ul", { class: "legend" }, ...BARS.map(([, colour, words], at) => drawn((pen, colours) => {
    pen.rect(2, 2, SIZE - 4, SIZE - 4, { fill: colours.well, stroke: colours.rule, round: 3 });
    pen.rect(6 + 6 * at, 8, 5, SIZE - 12, { fill: colours[colour] });
  }, `of its processes so many ${words}`)));
}
