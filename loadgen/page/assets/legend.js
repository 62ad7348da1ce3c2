// The legend, drawn as the picture is.

import { BARS, drawCell, SIGNS, STAGES } from "./cell.js";
import { element, svg } from "./dom.js";
import { ONE_BY_ONE } from "./layout.js";
import { palette } from "./palette.js";
import { SvgPen } from "./pens.js";

const SIZE = 30;
const PLAIN = { stage: "joined", number: 7, position: -1, value: "", read: 0, patience: -1 };
const SHOWN = { acted: { acted: true }, waits: { waits: true }, reads: { read: 0.6 }, awaited: { patience: 0.6 } };

export function legend(setting) {
  if (setting.processes > ONE_BY_ONE) return legendOfTiles();
  const item = (look, words) => {
    const pen = new SvgPen();
    drawCell(pen, 0, 0, SIZE, { ...PLAIN, ...look }, palette());
    return element("li", {}, svg("svg", { width: SIZE, height: SIZE, "aria-hidden": "true" }, ...pen.nodes), element("span", { text: words }));
  };
  const signs = SIGNS.filter(([sign]) => sign !== "byzantine" || setting.cast);
  return element("ul", { class: "legend" },
    ...STAGES.map(([stage, words]) => item({ stage, position: stage === "won" ? 3 : -1 }, words)),
    ...signs.map(([sign, words]) => item(SHOWN[sign] ?? { [sign]: true }, words)));
}

// Of tiles, each of which stands for a warp or for several: their bars, from left to right.
function legendOfTiles() {
  return element("ul", { class: "legend" }, ...BARS.map(([, colour, words], at) => {
    const pen = new SvgPen();
    pen.rect(2, 2, SIZE - 4, SIZE - 4, { fill: palette().well, stroke: palette().rule, round: 3 });
    pen.rect(5 + 5 * at, 8, 4, SIZE - 12, { fill: palette()[colour] });
    return element("li", {}, svg("svg", { width: SIZE, height: SIZE, "aria-hidden": "true" }, ...pen.nodes), element("span", { text: `of its processes so many ${words}` }));
  }));
}
