// The picture of a phase: each warp a row of its processes, the scheduled one lit. One SVG, of which only what has changed is
// touched. Nothing is said by colour alone: each state has a shape too.

import { element, say, set, shown, svg } from "./dom.js";
import { MARK } from "./history.js";

// Above this number of processes a picture shows warps, or groups of them, in the place of processes.
export const ONE_BY_ONE = 1024;
const TILES = 1024;

const CLASSES = ["absent", "joined", "failed", "limit", "won", "left"];

// What stands in the legend, in words for people.
export const LEGEND = [
  ["absent", "has not joined"],
  ["joined", "has joined"],
  ["won", "its append won, at this position"],
  ["failed", "its append lost"],
  ["limit", "its append came outside the window"],
  ["left", "has decided and left"],
];
export const BADGES = [
  ["waits", "an access of it waits"],
  ["reads", "so much of the list it has read"],
  ["awaited", "is awaited, with its patience draining"],
  ["given-up", "is not awaited any more"],
  ["late", "is late"],
  ["accused", "is accused of an offence"],
  ["byzantine", "is Byzantine, as the scenario says"],
];

function stage(marks) {
  if (marks & MARK.left) return 5;
  if (marks & MARK.won) return 4;
  if (marks & MARK.failed) return 2;
  if (marks & MARK.limit) return 3;
  return marks & MARK.joined ? 1 : 0;
}

export class Picture {
  constructor(setting, { choose }) {
    this.setting = setting;
    this.choose = choose;
    this.grouped = setting.processes > ONE_BY_ONE;
    this.node = svg("svg", {
      class: "picture", role: "application", tabindex: "0", "aria-label": "Warps and their processes. Arrow keys move.",
      on: { click: (event) => this.clicked(event), keydown: (event) => this.pressed(event) },
    });
    this.chosen = 0;
    this.width = 0;
    this.drawn = new Map();
  }

  // Lays everything out for this width in pixels.
  layout(width) {
    if (Math.abs(width - this.width) < 8) return;
    this.width = width;
    this.drawn.clear();
    if (this.grouped) this.layoutTiles();
    else this.layoutProcesses();
  }

  layoutProcesses() {
    const { processes: n, warp_size: p, warps, first_round: order } = this.setting;
    const size = n <= 32 ? 46 : n <= 96 ? 36 : n <= 256 ? 26 : 18;
    const label = 66;
    const columns = Math.max(1, Math.min(p, Math.floor((this.width - label - 16) / size)));
    const lines = Math.ceil(p / columns);
    const block = { width: label + columns * size + 22, height: lines * size + (n <= 256 ? 10 : 6) };
    const across = Math.max(1, Math.min(warps, Math.floor((this.width + 12) / block.width)));
    const down = Math.ceil(warps / across);
    this.cells = new Array(n);
    this.rows = new Array(warps + 1);
    const rows = order.map((warp, slot) => {
      const x = Math.floor(slot / down) * block.width;
      const y = (slot % down) * block.height;
      const members = [];
      for (let column = 0; column < p; column += 1) {
        const process = (warp - 1) * p + column + 1;
        if (process > n) break;
        const cell = this.cell(process, size);
        cell.group.setAttribute("transform", `translate(${label + (column % columns) * size} ${4 + Math.floor(column / columns) * size})`);
        members.push(cell.group);
      }
      const row = svg("g", { class: "warp", transform: `translate(${x} ${y})` },
        svg("rect", { class: "lane", x: 0, y: 0, width: block.width - 12, height: block.height - 2, rx: 4 }),
        svg("path", { class: "pointer", d: `M4 ${4 + size / 2 - 5}l6 5l-6 5z` }),
        svg("text", { class: "warp-name", x: 14, y: 4 + size / 2 + 4, text: `warp ${warp}` }),
        ...members);
      this.rows[warp] = row;
      return row;
    });
    this.size = size;
    this.columns = columns;
    this.frame(across * block.width, down * block.height, rows);
  }

  cell(process, size) {
    const box = size - 4;
    const byzantine = this.setting.cast?.byzantine?.[process];
    const parts = {
      box: svg("rect", { class: "box", width: box, height: box, rx: 3 }),
      strike: svg("path", { class: "strike", d: `M3 ${box - 3}L${box - 3} 3` }),
      read: svg("rect", { class: "read", x: 1, y: box - 4, width: 0, height: 3 }),
      patience: svg("rect", { class: "patience", x: 0, y: -3, width: box, height: 2 }),
      number: svg("text", { class: "number", x: box / 2, y: box / 2 + 4, text: size >= 26 ? String(process) : "" }),
      position: svg("text", { class: "position", x: box - 2, y: 8 }),
      waits: svg("circle", { class: "waits", cx: box - 4, cy: box - 7, r: 2.2 }),
      badge: svg("text", { class: "badge", x: 2, y: 8 }),
    };
    if (byzantine !== undefined) parts.corner = svg("path", { class: "byzantine", d: `M0 ${box}v-9l9 9z` });
    const group = svg("g", { class: "process", "data-process": process }, svg("title", {}), ...Object.values(parts));
    this.cells[process - 1] = { group, side: box, title: group.firstChild, ...parts };
    return { group };
  }

