// What to look at in a run, phase by phase, if somebody has written that down.

import { button, element, say, set, shown } from "./dom.js";

export class Story {
  constructor(steps, { go }) {
    this.steps = steps;
    if (steps.length === 0) return;
    this.text = element("p", { "aria-live": "polite" });
    const turn = (by) => () => go(this.steps[Math.max(0, Math.min(steps.length - 1, this.at + by))].phase);
    this.count = element("span", { class: "note" });
    this.back = button("back", turn(-1));
    this.on = button("go on", turn(1), { class: "primary" });
    this.node = element("section", { class: "story", "aria-label": "The story of this run" }, this.text,
      element("p", { class: "pages" }, this.back, this.on, this.count));
  }

  // Shows what is said of this phase, or of the last one before it.
  show(phase) {
    if (this.steps.length === 0) return;
    this.at = Math.max(0, this.steps.findLastIndex((step) => step.phase <= phase));
    say(this.text, shown(this.steps[this.at].says, 600));
    say(this.count, `${this.at + 1} of ${this.steps.length}`);
    this.back.disabled = this.at === 0;
    this.on.disabled = this.at === this.steps.length - 1;
    set(this.node, "data-step", String(this.at));
  }
}
