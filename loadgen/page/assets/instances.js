// The table of all instances, those that run first: filtered and cut into pages by the server; above it what the server does as a whole.

import * as api from "./api.js";
import { button, element, grouped, named, say, set, shown } from "./dom.js";
import { Overview } from "./overview.js";

const STATES = ["", "running", "gathering", "finished", "closed"];
// The columns: title, text of a row, and what rows are sorted by. Those of numbers are aligned like numbers.
const COLUMNS = [
  ["instance", ({ name, id }) => named(name, id)],
  ["state", ({ state }) => state, ({ state }) => STATES.indexOf(state)],
  ["age", ({ created }) => age(created), ({ created }) => -created, "count"],
  ["phase", ({ phase }) => (phase === null ? "" : grouped(phase)), ({ phase }) => phase ?? 0, "count"],
  ["decided", ({ decided, processes }) => `${grouped(decided)}/${grouped(processes)}`, ({ decided, processes }) => decided / processes, "count"],
  ["decision", ({ decision }) => shown(decision ?? "", 32)],
  ["waits for", ({ awaited: [count, first] }) => (count === 0 ? "" : count === 1 && first ? `process ${first}` : `${grouped(count)} processes`), ({ awaited: [count] }) => count],
  ["offences", ({ offences }) => (offences === 0 ? "" : grouped(offences)), ({ offences }) => offences, "count"],
];
// Rows that are too few for a page, and the most requests for one.
const FEW = 20;
const MOST_ASKED = 10;
const EVERY = 2000;
const LONGEST_PAUSE = 16_000;

export function showInstances(content, options, { connection, live }) {
  const view = new InstancesView(options, connection);
  content.append(...view.nodes(live));
  view.run();
  return () => view.close();
}

class InstancesView {
  constructor(options, connection) {
    this.query = Object.fromEntries(["state", "text", "page"].map((name) => [name, options.get(name) ?? ""]));
    this.connection = connection;
    this.isOver = false;
    this.pause = EVERY;
    this.page = { rows: [] };
  }

  close() {
    this.isOver = true;
    clearTimeout(this.timer);
    this.overview?.close();
  }

  // Another choice is another address, so that the button "back" goes back.
  choose(change) {
    const given = Object.entries({ ...this.query, page: "", ...change }).filter(([, value]) => value !== "");
    location.hash = given.length > 0 ? `/?${new URLSearchParams(given)}` : "/";
  }

