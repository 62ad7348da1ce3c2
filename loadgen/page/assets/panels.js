// What stands beside the picture, for any moment: the list, decisions, offences, what happened, one process, and the reasons.

import * as api from "./api.js";
import { button, element, grouped, keepRange, listed, say, shown } from "./dom.js";

const ROWS = 200;
const SENTENCES = 100;
const GROUPS = 32;
// So many pixels from its end a list is at its end.
const AT_END = 8;
// Milliseconds for which a process stays chosen before it is asked for.
const WAIT = 150;

// A list that scrolls, and can be scrolled by keys.
function scrolling(name, list) {
  return element("div", { class: "rows", tabindex: "0", role: "region", "aria-label": name }, list);
}

// The entries of the list, each with a link to its process and its phase.
export class EntriesPanel {
  constructor(setting, { jump }) {
    this.setting = setting;
    this.jump = jump;
    this.rows = element("tbody");
    this.note = element("p", { class: "note" });
    const head = [["position", "count"], ["value"], ["added by"]].map(([text, of]) => element("th", { scope: "col", class: of, text }));
    const table = element("table", { class: "entries" }, element("thead", {}, element("tr", {}, ...head)), this.rows);
    this.node = element("div", {}, scrolling("Entries", table), this.note);
  }

  show(history, state) {
    const count = Math.min(state.entries, history.entries.length);
    const first = Math.max(0, count - ROWS);
    keepRange(this.rows, first, count, (at) => this.row(history.entries[at]), `${history.key}`);
    const before = history.entriesBefore + first;
    const notes = [];
    if (count === 0) notes.push("Nothing is in it.");
    if (before > 0) notes.push(`${grouped(before)} entries before these are not shown.`);
    if (state.sealed) notes.push(`Sealed: no entry is added from phase ${state.sealed} on.`);
    say(this.note, notes.join(" "));
  }

  row({ position, process, phase, value }) {
    const played = this.setting.cast?.byzantine?.[process];
    const by = button(`process ${process}, phase ${phase}`, () => this.jump(process, phase), { class: "link" });
    return element("tr", { class: played === undefined ? undefined : "of-byzantine" }, element("td", { class: "count", text: String(position) }),
      element("td", {}, element("bdi", { class: "value", text: shown(value, 40) })),
      element("td", {}, by, played === undefined ? undefined : element("span", { class: "sign", text: "Byzantine" })));
  }
}

// What was decided, by how many, and what these had read.
export class DecisionsPanel {
  constructor(setting) {
    this.setting = setting;
    this.node = element("ul", { class: "decisions" });
  }

  show(history, state) {
    const key = `${history.key} ${state.decisions}`;
    if (this.key === key) return;
    this.key = key;
    const groups = new Map();
    for (const { process, value, from } of history.decisions.slice(0, state.decisions)) {
      const name = JSON.stringify([value, from]);
      const group = groups.get(name) ?? { value, from, processes: [] };
      group.processes.push(process);
      groups.set(name, group);
    }
    const all = [...groups.values()].sort((one, other) => other.processes.length - one.processes.length);
    this.node.replaceChildren(...all.slice(0, GROUPS).map((group) => this.group(group)));
    if (all.length > GROUPS) this.node.append(element("li", { class: "note", text: `and ${all.length - GROUPS} more` }));
    if (all.length === 0) this.node.append(element("li", { class: "note", text: "No process has decided." }));
  }

  group({ value, from, processes }) {
    const few = processes.length <= 64 ? ` (${listed(processes)})` : "";
    return element("li", {}, element("p", {}, element("bdi", { class: "value", text: shown(value, 40) }),
      element("span", { class: "soft", text: ` by ${grouped(processes.length)} of ${grouped(this.setting.processes)}${few}` })),
    from && element("p", { class: "note", text: `had read ${shown(from, 200)}` }));
  }
}

export class OffencesPanel {
  constructor() {
    this.list = element("ul", { class: "sentences" });
    this.node = scrolling("Offences", this.list);
  }

  show(history, state) {
    const count = Math.min(state.offences, history.offences.length);
    keepRange(this.list, Math.max(0, count - ROWS), count, (at) => {
      const { process, detail } = history.offences[at];
      return element("li", { text: `process ${process}: ${shown(detail, 200)}` });
    }, `${history.key} ${count === 0 ? "none" : "some"}`);
    if (count === 0 && !this.list.firstChild) this.list.append(element("li", { class: "note", text: "None is on record." }));
  }
}

