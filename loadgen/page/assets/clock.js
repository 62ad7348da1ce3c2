// Which moment of a history is shown: the latest, or that after so many steps; step by step, or played at some speed.

import { button, element, say, set, svg } from "./dom.js";

const SPEEDS = [1, 2, 4, 16, 64, 256];
const ICONS = {
  first: "M3 3v10M13 3L6 8l7 5z", back: "M11 3L4 8l7 5z", play: "M4 3l9 5-9 5z", pause: "M5 3v10M11 3v10", on: "M5 3l7 5-7 5z",
};

function icon(name) {
  return svg("svg", { width: 16, height: 16, viewBox: "0 0 16 16", class: "icon", "aria-hidden": "true" }, svg("path", { d: ICONS[name] }));
}

export class Clock {
  // `changed` is called when another moment is to be shown.
  constructor({ changed }) {
    this.changed = changed;
    this.history = undefined;
    // So many steps are shown; undefined: the latest.
    this.steps = undefined;
    this.frame = undefined;
    this.build();
  }

  build() {
    const iconed = (name, title, click) => {
      const made = button(undefined, click, { "aria-label": title, title, class: "iconed" });
      made.append(icon(name));
      return made;
    };
    this.slider = element("input", {
      type: "range", min: "0", max: "0", value: "0", class: "slider", "aria-label": "Phase", on: { input: () => this.go(Number(this.slider.value)) },
    });
    this.playing = iconed("play", "Play", () => (this.isPlaying ? this.stop() : this.play()));
    this.speed = element("select", { "aria-label": "Speed" },
      ...SPEEDS.map((speed) => element("option", { value: speed, text: `${speed} phases/s`, selected: speed === 4 })));
    this.latest = button("latest", () => this.go(undefined), { class: "latest", "aria-pressed": "true" });
    this.node = element("div", { class: "clock", role: "group", "aria-label": "Time" },
      element("p", {}, iconed("first", "To the beginning", () => this.go(0)), iconed("back", "One phase back", () => this.go(this.at - 1)),
        this.playing, iconed("on", "One phase on", () => this.go(this.at + 1))),
      element("p", { class: "slide" }, this.slider), element("p", {}, this.speed, this.latest));
  }

  get at() {
    return this.steps ?? this.history?.steps.length ?? 0;
  }

  get isLatest() {
    return this.steps === undefined;
  }

  get isPlaying() {
    return this.frame !== undefined;
  }

  // Shows the moment after so many steps; undefined: the latest, as it changes.
  go(steps) {
    this.stop();
    this.move(steps);
  }

  move(steps) {
    const { firstSteps, steps: { length } } = this.history;
    this.steps = steps === undefined ? undefined : Math.max(firstSteps, Math.min(steps, length));
    this.changed();
  }

  play() {
    if (this.at >= this.history.steps.length) this.move(0);
    let before = performance.now();
    let passed = 0;
    const next = (now) => {
      passed += ((now - before) / 1000) * Number(this.speed.value);
      before = now;
      const whole = Math.floor(passed);
      passed -= whole;
      if (this.at + whole >= this.history.steps.length) return this.go(undefined);
      if (whole > 0) this.move(this.at + whole);
      this.frame = requestAnimationFrame(next);
    };
    this.frame = requestAnimationFrame(next);
    this.showPlaying();
  }

  stop() {
    cancelAnimationFrame(this.frame);
    this.frame = undefined;
    this.showPlaying();
  }

  showPlaying() {
    const label = this.isPlaying ? "Pause" : "Play";
    if (this.playing.getAttribute("aria-label") === label) return;
    set(this.playing, "aria-label", label);
    set(this.playing, "title", label);
    this.playing.replaceChildren(icon(this.isPlaying ? "pause" : "play"));
  }

  // Shows where the moment is. `phase` is its phase.
  show(phase) {
    set(this.slider, "min", String(this.history.firstSteps));
    set(this.slider, "max", String(this.history.steps.length));
    if (this.slider.value !== String(this.at)) this.slider.value = String(this.at);
    set(this.slider, "aria-valuetext", `phase ${phase}`);
    set(this.latest, "aria-pressed", String(this.isLatest));
  }
}

// A list of named values.
export function facts(names) {
  const values = Object.fromEntries(names.map(([name]) => [name, element("dd")]));
  const node = element("dl", { class: "facts" }, ...names.map(([name, title]) => element("div", {}, element("dt", { text: title }), values[name])));
  return { node, say: (name, text) => say(values[name], text) };
}
