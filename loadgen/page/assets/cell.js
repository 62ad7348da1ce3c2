// One process as it is drawn. Nothing is said by colour alone: each state has a shape or a sign too.

import { shown } from "./dom.js";
import { fitting } from "./pens.js";
import { MARK } from "./state.js";

// What becomes of a process, each with words for those who hear the page; the last that applies is drawn.
export const STAGES = [
  ["absent", "has not joined"],
  ["joined", "has joined"],
  ["failed", "its append lost"],
  ["limit", "its append came outside the window"],
  ["won", "its append won, at this position"],
  ["left", "has decided and left"],
];
// What may be true of it besides.
export const SIGNS = [
  ["acted", "has had its access in this phase"],
  ["waits", "an access of it waits"],
  ["reads", "has read so much of the list"],
  ["awaited", "is awaited, its patience draining"],
  ["givenUp", "is not awaited any more"],
  ["late", "is late"],
  ["accused", "is accused of an offence"],
  ["byzantine", "is Byzantine, as the scenario says"],
];

// What the bars of a tile count, from left to right, each with the colour that it has in the palette.
export const BARS = [["joined", "faint", "have joined"], ["failed", "soft", "lost"], ["won", "won", "won"], ["left", "left", "have decided and left"]];

export function stageOf(marks) {
  if (marks & MARK.left) return "left";
  if (marks & MARK.won) return "won";
  if (marks & MARK.failed) return "failed";
  if (marks & MARK.limit) return "limit";
  return marks & MARK.joined ? "joined" : "absent";
}

// Draws a process into a square: `look` has its stage, number, position, what it has decided, the share of the list that it has read, the share of its
// patience that is left (-1: it is not awaited), and the signs.
export function drawCell(pen, x, y, size, look, colours) {
  const box = size - 6;
  const [left, top] = [x + 3, y + 4];
  drawBox(pen, left, top, box, look, colours);
  const ink = { won: colours["on-won"], left: colours["on-left"], absent: colours.faint }[look.stage] ?? colours.ink;
  if (look.stage === "failed") pen.path([[left + 3, top + box - 3], [left + box - 3, top + 3]], { stroke: colours.faint, line: 1.3 });
  if (look.read > 0 && look.stage !== "left") {
    const fill = look.stage === "won" ? colours["on-won"] : colours.frontier;
    pen.rect(left + 2, top + box - 4, round((box - 4) * look.read), 2, { fill });
  }
  drawTexts(pen, left, top, box, look, ink, colours);
  if (look.waits) pen.circle(left + box - 4.5, top + box - 6.5, size < 24 ? 1.6 : 2.4, { fill: ink });
  if (look.byzantine) drawByzantine(pen, left, top, box, colours);
  if (look.patience >= 0) pen.rect(left, top - 3.5, round(box * look.patience), 2.5, { fill: colours.bad });
  if (look.accused || look.late) drawBadge(pen, left, top, size, look.accused ? "!" : "L", colours);
}

function drawBox(pen, left, top, box, look, colours) {
  const round = box < 20 ? 2.5 : 5;
  const styles = {
    absent: { fill: colours.page, stroke: colours.rule, dash: [2, 2] },
    joined: { fill: colours.page, stroke: colours.faint },
    failed: { fill: colours.well, stroke: colours.faint },
    limit: { fill: colours.well, stroke: colours.faint, line: 3 },
    won: { fill: colours.won, stroke: colours.won },
    left: { fill: colours.left, stroke: colours.left },
  };
  pen.rect(left, top, box, box, { ...styles[look.stage], round });
  if (look.givenUp) {
    for (const at of [0.3, 0.6, 0.9]) {
      pen.path([[left + 1, top + box * at], [left + box * at, top + 1]], { stroke: look.stage === "left" ? colours["on-left"] : colours.faint });
    }
  }
  if (look.patience >= 0) pen.rect(left, top, box, box, { stroke: colours.bad, line: 2, round });
  if (look.acted) pen.rect(left + 0.5, top + 0.5, box - 1, box - 1, { stroke: colours.ink, line: 1.8, round });
  if (look.chosen) pen.rect(left - 2, top - 2, box + 4, box + 4, { stroke: colours.frontier, line: 2.5, round: round + 2 });
}

function drawTexts(pen, left, top, box, look, ink, colours) {
  if (box < 19) return;
  const size = box < 26 ? 9 : box < 34 ? 11 : 13;
  const middle = top + box / (look.value ? 2.3 : 2) + size * 0.36;
  pen.text(left + box / 2, middle, String(look.number), { fill: look.stage === "failed" ? colours.soft : ink, anchor: "middle", size, weight: 600 });
  if (look.position >= 0 && box >= 28) pen.text(left + box - 3, top + 9.5, `#${look.position}`, { fill: ink, anchor: "end", size: 8.5 });
  if (look.stage === "left" && box >= 28) drawDecision(pen, left, top, box, look.value, ink);
}

// A tick, and the value if there is room.
function drawDecision(pen, left, top, box, value, ink) {
  const [x, y] = [left + box - 11, top + box - 7];
  pen.path([[x, y], [x + 2.5, y + 2.5], [x + 7, y - 3.5]], { stroke: ink, line: 1.6 });
  const style = { size: box < 34 ? 8.5 : 11, weight: 600 };
  if (value) pen.text(x - 3, y + 3, fitting(shown(value, 8), box - 22, style), { ...style, fill: ink, anchor: "end" });
}

function drawByzantine(pen, left, top, box, colours) {
  const corner = Math.max(7, box * 0.27);
  const [x, y] = [left - 1, top + box + 1];
  pen.path([[x, y], [x, y - corner], [x + corner, y]], { closed: true, fill: colours.byzantine, stroke: colours.page });
}

function drawBadge(pen, left, top, size, sign, colours) {
  const radius = size < 24 ? 4 : 5.5;
  const [x, y] = [left + radius - 2, top + radius - 2.5];
  pen.circle(x, y, radius, { fill: colours.bad, stroke: colours.page });
  pen.text(x, y + radius * 0.62, sign, { fill: colours.page, anchor: "middle", size: radius * 1.7, weight: 700 });
}

function round(number) {
  return Math.round(number * 10) / 10;
}