// What happened, in the server's sentences. Refusals are samples, for only the first ones of each process are recorded. Who has scrolled
// back stays there.
export class SentencesPanel {
  constructor() {
    this.list = element("ol", { class: "sentences" });
    this.node = scrolling("Events", this.list);
  }

  show(history, count) {
    const until = history.sentences(count);
    const key = `${history.key} ${until}`;
    if (this.key === key) return;
    this.key = key;
    const { scrollHeight, scrollTop, clientHeight } = this.node;
    keepRange(this.list, Math.max(history.toldDropped, until - SENTENCES), until, (at) => {
      const { says, kind } = history.sentence(at);
      const sample = kind === "refused" ? element("span", { class: "sign", text: "sample" }) : undefined;
      return element("li", { class: `is-${kind}` }, element("span", { text: shown(says, 240) }), sample);
    }, `${history.key}`);
    if (scrollHeight - scrollTop - clientHeight < AT_END) this.node.scrollTop = this.node.scrollHeight;
  }
}

// One process: who it is, and everything that it did.
export class ProcessPanel {
  constructor(setting, { pick }) {
    this.setting = setting;
    this.field = element("input", {
      id: "process", type: "number", min: "1", max: String(setting.processes), class: "short",
      on: { change: () => this.field.checkValidity() && this.field.value && pick(Number(this.field.value)) },
    });
    this.about = element("div", { class: "chosen" }, element("p", { class: "note", text: "Choose a process in the picture, or by its number." }));
    this.node = element("div", {}, element("p", { class: "field" }, element("label", { for: "process", text: "process" }), this.field), this.about);
  }

  async show(process) {
    this.field.value = process;
    const { id, names, cast } = this.setting;
    const title = element("h3", { text: `process ${process}${names.length > 0 ? ` · ${shown(names[process - 1], 80)}` : ""}` });
    const asked = (this.asked = Symbol("asked"));
    this.sentences = [];
    this.later = element("p", { class: "note" });
    this.about.replaceChildren(title, cast ? element("p", { class: "note", text: this.part(process) }) : "");
    await new Promise((done) => setTimeout(done, WAIT));
    if (asked !== this.asked) return;
    let rest;
    try {
      const { sentences, left_out: leftOut } = await api.told(id, process);
      this.sentences = sentences.map(([index, text]) => ({ index, node: element("li", { text: shown(text, 240) }) }));
      const list = element("ol", { class: "sentences" }, ...this.sentences.map(({ node }) => node));
      rest = [scrolling(`Events of process ${process}`, list), this.later, leftOut > 0 ? element("p", { class: "note", text: `and ${leftOut} more` }) : ""];
    } catch (error) {
      rest = [element("p", { class: "note", text: shown(error.message, 300) })];
    }
    if (asked !== this.asked) return;
    this.about.append(...rest);
    this.showUntil(this.next);
  }

  // Shows what happened before the event with this index.
  showUntil(next) {
    this.next = next;
    let later = 0;
    for (const { index, node } of this.sentences ?? []) {
      node.hidden = index >= next;
      if (node.hidden) later += 1;
    }
    if (this.later) say(this.later, later > 0 ? `${later} more after this moment` : "");
  }

  part(process) {
    const { byzantine, proposals } = this.setting.cast;
    const played = byzantine[process];
    return played === undefined ? `correct, proposes ${shown(proposals[process - 1] ?? "", 60)}` : `Byzantine: plays ${shown(played, 120)}`;
  }
}

// The reasons, in the words of `explain`.
export function reasons(sections) {
  return sections.map(({ title, blocks }) => element("section", {}, element("h3", { text: shown(title, 300) }), ...blocks.map(block)));
}

function block(it) {
  if (it.paragraph !== undefined) return element("p", { text: shown(it.paragraph, 2000) });
  if (it.point !== undefined) return element("p", { class: "point", text: shown(it.point, 2000) });
  if (it.detail !== undefined) return element("p", { class: "detail", text: shown(it.detail, 2000) });
  if (it.left_out !== undefined) return element("p", { class: "note", text: `and ${it.left_out} more` });
  const { head, rows } = it.table;
  return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table" }, element("table", {},
    element("thead", {}, element("tr", {}, ...head.map((text) => element("th", { scope: "col", text })))),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map((text) => element("td", { text: shown(text, 80) })))))));
}
