// The picture of a phase: the list as it fills up, and each warp a row of its processes, the scheduled one lit. On a canvas, of which
// only what has changed is drawn again; the same drawing, with another pen, is the SVG file.

import { BARS, drawArrow, drawCell, drawEntry, SIGNS, STAGES, stageOf } from "./cell.js";
import { element, grouped, shown, svg } from "./dom.js";
import { layout, ONE_BY_ONE, TILE } from "./layout.js";
import { palette } from "./palette.js";
import { CanvasPen, SvgPen } from "./pens.js";
import { MARK } from "./state.js";
import { isFaulty } from "./verdict.js";

const MARGIN = 5;
const SPOKEN = new Map([...STAGES, ...SIGNS]);

export class Picture {
  constructor(setting, { choose }) {
    this.setting = setting;
    this.choose = choose;
    this.canvas = element("canvas", { "aria-hidden": "true", on: { click: (event) => this.clicked(event) } });
    this.node = element("div", {
      class: "picture", role: "application", tabindex: "0", "aria-label": "The warps and their processes. Arrow keys choose one.",
      on: { keydown: (event) => this.pressed(event) },
    }, this.canvas);
    this.chosen = 0;
    this.width = 0;
    this.drawn = new Map();
  }

  get isGrouped() {
    return this.setting.processes > ONE_BY_ONE;
  }

