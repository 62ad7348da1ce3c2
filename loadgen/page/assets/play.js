// Runs that a viewer makes up: presets, and a form that shows at once what the theorem promises.

import * as api from "./api.js";
import { button, element, panel, say, shown } from "./dom.js";
import { promises } from "./promise.js";

const CHOICES = {
  arbiter: ["of the appends of a phase", [["first_come", "the first to arrive wins"], ["uniform", "the winner is drawn"], ["byzantine_first", "Byzantine processes win"]]],
  append_window: ["the append window is", [["first_access", "closed after the first access"], ["open", "open, as the paper prints it"]]],
  order: ["warps take turns", [["ascending", "by number"], ["descending", "from the last to the first"], ["shuffled", "drawn anew in each round"]]],
};
const NUMBERS = {
  processes: ["n, processes", 12, 1], warp_size: ["p, processes of a warp (a group)", 2, 1], read_size: ["r, entries of a read", 3, 1],
  append_rounds: ["q, append rounds", 1, 1, "range"],
  byzantine: ["f, Byzantine processes", 1, 0], values: ["|Vc|, different proposals", 2, 1],
};
const WAIT = 150;

export function showPlay(content, options, { connection }) {
  const view = new PlayView(connection);
  content.append(element("h1", { text: "Make up a run" }), view.story(), view.form(options), view.made);
  view.load();
  return () => clearTimeout(view.timer);
}

class PlayView {
  constructor(connection) {
    this.connection = connection;
    this.isBusy = false;
    this.fields = {};
    this.promises = element("ul", { class: "promises", "aria-live": "polite" });
    this.file = element("pre", { class: "file", tabindex: "0" });
    this.wrong = element("p", { class: "refused", role: "alert", hidden: true });
    this.submit = element("button", { type: "submit", class: "primary", text: "Run it" });
    this.presets = element("ol", { class: "presets" });
    this.usage = element("p", { class: "note usage" });
    this.made = element("section", { class: "panel", hidden: true });
    this.strategies = element("datalist", { id: "play-strategies" });
  }

  story() {
    return panel("The story in eight runs", this.presets);
  }

  form(options) {
    const { fields } = this;
    const field = (name, title, node) => {
      fields[name] = node;
      return [element("label", { for: `play-${name}`, text: title }), node];
    };
    const numbers = Object.entries(NUMBERS).flatMap(([name, [title, value, min, type = "number"]]) =>
      field(name, title, element("input", { id: `play-${name}`, type, min, max: "1024", value: options.get(name) ?? value, required: true })));
    const strategy = field("strategy", "what they play",
      element("input", { id: "play-strategy", list: "play-strategies", value: "collude(value=0)", maxlength: "256", autocomplete: "off", spellcheck: "false" }));
    strategy.push(this.usage);
    const choices = Object.entries(CHOICES).flatMap(([name, [title, options]]) =>
      field(name, title, element("select", { id: `play-${name}` }, ...options.map(([value, text]) => element("option", { value, text })))));
    const seed = field("seed", "seed (empty: a new one)", element("input", { id: "play-seed", type: "number", min: "0", max: String(Number.MAX_SAFE_INTEGER) }));
    const form = element("form", { class: "form", on: { input: () => this.changed(), submit: (event) => {
      event.preventDefault();
      this.start({ form: this.read() });
    } } }, ...numbers, ...strategy, this.strategies, ...choices, ...seed, this.submit, this.wrong);
    return element("div", { class: "columns" },
      element("div", { class: "wide" }, panel("A run of your own", form)),
      element("div", { class: "narrow" }, panel("What the theorem promises of it", this.promises,
        element("details", { class: "keys" }, element("summary", { text: "The same as a scenario file" }), this.file))));
  }

  async load() {
    this.preview();
    try {
      const [{ presets, strategies }, { rows }] = await Promise.all([api.offer(), api.instances({})]);
      this.made.hidden = rows.length === 0;
      this.made.replaceChildren(element("h2", { text: "Runs made before" }), ...rows.map(({ id }) => element("p", {}, element("a", { href: `#/instance/${encodeURIComponent(id)}`, text: id }))));
      this.presets.replaceChildren(...presets.map(({ name, title, story }) => element("li", {},
        button(title, () => this.start({ preset: name }), { "data-preset": name }), element("p", { class: "note", text: story }))));
      this.strategies.replaceChildren(...strategies.map(([name]) => element("option", { value: name })));
      this.known = new Map(strategies);
      this.explain();
    } catch (error) {
      this.connection(error.message, "lost");
    }
  }

  read() {
    const { fields } = this;
    const number = (name) => (fields[name].value === "" ? null : Number(fields[name].value));
    return {
      ...Object.fromEntries([...Object.keys(NUMBERS), "seed"].map((name) => [name, number(name)])),
      ...Object.fromEntries(["strategy", ...Object.keys(CHOICES)].map((name) => [name, fields[name].value])),
    };
  }

  changed() {
    this.explain();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.preview(), WAIT);
  }

  explain() {
    const chosen = this.fields.strategy.value.split("(")[0].trim();
    this.usage.textContent = this.known?.get(chosen) ?? "";
  }

  // There are 1 to p append rounds.
  bound() {
    const { append_rounds: rounds, warp_size: size } = this.fields;
    rounds.max = size.value;
    rounds.labels[0].textContent = `${NUMBERS.append_rounds[0]}: ${rounds.value}`;
  }

  async preview() {
    this.bound();
    const asked = (this.asked = Symbol("asked"));
    const form = this.read();
    const empty = Object.keys(NUMBERS).find((name) => form[name] === null);
    if (empty) return this.refuse({ message: `give a number: ${NUMBERS[empty][0]}` });
    try {
      const { promise, scenario } = await api.preview(form);
      if (asked !== this.asked) return;
      this.wrong.hidden = true;
      for (const field of Object.values(this.fields)) field.removeAttribute("aria-invalid");
      this.submit.disabled = this.isBusy;
      this.promises.replaceChildren(...promises(promise));
      this.file.textContent = scenario;
    } catch (error) {
      if (asked === this.asked) this.refuse(error);
    }
  }

  // Says what is wrong, behind the field that it names.
  refuse(error) {
    const [, name, message] = error.message.match(/^(\w+): (.*)$/s) ?? [];
    const field = this.fields[name];
    this.wrong.hidden = false;
    say(this.wrong, shown(field ? message : error.message, 600));
    (field ?? this.submit).after(this.wrong);
    field?.setAttribute("aria-invalid", "true");
    this.submit.disabled = true;
    this.promises.replaceChildren();
  }

  async start(wanted) {
    this.setBusy(true);
    try {
      const { id } = await api.make(wanted);
      location.hash = `/instance/${encodeURIComponent(id)}?phase=0`;
    } catch (error) {
      this.setBusy(false);
      this.refuse(error);
    }
  }

  // One run at a time is made.
  setBusy(isBusy) {
    this.isBusy = isBusy;
    for (const it of [this.submit, ...this.presets.querySelectorAll("button")]) it.disabled = isBusy;
  }
}