  layoutTiles() {
    const { warps } = this.setting;
    this.perTile = Math.ceil(warps / TILES);
    const tiles = Math.ceil(warps / this.perTile);
    const width = 26;
    const height = 30;
    const across = Math.max(1, Math.floor(this.width / width));
    this.tiles = [];
    const groups = [];
    for (let tile = 0; tile < tiles; tile += 1) {
      const bars = ["left", "won", "failed", "joined"].map((name) => svg("rect", { class: `bar ${name}`, x: 2, width: width - 6, height: 0 }));
      const group = svg("g", { class: "tile", "data-tile": tile, transform: `translate(${(tile % across) * width} ${Math.floor(tile / across) * height})` },
        svg("title", {}), svg("rect", { class: "lane", x: 1, y: 1, width: width - 4, height: height - 4, rx: 2 }), ...bars);
      this.tiles.push({ group, bars, title: group.firstChild });
      groups.push(group);
    }
    this.frame(across * width, Math.ceil(tiles / across) * height, groups);
  }

  frame(width, height, children) {
    set(this.node, "viewBox", `0 -4 ${width} ${height + 6}`);
    set(this.node, "width", String(width));
    set(this.node, "height", String(height + 6));
    this.node.replaceChildren(hatch(), ...children);
  }

  // Shows a state, and what the server says of that moment: `elapsed` nanoseconds have passed since.
  show(state, now, elapsed) {
    if (this.width === 0) return;
    const awaited = new Map();
    if (now?.open || now?.state === "gathering") {
      for (const { process, left_nanos: left } of now.awaited) {
        awaited.set(process, left === null ? 1 : Math.max(0, left - elapsed) / (this.setting.patience_nanos || 1));
      }
    }
    const lit = now?.phase ? now.warp : state.warp;
    if (this.grouped) this.showTiles(state, lit);
    else this.showProcesses(state, lit, awaited, now?.state === "gathering");
  }

  showProcesses(state, lit, awaited, gathering) {
    this.setting.first_round.forEach((warp) => {
      set(this.rows[warp], "class", warp === lit ? "warp lit" : "warp");
    });
    const length = Math.max(state.length, 1);
    for (let of = 0; of < this.setting.processes; of += 1) {
      const process = of + 1;
      const left = awaited.get(process);
      const patience = left === undefined ? -1 : Math.round(left * 100);
      const read = Math.min(1, state.readTo[of] / length);
      const key = `${state.marks[of]} ${Math.min(state.waiting[of], 1)} ${state.position[of]} ${Math.round(read * 50)} ${patience} ${this.chosen === process}`;
      if (this.drawn.get(of) === key) continue;
      this.drawn.set(of, key);
      this.showProcess(process, state.marks[of], state.waiting[of] > 0, state.position[of], read, patience, gathering);
    }
  }

  showProcess(process, marks, waits, position, read, patience, gathering) {
    const cell = this.cells[process - 1];
    const classes = ["process", CLASSES[stage(marks)]];
    if (waits) classes.push("waiting");
    if (patience >= 0 && !gathering) classes.push("awaited");
    if (marks & MARK.given_up) classes.push("given-up");
    if (marks & MARK.late) classes.push("is-late");
    if (marks & MARK.accused) classes.push("accused");
    if (process === this.chosen) classes.push("chosen");
    set(cell.group, "class", classes.join(" "));
    set(cell.read, "width", String(Math.round(read * (cell.side - 2))));
    set(cell.patience, "width", String(patience < 0 || gathering ? 0 : Math.round((patience / 100) * cell.side)));
    say(cell.position, marks & MARK.won && this.size >= 26 ? String(position) : "");
    say(cell.badge, marks & MARK.accused ? "!" : marks & MARK.late ? "L" : "");
    say(cell.title, this.sentence(process, marks, waits));
  }

  // A process in words, for those who hear the page.
  sentence(process, marks, waits) {
    const names = this.setting.names;
    const said = [`process ${process}${names.length ? ` (${shown(names[process - 1])})` : ""}`];
    said.push(LEGEND.find(([name]) => name === CLASSES[stage(marks)])[1]);
    const also = [[waits, "waits"], [marks & MARK.given_up, "given-up"], [marks & MARK.late, "late"], [marks & MARK.accused, "accused"]];
    for (const [is, name] of also) if (is) said.push(BADGES.find(([badge]) => badge === name)[1]);
    const byzantine = this.setting.cast?.byzantine?.[process];
    if (byzantine !== undefined) said.push(`plays ${shown(byzantine)}`);
    return said.join(", ");
  }

