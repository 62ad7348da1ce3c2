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

// Below so many pixels a process has no signs but its colours and its corner.
const SMALL = 20;

export function stageOf(marks) {
  if (marks & MARK.left) return "left";
  if (marks & MARK.won) return "won";
  if (marks & MARK.failed) return "failed";
  if (marks & MARK.limit) return "limit";
  return marks & MARK.joined ? "joined" : "absent";
}

// Draws a process into a square: `look` has its stage, number, position, what it has decided, which one of several decisions that is
// (-1: there is one alone), the share of the list that it has read, the share of its patience that is left (-1: it is not awaited),
// whether it is faulty, and the signs.
export function drawCell(pen, x, y, size, look, colours) {
  const box = size - 6;
  const [left, top] = [x + 3, y + 4];
  drawBox(pen, left, top, box, look, colours);
  const isPlain = look.stage === "left" && look.faulty;
  const ink = isPlain ? colours.ink : { won: colours["on-won"], left: colours["on-left"], absent: colours.faint }[look.stage] ?? colours.ink;
  if (look.stage === "failed" && box >= SMALL) pen.path([[left + 3, top + box - 3], [left + box - 3, top + 3]], { stroke: colours.faint, line: 1.3 });
  if (look.read > 0 && look.stage !== "left" && box >= SMALL) {
    const fill = look.stage === "won" ? colours["on-won"] : colours.frontier;
    pen.rect(left + 2, top + box - 4, round((box - 4) * look.read), 2, { fill });
  }
  drawTexts(pen, left, top, box, look, ink, colours);
  if (look.waits && box >= SMALL) pen.circle(left + box - 4.5, top + box - 6.5, size < 24 ? 1.6 : 2.4, { fill: ink });
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
  if (look.faulty) styles.left = { fill: colours.well, stroke: colours.left, line: 1.5 };
  else if (look.decision >= 0) styles.left = { fill: colours[`decided-${look.decision}`], stroke: colours[`decided-${look.decision}`] };
  pen.rect(left, top, box, box, { ...styles[look.stage], round });
  if (look.stage === "left" && !look.faulty) drawHatch(pen, left, top, box, look.decision, colours);
  if (look.givenUp) {
    for (const at of [0.3, 0.6, 0.9]) {
      pen.path([[left + 1, top + box * at], [left + box * at, top + 1]], { stroke: look.stage === "left" ? colours["on-left"] : colours.faint });
    }
  }
  if (look.patience >= 0) pen.rect(left, top, box, box, { stroke: colours.bad, line: 2, round });
  if (look.acted) pen.rect(left + 0.5, top + 0.5, box - 1, box - 1, { stroke: colours.ink, line: 1.8, round });
  if (look.chosen) pen.rect(left - 2, top - 2, box + 4, box + 4, { stroke: colours.frontier, line: 2.5, round: round + 2 });
}

// Of the second of several decisions falling lines, of all further ones rising ones too.
function drawHatch(pen, left, top, box, decision, colours) {
  const style = { stroke: colours.hatch, line: Math.max(1, box / 20) };
  for (let from = 0.25 - box; decision > 0 && from < box; from += Math.max(4, box / 5)) {
    const [x, y] = [Math.max(0, from), Math.max(0, -from)];
    const long = box - Math.max(x, y);
    pen.path([[left + x, top + y], [left + x + long, top + y + long]], style);
    if (decision > 1) pen.path([[left + x, top + box - y], [left + x + long, top + box - y - long]], style);
  }
}

function drawTexts(pen, left, top, box, look, ink, colours) {
  if (box < 19) return;
  const size = box < 26 ? 9 : box < 34 ? 11 : 13;
  // Below the position where there is little room.
  const share = look.value ? 2.3 : look.position >= 0 && box < 38 ? 1.7 : 2;
  const middle = top + box / share + size * 0.36;
  pen.text(left + box / 2, middle, String(look.number), { fill: look.stage === "failed" ? colours.soft : ink, anchor: "middle", size, weight: 600 });
  if (look.position >= 0 && box >= 28) pen.text(left + box - 3, top + 9.5, `#${look.position}`, { fill: ink, anchor: "end", size: 8.5 });
  if (look.stage === "left" && box >= 28) drawDecision(pen, left, top, box, look, ink);
}

// The value if there is room, and a tick unless others have decided otherwise or the process is faulty.
function drawDecision(pen, left, top, box, { value, decision, faulty }, ink) {
  const [x, y] = [left + box - 11, top + box - 7];
  if (decision < 0 && !faulty) pen.path([[x, y], [x + 2.5, y + 2.5], [x + 7, y - 3.5]], { stroke: ink, line: 1.6 });
  const style = { size: box < 34 ? 9 : 12, weight: 600 };
  if (value) pen.text(x - 3, y + 3, fitting(shown(value, 8), box - 22, style), { ...style, fill: ink, anchor: "end" });
}

// An entry of the list.
export function drawEntry(pen, x, y, width, { position, process, value, isByzantine, isChosen }, colours) {
  const stroke = isChosen ? colours.frontier : isByzantine ? colours.byzantine : colours.faint;
  pen.rect(x + 0.5, y + 0.5, width, 24, { fill: colours.well, stroke, line: isChosen ? 2.5 : 1, round: 4 });
  const style = { size: 12, weight: 600 };
  pen.text(x + width / 2, y + 17, fitting(shown(value, 12), width - 10, style), { ...style, fill: colours.ink, anchor: "middle" });
  if (isByzantine) pen.path([[x, y + 25], [x, y + 16], [x + 9, y + 25]], { closed: true, fill: colours.byzantine });
  pen.text(x + width / 2, y + 35, fitting(`${position}: P${process}`, width, { size: 9 }), { fill: colours.soft, size: 9, anchor: "middle" });
}

// Before the scheduled warp, and hollow before the one whose turn is next.
export function drawArrow(pen, x, middle, isLit, colours) {
  const style = isLit ? { fill: colours.ink } : { stroke: colours.soft, line: 1.2 };
  pen.path([[x, middle - 5], [x + 8, middle], [x, middle + 5]], { closed: true, ...style });
}

function drawByzantine(pen, left, top, box, colours) {
  const corner = Math.max(9, box * 0.27);
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