  nodes(live) {
    const { query } = this;
    const state = element("select", { id: "state", on: { change: () => this.choose({ state: state.value }) } },
      ...STATES.map((name) => element("option", { value: name, selected: name === query.state, text: name || "any state" })));
    const text = element("input", {
      id: "text", type: "search", value: query.text, maxlength: "128", placeholder: "name, or beginning of the id", on: { change: () => this.choose({ text: text.value }) },
    });
    this.heads = COLUMNS.map(([title, , , of], at) => element("th", { scope: "col", class: of }, button(title, () => this.sort(at))));
    this.rows = element("tbody");
    this.note = element("p", { class: "note total" });
    this.pages = element("p", { class: "pages" });
    if (live) this.overview = new Overview();
    this.overview?.run();
    return [
      element("h1", { text: "Instances" }), this.overview?.node ?? "",
      element("div", { class: "filter", role: "search" }, element("label", { for: "state", text: "state" }), state, element("label", { for: "text", text: "find" }), text),
      this.note, element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Instances" },
        element("table", { class: "instances" }, element("thead", {}, element("tr", {}, ...this.heads)), this.rows)), this.pages,
    ];
  }

  async run() {
    try {
      const page = await this.ask();
      if (this.isOver) return;
      this.page = page;
      this.show();
      this.pause = EVERY;
      this.connection("");
    } catch (error) {
      if (this.isOver) return;
      if (!error.mayPass) return this.refused(error);
      this.pause = Math.max(error.retryAfter * 1000, Math.min(2 * this.pause, LONGEST_PAUSE));
      this.connection(`trying again in ${Math.ceil(this.pause / 1000)} s: ${error.message}`, "lost");
    }
    this.timer = setTimeout(() => this.run(), this.pause);
  }

  // A filter may leave no row of what the server looks at in one request: then the next ones are asked for too.
  async ask() {
    const page = await api.instances(this.query);
    for (let asked = 1; asked < MOST_ASKED && page.next && page.rows.length < FEW && !this.isOver; asked += 1) {
      const more = await api.instances({ ...this.query, page: page.next });
      page.rows.push(...more.rows);
      page.next = more.next;
    }
    return page;
  }

  refused(error) {
    const lines = [error.message];
    if (error.status === 401) lines.push("A page that is loaded again needs the link again.");
    this.note.replaceChildren(element("span", { class: "refused", role: "alert", text: shown(lines.join(". "), 600) }));
  }

  // By this column; a second time the other way round.
  sort(column) {
    this.order = { column, sign: this.order?.column === column ? -this.order.sign : 1 };
    this.heads.forEach((head, at) => set(head, "aria-sort", at !== column ? "none" : this.order.sign > 0 ? "ascending" : "descending"));
    this.show();
  }

  // The server has sorted by states and ages of some seconds ago.
  sorted() {
    const state = COLUMNS[1][2];
    const rows = this.page.rows.toSorted((one, other) => state(one) - state(other) || other.created - one.created);
    if (!this.order) return rows;
    const [, text, key = text] = COLUMNS[this.order.column];
    const compare = (one, other) => (typeof one === "string" ? one.localeCompare(other) : one - other);
    return rows.sort((one, other) => this.order.sign * compare(key(one), key(other)));
  }

  // Rows stay where they are and change their texts, so that nobody loses the place.
  show() {
    const { page: { total, next }, query } = this;
    const rows = this.sorted();
    const isFiltered = query.state || query.text || query.page;
    const none = isFiltered ? "No instance matches." : "No instances yet. Create one: stickycas-client create --name demo --roster ann,bob,eve";
    const count = rows.length === 0 ? none : total === null ? "" : `${grouped(total)} in all`;
    say(this.note, count);
    // Who hears the page is told once for each choice, not at each request.
    if (!this.isTold) say(document.getElementById("told"), count);
    this.isTold = true;
    rows.forEach((row, at) => fill(this.rows.children[at] ?? this.rows.appendChild(emptyRow()), row));
    while (this.rows.childElementCount > rows.length) this.rows.lastElementChild.remove();
    const wanted = `${rows.length === 0} ${next}`;
    if (this.pagesFor === wanted) return;
    this.pagesFor = wanted;
    this.pages.replaceChildren();
    if (query.page) this.pages.append(button("the first ones", () => this.choose({})));
    if (next) this.pages.append(button("the next ones", () => this.choose({ page: next })));
    if (rows.length === 0 && isFiltered) this.pages.append(button("show all", () => this.choose({ state: "", text: "" })));
  }
}

function emptyRow() {
  return element("tr", {}, element("th", { scope: "row" }, element("a")), ...COLUMNS.slice(1).map(([, , , of]) => element("td", { class: of })));
}

function fill(line, row) {
  const [link, ...cells] = [line.firstChild.firstChild, ...[...line.children].slice(1)];
  set(link, "href", `#/instance/${encodeURIComponent(row.id)}`);
  set(link, "title", row.id);
  set(line, "class", `is-${row.state}`);
  [link, ...cells].forEach((cell, at) => say(cell, COLUMNS[at][1](row)));
}

// How long ago this moment was, by the clock of this machine.
function age(created) {
  if (created === null) return "";
  const seconds = Math.max(0, Math.round((Date.now() - created) / 1000));
  const [size, unit] = [[86_400, "d"], [3600, "h"], [60, "min"]].find(([size]) => seconds >= size) ?? [1, "s"];
  return `${Math.floor(seconds / size)} ${unit}`;
}