  showTiles(state, lit) {
    const { warp_size: p, processes: n, first_round: order } = this.setting;
    this.tiles.forEach(({ group, bars, title }, tile) => {
      const warps = order.slice(tile * this.perTile, (tile + 1) * this.perTile);
      const counts = [0, 0, 0, 0];
      let all = 0;
      for (const warp of warps) {
        for (let of = (warp - 1) * p; of < Math.min(n, warp * p); of += 1) {
          all += 1;
          const at = stage(state.marks[of]);
          if (at === 5) counts[0] += 1;
          else if (at === 4) counts[1] += 1;
          else if (at === 2 || at === 3) counts[2] += 1;
          else if (at === 1) counts[3] += 1;
        }
      }
      const key = `${counts} ${warps.includes(lit)}`;
      if (this.drawn.get(tile) === key) return;
      this.drawn.set(tile, key);
      set(group, "class", warps.includes(lit) ? "tile lit" : "tile");
      let y = 26;
      counts.forEach((count, bar) => {
        const height = (count / all) * 24;
        y -= height;
        set(bars[bar], "y", y.toFixed(1));
        set(bars[bar], "height", height.toFixed(1));
      });
      const which = warps.length === 1 ? `warp ${warps[0]}` : `${warps.length} warps`;
      say(title, `${which}: of ${all} processes ${counts[0]} have left, ${counts[1]} won, ${counts[2]} lost, ${counts[3]} have joined`);
    });
  }

  clicked(event) {
    const process = Number(event.target.closest("[data-process]")?.dataset.process);
    if (process) this.pick(process);
  }

  pressed(event) {
    if (this.grouped) return;
    const { warp_size: p, processes: n } = this.setting;
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: p, ArrowUp: -p, Home: -n, End: n }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    this.pick(Math.min(n, Math.max(1, (this.chosen || 1 - Math.sign(step)) + step)));
  }

  pick(process) {
    if (this.chosen) this.drawn.delete(this.chosen - 1);
    this.drawn.delete(process - 1);
    this.chosen = process;
    this.choose(process);
  }
}

function hatch() {
  return svg("defs", {}, svg("pattern", { id: "hatch", width: 4, height: 4, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
    svg("rect", { class: "hatch", width: 1.2, height: 4 })));
}

// The picture as a file that stands alone: with the styles that it has here, and a caption.
export function exported(picture, caption) {
  const copy = picture.node.cloneNode(true);
  const originals = picture.node.querySelectorAll("*");
  copy.querySelectorAll("*").forEach((node, at) => {
    const style = getComputedStyle(originals[at]);
    for (const name of ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "display", "font-family", "font-size", "font-weight", "text-anchor"]) {
      node.setAttribute(name, style.getPropertyValue(name));
    }
    node.removeAttribute("class");
    node.removeAttribute("data-process");
  });
  const [x, y, width, height] = copy.getAttribute("viewBox").split(" ").map(Number);
  for (const name of ["tabindex", "role", "aria-label", "class"]) copy.removeAttribute(name);
  copy.setAttribute("viewBox", `${x - 8} ${y - 8} ${width + 16} ${height + 40}`);
  copy.setAttribute("width", String(width + 16));
  copy.setAttribute("height", String(height + 40));
  const ink = getComputedStyle(document.body);
  const background = svg("rect", { x: x - 8, y: y - 8, width: width + 16, height: height + 40, fill: ink.backgroundColor });
  copy.prepend(background);
  copy.append(svg("text", { x, y: y + height + 20, fill: ink.color, "font-family": "sans-serif", "font-size": "12", text: caption }));
  return new XMLSerializer().serializeToString(copy);
}

// The legend, drawn as the picture is.
export function legend(setting) {
  const item = (name, words, classes) => {
    const box = [svg("rect", { class: "box", x: 2, y: 4, width: 16, height: 16, rx: 3 }), svg("path", { class: "strike", d: "M5 17L15 7" })];
    if (name === "waits") box.push(svg("circle", { class: "waits", cx: 14, cy: 15, r: 2.2 }));
    if (name === "reads") box.push(svg("rect", { class: "read", x: 3, y: 16, width: 9, height: 3 }));
    if (name === "awaited") box.push(svg("rect", { class: "patience", x: 2, y: 1, width: 11, height: 2 }));
    if (name === "late" || name === "accused") box.push(svg("text", { class: "badge", x: 5, y: 14, text: name === "late" ? "L" : "!" }));
    if (name === "byzantine") box.push(svg("path", { class: "byzantine", d: "M2 20v-9l9 9z" }));
    const picture = svg("svg", { class: "picture key", width: 22, height: 22, viewBox: "0 0 22 22", "aria-hidden": "true" }, svg("g", { class: `process ${classes}` }, ...box));
    return element("li", {}, picture, element("span", { text: words }));
  };
  const classOf = { waits: "joined waiting", reads: "won", awaited: "joined awaited", "given-up": "joined given-up", late: "joined is-late", accused: "joined accused", byzantine: "joined" };
  const badges = BADGES.filter(([name]) => name !== "byzantine" || setting.cast);
  return element("ul", { class: "legend" },
    ...LEGEND.map(([name, words]) => item(name, words, name)), ...badges.map(([name, words]) => item(name, words, classOf[name])));
}
