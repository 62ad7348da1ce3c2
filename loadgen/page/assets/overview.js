// What the server does as a whole, second by second: small lines, and offences as they come.

import * as api from "./api.js";
import { duration, element, grouped, named, panel, say, set, shown, svg } from "./dom.js";
import { follow } from "./stream.js";

const SECONDS = 120;
const OFFENCES = 50;
const LINE = { width: 160, height: 34 };

// What is drawn as lines: title, value of a second, and the value in words. What only the metrics of the server tell may be missing.
const LINES = [
  ["accesses/s", ({ accesses }) => accesses, grouped],
  ["refusals/s", ({ refusals }) => refusals, grouped],
  ["call latency p50", ({ latency_ms: it }) => it?.p50, milliseconds],
  ["call latency p99", ({ latency_ms: it }) => it?.p99, milliseconds],
  ["live instances", ({ live }) => live, grouped],
  ["ended instances", ({ ended }) => ended, grouped],
];

export class Overview {
  constructor() {
    this.abort = new AbortController();
    this.lines = LINES.map(([title, value, words]) => new Line(title, value, words));
    this.offences = element("ul", { class: "sentences" }, element("li", { class: "note", text: "None since this page was opened." }));
    const log = element("div", { class: "rows", tabindex: "0", role: "region", "aria-label": "Offences as they come" }, this.offences);
    this.note = element("p", { class: "note" });
    this.node = element("div", { class: "overview" },
      element("div", { class: "lines" }, ...this.lines.map(({ node }) => node)), this.note, panel("Offences", log));
  }

  close() {
    this.abort.abort();
  }

  run() {
    const { signal } = this.abort;
    return follow({
      signal,
      open: () => api.openOverview(signal),
      take: (name, data) => name === "overview" && this.take(data),
      status: (state, error) => say(this.note, state === "connected" ? "" : shown(error.message, 300)),
    });
  }

  take(second) {
    for (const line of this.lines) line.take(second);
    if (second.accesses === null) say(this.note, "Accesses, latency and ended instances come from the server's metrics: view --metrics HOST:PORT.");
    if (second.offences.length + second.offence_kinds.length > 0) this.offences.querySelector(".note")?.remove();
    for (const { kind, count } of second.offence_kinds) {
      this.offences.prepend(element("li", { text: `${grouped(count)} x ${shown(kind, 40)} at any instance` }));
    }
    for (const { instance, name, process, says } of second.offences) {
      this.offences.prepend(element("li", {}, element("a", {
        href: `#/instance/${encodeURIComponent(instance)}${process ? `?process=${encodeURIComponent(process)}` : ""}`, text: named(name, instance, 40),
      }), element("span", { text: ` ${shown(says, 200)}` })));
    }
    while (this.offences.childElementCount > OFFENCES) this.offences.lastElementChild.remove();
  }
}

// The last seconds of a number.
class Line {
  constructor(title, value, words) {
    this.value = value;
    this.words = words;
    this.values = [];
    this.line = svg("path", { class: "line" });
    this.now = element("dd", { text: "-" });
    this.node = element("dl", { class: "sparkline" }, element("dt", { text: title }), this.now,
      svg("svg", { viewBox: `0 0 ${LINE.width} ${LINE.height}`, preserveAspectRatio: "none", "aria-hidden": "true" }, this.line));
  }

  take(second) {
    const value = this.value(second);
    const isKnown = value !== undefined && value !== null;
    say(this.now, isKnown ? this.words(value) : "-");
    if (!isKnown && this.values.length === 0) return;
    this.values.push(value ?? 0);
    if (this.values.length > SECONDS) this.values.shift();
    const most = Math.max(1e-9, ...this.values);
    const points = this.values.map((it, at) => {
      const x = LINE.width - (this.values.length - 1 - at) * (LINE.width / (SECONDS - 1));
      return `${x.toFixed(1)} ${(LINE.height - 1 - (it / most) * (LINE.height - 3)).toFixed(1)}`;
    });
    set(this.line, "d", `M${points.join("L")}`);
  }
}

function milliseconds(value) {
  return duration(value * 1e6);
}
