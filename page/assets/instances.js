// The table of all instances: sorted, filtered and cut into pages by the server.

import * as api from "./api.js";
import { element, shown } from "./dom.js";

const COLUMNS = [
  ["name", "instance"], ["state", "state"], ["created", "n"], ["phase", "phase"], ["length", "list"], ["awaited", "waits for"], ["offences", "offences"],
];
const SORTED = ["phase", "length", "awaited", "offences"];
const EVERY = 2000;

export function showInstances(content, options, { connection }) {
  const query = Object.fromEntries(["state", "text", "sort", "descending", "page"].map((name) => [name, options.get(name) ?? ""]));
  const rows = element("tbody");
  const note = element("p", { class: "note", role: "status" });
  const more = element("p", { class: "pages" });
  const again = (change) => {
    const next = { ...query, page: "", ...change };
    const given = Object.entries(next).filter(([, value]) => value !== "");
    location.hash = given.length > 0 ? `/?${new URLSearchParams(given)}` : "/";
  };
  const state = element("select", { id: "state", on: { change: () => again({ state: state.value }) } },
    ...["", "gathering", "running", "finished", "closed"].map((name) => element("option", { value: name, selected: name === query.state, text: name || "any state" })));
  const text = element("input", { id: "text", type: "search", value: query.text, maxlength: "128", placeholder: "name, or beginning of the id", on: { change: () => again({ text: text.value }) } });
  const head = COLUMNS.map(([name, title]) => {
    if (!SORTED.includes(name)) return element("th", { scope: "col", text: title });
    const is = query.sort === name;
    const change = { sort: name, descending: is && query.descending ? "" : "true" };
    return element("th", { scope: "col", "aria-sort": is ? (query.descending ? "descending" : "ascending") : undefined },
      element("button", { type: "button", text: `${title}${is ? (query.descending ? " ↓" : " ↑") : ""}`, on: { click: () => again(change) } }));
  });
  content.append(
    element("h1", { text: "Instances" }),
    element("div", { class: "filter", role: "search" }, element("label", { for: "state", text: "state" }), state, element("label", { for: "text", text: "find" }), text),
    note, element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Instances" }, element("table", {}, element("thead", {}, element("tr", {}, ...head)), rows)), more);
  let timer;
  let over = false;
  const refresh = async () => {
    try {
      const page = await api.instances(query);
      if (over) return;
      rows.replaceChildren(...page.rows.map(row));
      note.textContent = page.rows.length === 0 ? "There is none." : page.total === null ? "" : `${page.total} in all`;
      more.replaceChildren();
      if (page.next) more.append(element("button", { type: "button", text: "the next ones", on: { click: () => again({ page: page.next }) } }));
      connection("");
    } catch (error) {
      connection(error.message);
      if (error.status === 401 || error.status === 403) over = true;
    }
    if (!over) timer = setTimeout(refresh, EVERY);
  };
  refresh();
  return () => {
    over = true;
    clearTimeout(timer);
  };
}

function row({ id, name, state, processes, phase, length, awaited: [count, first], offences }) {
  const waits = count === 0 ? "" : count === 1 ? `process ${first}` : `${count} processes`;
  return element("tr", {},
    element("th", { scope: "row" }, element("a", { href: `#/instance/${encodeURIComponent(id)}`, text: shown(name || id, 48) })),
    element("td", { text: state }), element("td", { class: "count", text: String(processes) }), element("td", { class: "count", text: phase === null ? "" : String(phase) }),
    element("td", { class: "count", text: String(length) }), element("td", { text: waits }), element("td", { class: "count", text: offences === 0 ? "" : String(offences) }));
}