  // Lays everything out for this width in pixels.
  resize(width) {
    if (Math.abs(width - this.width) < 4) return;
    this.width = width;
    this.layout = layout(this.setting, width - 2 * MARGIN);
    const scale = Math.max(1, devicePixelRatio);
    this.canvas.width = Math.ceil(width * scale);
    this.canvas.height = Math.ceil((this.layout.height + 2 * MARGIN) * scale);
    // Not an attribute: the policy allows no style in markup.
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${this.layout.height + 2 * MARGIN}px`;
    this.context = this.canvas.getContext("2d");
    this.scale = scale;
    this.forget();
  }

  // Scrolls to the warp that is lit, if it is another one and the picture is higher than its place.
  reveal(place) {
    const lane = this.layout?.lanes?.[this.moment.lit - 1];
    if (!lane || this.revealed === lane.warp || place.scrollHeight <= place.clientHeight) return;
    this.revealed = lane.warp;
    const y = this.layout.top + lane.y;
    if (y < place.scrollTop || y + lane.height > place.scrollTop + place.clientHeight) place.scrollTop = y - place.clientHeight / 2;
  }

  // Everything is drawn anew the next time.
  forget() {
    this.drawn.clear();
    this.isEmpty = true;
  }

  // Shows a moment: see `drawAll`.
  show(moment) {
    this.moment = moment;
    if (this.width === 0) return;
    const { context, scale } = this;
    context.setTransform(scale, 0, 0, scale, MARGIN * scale, MARGIN * scale);
    if (this.isEmpty) context.clearRect(-MARGIN, -MARGIN, this.width, this.layout.height + 2 * MARGIN);
    this.isEmpty = false;
    this.drawAll(new CanvasPen(context), (key, text, x, y, width, height) => {
      if (this.drawn.get(key) === text) return false;
      this.drawn.set(key, text);
      context.clearRect(x, y, width, height);
      return true;
    });
  }

  // Draws a moment: the state, entries so far, which warp is lit, which is next, in which phase, and who is awaited with how much of
  // its patience. `changed` says of each part whether it has to be drawn again, and clears its place.
  drawAll(pen, changed) {
    this.drawList(pen, changed);
    if (this.isGrouped) this.layout.tiles.forEach((tile) => this.drawTile(pen, changed, tile));
    else this.layout.lanes.forEach((lane) => this.drawLane(pen, changed, lane));
  }

  drawList(pen, changed) {
    const { state, entries, entriesBefore } = this.moment;
    const { list } = this.layout;
    const colours = palette();
    const byzantine = this.setting.cast?.byzantine ?? {};
    const all = entriesBefore + state.entries;
    const first = Math.max(0, all - list.room);
    const key = `${all} ${state.sealed} ${this.chosen}`;
    if (!changed("list", key, -MARGIN, -MARGIN, this.layout.width + 2 * MARGIN, list.height + MARGIN)) return;
    pen.text(0, 22, "list", { fill: colours.soft, size: 12 });
    pen.text(0, 36, state.sealed ? "sealed" : first > 0 ? `${first} before` : "", { fill: colours.soft, size: 10 });
    for (let place = 0; place < list.room; place += 1) {
      const position = first + place;
      const x = list.label + (place % list.across) * list.width;
      const y = 4 + Math.floor(place / list.across) * list.line;
      const entry = entries[position - entriesBefore];
      if (position < all && entry) this.drawEntry(pen, x, y, entry, byzantine[entry.process] !== undefined, colours);
      else if (!state.sealed && place < this.setting.counted_entries) {
        pen.rect(x + 0.5, y + 0.5, list.width - 5, 24, { stroke: colours.rule, dash: [2, 2], round: 4 });
      }
    }
  }

  drawEntry(pen, x, y, entry, isByzantine, colours) {
    const { position, process, phase, value } = entry;
    pen.group(`entry ${position}: ${shown(value, 40)}, of process ${process} in phase ${phase}`,
      () => drawEntry(pen, x, y, this.layout.list.width - 5, { ...entry, isByzantine, isChosen: process === this.chosen }, colours));
  }

  drawLane(pen, changed, { warp, x, y: above, width, height, members }) {
    const y = this.layout.top + above;
    const { lit, next } = this.moment;
    const colours = palette();
    const role = warp === lit ? "lit" : warp === next ? "next" : "";
    const laneKey = `lane ${warp}`;
    const background = role === "lit" ? colours.lit : colours.page;
    if (changed(laneKey, role, x, y, width, height)) {
      for (const process of members) this.drawn.delete(process);
      pen.rect(x, y, width, height, { fill: background, round: 6 });
      const middle = y + 3 + this.layout.size / 2;
      if (role) drawArrow(pen, x + 5, middle, role === "lit", colours);
      const style = { fill: role === "lit" ? colours.ink : colours.soft, size: 12, weight: role === "lit" ? 700 : 400 };
      pen.text(x + 18, middle + 4, this.layout.label < 60 ? String(warp) : `warp ${warp}`, style);
    }
    for (const process of members) this.drawProcess(pen, changed, process, background, warp === lit);
  }

  drawProcess(pen, changed, process, background, isLit) {
    const look = this.look(process, isLit);
    const { x, y } = this.layout.cells[process - 1];
    const { size, top } = this.layout;
    const key = Object.values(look).join(" ");
    if (!changed(process, key, x, top + y, size, size)) return;
    pen.group(this.sentence(process), () => {
      pen.rect(x, top + y, size, size, { fill: background });
      drawCell(pen, x, top + y, size, look, palette());
    });
  }

  // Before the picture has its size, and of tiles, patience is rounded as of the smallest cells.
  look(process, isLit) {
    const { state, phase, awaited, decided, decisions } = this.moment;
    const of = process - 1;
    const marks = state.marks[of];
    const left = awaited.get(process);
    const grain = this.layout?.size ?? 20;
    const read = state.length > 0 ? Math.min(1, state.readTo[of] / state.length) : 0;
    const value = marks & MARK.left ? decided.get(process) ?? "" : "";
    return {
      stage: stageOf(marks), number: process, value, decision: decisions.size > 1 ? Math.min(2, decisions.get(value)?.at ?? -1) : -1, position: state.position[of], read: Math.round(read * 40) / 40,
      patience: left === undefined ? -1 : Math.round(left * grain) / grain,
      acted: isLit && phase > 0 && state.acted[of] === phase, waits: state.waiting[of] > 0,
      givenUp: (marks & MARK.given_up) > 0, late: (marks & MARK.late) > 0, accused: (marks & MARK.accused) > 0,
      byzantine: this.setting.cast?.byzantine?.[process] !== undefined, faulty: isFaulty(this.setting, state, process), chosen: process === this.chosen,
    };
  }

  // A process in words, for those who hear the page.
  sentence(process) {
    const { names, cast } = this.setting;
    const look = this.look(process, this.warpOf(process) === this.moment.lit);
    const said = [`process ${process}${names.length > 0 ? ` (${shown(names[process - 1])})` : ""}`];
    if (look.value) said.push(`decided ${shown(look.value, 40)}`);
    said.push(look.position >= 0 && look.stage === "won" ? `its append won, at position ${look.position}` : SPOKEN.get(look.stage));
    for (const [sign, words] of SIGNS) {
      const is = sign === "reads" ? false : sign === "awaited" ? look.patience >= 0 : look[sign];
      if (is && sign !== "byzantine") said.push(words);
    }
    const readTo = this.moment.state.readTo[process - 1];
    if (readTo > 0) said.push(`has read ${readTo} of ${this.moment.state.length} entries`);
    if (look.byzantine) said.push(`plays ${shown(cast.byzantine[process], 60)}`);
    return said.join(", ");
  }

  warpOf(process) {
    return Math.ceil(process / this.setting.warp_size);
  }

  drawTile(pen, changed, { first, last, x, y: above }) {
    const { state, lit } = this.moment;
    const y = this.layout.top + above;
    const counts = state.countsOf(first, last);
    const isLit = lit >= first && lit <= last;
    const isChosen = this.chosen > 0 && this.warpOf(this.chosen) >= first && this.warpOf(this.chosen) <= last;
    const key = `${Object.values(counts)} ${isLit} ${isChosen}`;
    if (!changed(`tile ${first}`, key, x, y, TILE.width, TILE.height)) return;
    pen.group(tileSentence(first, last, counts), () => this.drawBars(pen, x, y, counts, isLit, isChosen));
  }

  // Bars from below, one for each of what is counted.
  drawBars(pen, x, y, counts, isLit, isChosen) {
    const colours = palette();
    const [width, height] = [TILE.width - 4, TILE.height - 4];
    pen.rect(x + 1.5, y + 1.5, width, height, {
      fill: isLit ? colours.lit : colours.well, stroke: isChosen ? colours.frontier : isLit ? colours.ink : colours.rule, line: isLit || isChosen ? 2 : 1, round: 3,
    });
    const wide = (width - 6) / BARS.length;
    BARS.forEach(([name, colour], at) => {
      const tall = Math.round((height - 4) * Math.min(1, counts[name] / counts.all) * 10) / 10;
      if (tall > 0) pen.rect(x + 4.5 + at * wide, y + height - 0.5 - tall, wide - 1, tall, { fill: colours[colour] });
    });
  }

  clicked({ offsetX, offsetY }) {
    const [x, y] = [offsetX - MARGIN, offsetY - MARGIN - this.layout.top];
    const { cells, size, tiles } = this.layout;
    if (tiles) {
      const tile = tiles.find((it) => x >= it.x && x < it.x + TILE.width && y >= it.y && y < it.y + TILE.height);
      if (tile) this.pick((tile.first - 1) * this.setting.warp_size + 1);
      return;
    }
    const of = cells.findIndex((cell) => x >= cell.x && x < cell.x + size && y >= cell.y && y < cell.y + size);
    if (of >= 0) this.pick(of + 1);
    else this.pickEntry(offsetX - MARGIN, offsetY - MARGIN);
  }

  pickEntry(x, y) {
    const { list, top } = this.layout;
    if (y >= top || x < list.label) return;
    const { state, entries, entriesBefore } = this.moment;
    const all = entriesBefore + state.entries;
    const place = Math.floor((y - 4) / list.line) * list.across + Math.floor((x - list.label) / list.width);
    const position = Math.max(0, all - list.room) + place;
    const entry = position < all ? entries[position - entriesBefore] : undefined;
    if (entry) this.pick(entry.process, entry.phase);
  }

  pressed(event) {
    const { warp_size: p, processes: n } = this.setting;
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: p, ArrowUp: -p, Home: -n, End: n }[event.key];
    if (step === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    this.pick(Math.min(n, Math.max(1, this.chosen === 0 ? 1 : this.chosen + step)));
  }

  // Chooses a process, and the phase of an entry with it.
  pick(process, phase) {
    this.chosen = process;
    this.choose(process, phase);
  }

  // The picture as a file that stands alone, with a caption.
  exported(caption) {
    const pen = new SvgPen();
    const { ink, page } = palette();
    this.drawAll(pen, () => true);
    const [width, height] = [this.layout.width + 32, this.layout.height + 56];
    const file = svg("svg", { viewBox: `-16 -16 ${width} ${height}`, width, height },
      svg("title", { text: caption }), svg("rect", { x: -16, y: -16, width, height, fill: page }), ...pen.nodes);
    pen.nodes = [];
    pen.text(0, this.layout.height + 24, caption, { fill: ink, size: 12 });
    file.append(...pen.nodes);
    return new XMLSerializer().serializeToString(file);
  }
}

function tileSentence(first, last, { all, joined, won, failed, left }) {
  const which = first === last ? `warp ${first}` : `warps ${first} to ${last}`;
  return `${which}: of ${grouped(all)} processes ${joined} have joined, ${won} won, ${failed} lost, ${left} have left`;
}
