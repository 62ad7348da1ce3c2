// What the theorem promises, with f and |Vc| chosen by the viewer. The server fills in the inequality.

import * as api from "./api.js";
import { element, say } from "./dom.js";

export class PromiseForm {
  constructor(setting) {
    this.setting = setting;
    const cast = setting.cast;
    const slider = (id, min, max, value) => element("input", { id, type: "range", min: String(min), max: String(max), value: String(value), on: { input: () => this.ask() } });
    const n = setting.processes;
    this.f = slider("promise-f", 0, n, cast?.f ?? Math.min(n, 1));
    this.values = slider("promise-values", 1, Math.min(n, 64), Math.min(64, Math.max(1, cast?.values ?? 2)));
    this.shownF = element("output", { for: "promise-f" });
    this.shownValues = element("output", { for: "promise-values" });
    this.result = element("ul", { class: "promises", "aria-live": "polite" });
    const known = cast
      ? "The scenario says who is Byzantine: the sliders stand where this run does."
      : "The server does not know who is Byzantine, nor what correct processes propose: choose both.";
    this.node = element("section", { class: "panel promise" }, element("h2", { text: "What the theorem promises" }), element("p", { class: "note", text: known }),
      element("div", { class: "sliders" },
        element("label", { for: "promise-f", text: "f, Byzantine or late processes" }), this.f, this.shownF,
        element("label", { for: "promise-values", text: "|Vc|, different proposals of correct processes" }), this.values, this.shownValues),
      this.result);
    this.ask();
  }

  async ask() {
    say(this.shownF, this.f.value);
    say(this.shownValues, this.values.value);
    const asked = (this.asked = Symbol("asked"));
    try {
      const promise = await api.promise(this.setting.id, this.f.value, this.values.value);
      if (asked === this.asked) this.result.replaceChildren(...promises(promise));
    } catch (error) {
      if (asked === this.asked) this.result.replaceChildren(element("li", { class: "note", text: error.message }));
    }
  }
}

// A promise as the rows of a list.
export function promises({ largest_f: largest, properties }) {
  return [
    ...properties.map(({ property, promised, because }) => element("li", { class: promised ? "kept" : "open" },
      element("strong", { text: `${property}: ${promised ? "promised" : "not promised"}` }), element("span", { text: because }))),
    element("li", { class: "note", text: `With this |Vc| the theorem bears up to f = ${largest}.` }),
  ];
}
