// The picture as a table, for those who hear the page, and for numbers: a row for each warp.

import { button, element, say } from "./dom.js";

const ROWS = 32;
const COLUMNS = [
  ["all", "processes"], ["joined", "joined"], ["waiting", "wait"], ["won", "won"], ["failed", "lost"], ["left", "have left"], ["late", "late"],
  ["accused", "accused"],
];

export class WarpsTable {
  constructor(setting) {
    this.setting = setting;
    this.first = 1;
    this.body = element("tbody");
    this.range = element("span", { class: "note" });
    const turn = (by) => () => this.turn(by);
    const pages = setting.warps <= ROWS ? undefined
      : element("p", { class: "pages" }, button("the ones before", turn(-ROWS)), button("the next ones", turn(ROWS)), this.range);
    const head = [...["warp", "turn"].map((text) => element("th", { scope: "col", text })), ...COLUMNS.map(([, text]) => element("th", { scope: "col", class: "count", text }))];
    this.node = element("details", { class: "keys", on: { toggle: () => this.refresh() } }, element("summary", { text: "The warps as a table" }),
      element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Warps" },
        element("table", {}, element("thead", {}, element("tr", {}, ...head)), this.body)), pages);
  }

  turn(by) {
    this.first = Math.min(this.setting.warps - (this.setting.warps % ROWS || ROWS) + 1, Math.max(1, this.first + by));
    this.body.replaceChildren();
    this.refresh();
  }

  show(state, lit) {
    this.refresh = () => this.node.open && this.fill(state, lit);
    this.refresh();
  }

  refresh() {}

  fill(state, lit) {
    const last = Math.min(this.setting.warps, this.first + ROWS - 1);
    say(this.range, `${this.first} to ${last} of ${this.setting.warps}`);
    for (let warp = this.first; warp <= last; warp += 1) {
      const row = this.body.children[warp - this.first] ?? this.body.appendChild(element("tr", {},
        element("th", { scope: "row" }), element("td"), ...COLUMNS.map(() => element("td", { class: "count" }))));
      const counts = state.countsOf(warp);
      const texts = [String(warp), warp === lit ? "its turn" : "", ...COLUMNS.map(([name]) => String(counts[name]))];
      texts.forEach((text, at) => say(row.children[at], text));
    }
  }
}
