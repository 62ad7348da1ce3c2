// The table of all instances, those that run first: filtered and cut into pages by the server; above it what the server does as a whole.

import * as api from "./api.js";
import { button, element, grouped, say, set, shown } from "./dom.js";
import { Overview } from "./overview.js";

// The columns. Those of numbers are aligned like numbers.
const COLUMNS = ["instance", "state", "processes", "phase", "list", "waits for", "offences"];
const NUMBERS = new Set(["processes", "phase", "list", "offences"]);
const STATES = ["", "gathering", "running", "finished", "closed"];
// Rows that are too few for a page, and the most requests for one.
const FEW = 20;
const MOST_ASKED = 10;
const EVERY = 2000;
const LONGEST_PAUSE = 16_000;

export function showInstances(content, options, { connection, about }) {
  const view = new InstancesView(options, connection);
  content.append(...view.nodes());
  view.run();
  about.then(({ live }) => live && view.showOverview());
  return () => view.close();
}

class InstancesView {
  constructor(options, connection) {
    this.query = Object.fromEntries(["state", "text", "page"].map((name) => [name, options.get(name) ?? ""]));
    this.connection = connection;
    this.isOver = false;
    this.pause = EVERY;
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

  nodes() {
    const { query } = this;
    const state = element("select", { id: "state", on: { change: () => this.choose({ state: state.value }) } },
      ...STATES.map((name) => element("option", { value: name, selected: name === query.state, text: name || "any state" })));
    const text = element("input", {
      id: "text", type: "search", value: query.text, maxlength: "128", placeholder: "name, or beginning of the id", on: { change: () => this.choose({ text: text.value }) },
    });
    this.rows = element("tbody");
    this.note = element("p", { class: "note total" });
    this.pages = element("p", { class: "pages" });
    this.above = element("div");
    return [
      element("h1", { text: "Instances" }), this.above,
      element("div", { class: "filter", role: "search" }, element("label", { for: "state", text: "state" }), state, element("label", { for: "text", text: "find" }), text),
      this.note, element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Instances" },
        element("table", { class: "instances" }, element("thead", {}, element("tr", {}, ...COLUMNS.map((title) => element("th", { scope: "col", class: NUMBERS.has(title) ? "count" : undefined, text: title })))), this.rows)), this.pages,
    ];
  }

  async run() {
    try {
      const page = await this.ask();
      if (this.isOver) return;
      this.show(page);
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

  // Rows stay where they are and change their texts, so that nobody loses the place.
  show({ rows, total, next }) {
    const count = rows.length === 0 ? "There is none." : total === null ? "" : `${grouped(total)} in all`;
    say(this.note, count);
    // Who hears the page is told once for each choice, not at each request.
    if (!this.isTold) say(document.getElementById("told"), count);
    this.isTold = true;
    rows.forEach((row, at) => fill(this.rows.children[at] ?? this.rows.appendChild(emptyRow()), row));
    while (this.rows.childElementCount > rows.length) this.rows.lastElementChild.remove();
    const wanted = `${this.query.page} ${next}`;
    if (this.pagesFor === wanted) return;
    this.pagesFor = wanted;
    this.pages.replaceChildren();
    if (this.query.page) this.pages.append(button("the first ones", () => this.choose({})));
    if (next) this.pages.append(button("the next ones", () => this.choose({ page: next })));
  }

  showOverview() {
    if (this.isOver) return;
    this.overview = new Overview();
    this.above.append(this.overview.node);
    this.overview.run();
  }
}

function emptyRow() {
  return element("tr", {}, element("th", { scope: "row" }, element("a", {})), ...COLUMNS.slice(1).map((title) => element("td", { class: NUMBERS.has(title) ? "count" : undefined })));
}

function fill(line, { id, name, state, processes, phase, length, awaited: [count, first], offences }) {
  const [head, ...cells] = line.children;
  set(head.firstChild, "href", `#/instance/${encodeURIComponent(id)}`);
  say(head.firstChild, shown(name || id, 48));
  const waits = count === 0 ? "" : count === 1 && first ? `process ${first}` : `${grouped(count)} processes`;
  const texts = [state, grouped(processes), phase === null ? "" : grouped(phase), grouped(length), waits, offences === 0 ? "" : grouped(offences)];
  texts.forEach((text, at) => say(cells[at], text));
}
