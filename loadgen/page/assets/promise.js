// What the theorem promises, with f and |Vc| chosen by the viewer. The server fills in the inequality.

import * as api from "./api.js";
import { element, panel, say, shown } from "./dom.js";

const MOST_VALUES = 64;
// Milliseconds for which the sliders stand still before the server is asked, so that those who hear the page are told once.
const QUIET = 400;

export class PromiseForm {
  constructor(setting) {
    this.setting = setting;
    const { cast, processes: n, warp_size: p } = setting;
    const slider = (id, min, max, value) => element("input", { id, type: "range", min, max, value, on: { input: () => this.ask() } });
    this.f = slider("promise-f", 0, n, cast?.f ?? Math.min(n, 1));
    this.values = slider("promise-values", 1, Math.min(n, MOST_VALUES), Math.min(MOST_VALUES, Math.max(1, cast?.values ?? 2)));
    this.rounds = slider("promise-rounds", 1, p, setting.append_rounds);
    this.shownRounds = element("output", { for: "promise-rounds", "aria-live": "off" });
    this.shownF = element("output", { for: "promise-f", "aria-live": "off" });
    this.shownValues = element("output", { for: "promise-values", "aria-live": "off" });
    this.result = element("ul", { class: "promises", "aria-live": "polite" });
    const known = cast
      ? "The scenario says who is Byzantine: the sliders stand where this run does."
      : "The server does not know who is Byzantine, nor what correct processes propose: choose both.";
    this.node = panel("What the theorem promises", element("p", { class: "note", text: known }),
      element("div", { class: "sliders" },
        element("label", { for: "promise-f", text: "f, Byzantine or late processes" }), this.f, this.shownF,
        element("label", { for: "promise-values", text: "|Vc|, different proposals of correct processes" }), this.values, this.shownValues,
        element("label", { for: "promise-rounds", text: "q, append rounds of a warp" }), this.rounds, this.shownRounds),
      this.result);
    this.ask(0);
  }

  ask(quiet = QUIET) {
    say(this.shownF, this.f.value);
    say(this.shownValues, this.values.value);
    say(this.shownRounds, this.rounds.value);
    this.asked = undefined;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.show(), quiet);
  }

  async show() {
    const asked = (this.asked = Symbol("asked"));
    let rows;
    try {
      rows = promises(await api.promise(this.setting.id, this.f.value, this.values.value, this.rounds.value));
    } catch (error) {
      rows = [element("li", { class: "note", text: shown(error.message, 300) })];
    }
    if (asked === this.asked) this.result.replaceChildren(...rows);
  }
}

// A promise as the rows of a list.
export function promises({ largest_f: largest, phases, properties }) {
  return [
    ...properties.map(({ property, promised, because }) => element("li", { class: promised ? "kept" : "open" },
      element("strong", { text: `${promised ? "✓" : "✗"} ${property}: ${promised ? "promised" : "not promised"}` }), element("span", { text: because }))),
    element("li", { class: "note", text: `With this |Vc| the theorem holds up to f = ${largest}, and takes ${phases} phases.` }),
  ];
}
