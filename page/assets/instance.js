// One instance: the picture, the list, decisions, offences and what happened, at any moment of its history.

import * as api from "./api.js";
import { duration, element, say, set, shown } from "./dom.js";
import { History } from "./history.js";
import { exported, legend, Picture } from "./picture.js";
import { PromiseForm } from "./promise.js";
import { Strip } from "./strip.js";

const ROWS = 500;
const SPEEDS = [1, 4, 16, 64];

export function showInstance(content, id, phase, { connection }) {
  const view = new InstanceView(content, id, phase, connection);
  view.run();
  return () => view.close();
}

class InstanceView {
  constructor(content, id, phase, connection) {
    this.content = content;
    this.id = id;
    this.phase = phase;
    this.connection = connection;
    this.abort = new AbortController();
    this.steps = undefined; // shown: so many steps; undefined: the latest
    this.speed = 0;
    this.arrived = 0;
  }

  close() {
    this.abort.abort();
    this.observer?.disconnect();
    cancelAnimationFrame(this.pending);
    clearTimeout(this.timer);
  }

  // Receives until the end, and connects again where that helps.
  async run() {
    let wait = 250;
    while (!this.abort.signal.aborted) {
      try {
        await api.events(this.id, this.history?.next, this.abort.signal, (name, data) => {
          wait = 250;
          this.take(name, data);
        });
        return this.ended();
      } catch (error) {
        if (this.abort.signal.aborted) return;
        if (error instanceof api.Refused && error.status >= 400 && error.status < 500 && error.status !== 429) {
          this.connection(error.message);
          if (!this.history) this.content.replaceChildren(element("p", { class: "refused", text: error.message }));
          return;
        }
        this.connection(`not connected: trying again`);
        await new Promise((done) => setTimeout(done, wait));
        wait = Math.min(wait * 2, 5000);
      }
    }
  }

  take(name, data) {
    if (name === "setting") {
      this.connection(data.live ? "live" : "");
      if (!this.history) this.build(data);
    } else if (name === "frame") {
      this.history.take(data);
      this.arrived = performance.now();
      if (this.phase !== undefined && (this.history.steps.at(-1)?.phase ?? 0) >= this.phase) {
        this.steps = this.history.stepsUntil(this.phase);
        this.phase = undefined;
      }
      this.draw();
    } else if (name === "refused") throw new api.Refused(data.status, data.why);
  }

  async ended() {
    this.connection("");
    try {
      this.explain(await api.explanation(this.id));
    } catch (error) {
      this.why.replaceChildren(element("p", { class: "note", text: error.message }));
    }
  }

  build(setting) {
    this.setting = setting;
    this.history = new History(setting.processes, setting.first_event);
    this.picture = new Picture(setting, { choose: (process) => this.choose(process) });
    this.strip = new Strip(setting, { go: (steps) => this.go(steps) });
    this.facts = element("dl", { class: "facts" });
    this.fact = Object.fromEntries(["state", "phase", "round", "warp", "list", "awaited"].map((name) => {
      const value = element("dd");
      this.facts.append(element("div", {}, element("dt", { text: name === "awaited" ? "waits for" : name }), value));
      return [name, value];
    }));
    this.entries = element("ol", { class: "entries", start: "0", tabindex: "0" });
    this.decisions = element("ul", { class: "decisions", tabindex: "0" });
    this.offences = element("ul", { class: "offences", tabindex: "0" });
    this.log = element("ol", { class: "log", tabindex: "0" });
    this.why = element("div", { class: "why" });
    this.about = element("div", { class: "chosen-process", "aria-live": "polite" }, element("p", { class: "note", text: "Choose a process in the picture to see what it did." }));
    const stage = element("div", { class: "stage" }, this.picture.node);
    const panel = (title, ...children) => element("section", { class: "panel" }, element("h2", { text: title }), ...children);
    const gap = setting.first_event > 0 ? element("p", { class: "missing", text: `The events before number ${setting.first_event} are not kept any more: this picture begins without them.` }) : undefined;
    this.content.replaceChildren(
      element("header", { class: "title" },
        element("h1", { class: "name", text: shown(setting.title || setting.id, 120) }),
        element("p", { class: "note", text: `n = ${setting.processes} processes in W = ${setting.warps} warps of p = ${setting.warp_size}, reads of r = ${setting.read_size}. ${setting.words.join(" ")}` })),
      gap ?? "",
      this.facts, this.controls(), this.strip.node,
      element("div", { class: "columns" },
        element("div", { class: "wide" }, stage, element("details", { class: "keys", open: true }, element("summary", { text: "What the marks mean" }), legend(setting))),
        element("div", { class: "narrow" }, panel("The list", this.entries), panel("Decisions", this.decisions))),
      element("div", { class: "columns even" }, panel("The process", this.about), panel("What happened", this.log), panel("Offences", this.offences)),
      panel("Why", this.why), new PromiseForm(setting).node);
    this.why.append(element("p", { class: "note", text: "When the instance has ended it is told here what was decided, and why." }));
    this.observer = new ResizeObserver(([{ contentRect }]) => {
      this.picture.layout(contentRect.width);
      this.draw();
    });
    this.observer.observe(stage);
    document.title = `${shown(setting.title || setting.id, 40)} · StickyCAS`;
  }

  controls() {
    const button = (label, title, click) => element("button", { type: "button", "aria-label": title, title, text: label, on: { click } });
    this.slider = element("input", { type: "range", min: "0", max: "0", value: "0", class: "slider", "aria-label": "Phase", on: { input: () => this.go(Number(this.slider.value)) } });
    this.playing = button("▶", "Play", () => this.play());
    this.rate = element("select", { "aria-label": "Speed", on: { change: () => {} } }, ...SPEEDS.map((speed) => element("option", { value: speed, text: `${speed} phases/s`, selected: speed === 4 })));
    this.live = element("button", { type: "button", class: "live", text: "latest", on: { click: () => this.go(undefined) } });
    return element("div", { class: "controls", role: "group", "aria-label": "Time" },
      button("|◀", "To the beginning", () => this.go(0)), button("◀", "One phase back", () => this.go(this.at() - 1)), this.playing,
      button("▶|", "One phase on", () => this.go(this.at() + 1)), this.slider, this.rate, this.live,
      button("SVG", "Save this picture as SVG", () => this.save()),
      button("link", "Copy a link to this phase", () => navigator.clipboard?.writeText(location.href)));
  }

  // So many steps are shown.
  at() {
    return this.steps ?? this.history.steps.length;
  }

  go(steps, playing = false) {
    if (!playing) this.stop();
    const all = this.history.steps.length;
    this.steps = steps === undefined || (steps >= all && !this.speed) ? undefined : Math.max(0, Math.min(steps, all));
    const phase = this.steps === undefined ? undefined : (this.history.steps[this.steps - 1]?.phase ?? 0);
    const link = `#/instance/${encodeURIComponent(this.id)}${phase === undefined ? "" : `?phase=${phase}`}`;
    history.replaceState(null, "", link);
    this.draw();
  }

  play() {
    if (this.speed) return this.stop();
    if (this.at() >= this.history.steps.length) this.steps = 0;
    this.speed = 1;
    say(this.playing, "⏸");
    set(this.playing, "aria-label", "Pause");
    const next = () => {
      if (!this.speed) return;
      if (this.at() >= this.history.steps.length) return this.go(undefined);
      this.go(this.at() + 1, true);
      this.timer = setTimeout(next, 1000 / Number(this.rate.value));
    };
    next();
  }

  stop() {
    this.speed = 0;
    clearTimeout(this.timer);
    say(this.playing, "▶");
    set(this.playing, "aria-label", "Play");
  }

  save() {
    const { phase = 0 } = this.history.after(this.at());
    const file = new Blob([exported(this.picture, `${shown(this.setting.title || this.id, 60)}, phase ${phase}`)], { type: "image/svg+xml" });
    const link = element("a", { href: URL.createObjectURL(file), download: `phase-${phase}.svg` });
    link.click();
    URL.revokeObjectURL(link.href);
  }

  draw() {
    this.pending ??= requestAnimationFrame(() => {
      this.pending = undefined;
      this.drawNow();
    });
  }

  drawNow() {
    const { history } = this;
    const state = history.after(this.at());
    const latest = this.steps === undefined;
    const now = history.now(latest ? history.count : state.index);
    const elapsed = latest && this.setting.live && now?.open ? (performance.now() - this.arrived) * 1e6 : 0;
    this.picture.show(state, now, elapsed);
    set(this.slider, "max", String(history.steps.length));
    if (this.slider.value !== String(this.at())) this.slider.value = String(this.at());
    set(this.slider, "aria-valuetext", `phase ${state.phase}`);
    set(this.live, "aria-pressed", String(latest));
    this.strip.show(history, this.at());
    this.drawFacts(state, now, elapsed);
    this.drawEntries(state);
    this.drawDecisions(state);
    this.drawOffences(state);
    this.drawLog(state);
    if (latest && now?.open && this.setting.live && !state.ended) this.draw();
  }

  drawFacts(state, now, elapsed) {
    const { fact, setting } = this;
    const awaited = now?.awaited_count ?? 0;
    const first = now?.awaited?.[0];
    const left = first?.left_nanos === null ? "without end" : duration(Math.max(0, (first?.left_nanos ?? 0) - elapsed));
    say(fact.state, state.ended || now?.state || "");
    say(fact.phase, String(now?.phase ?? state.phase));
    say(fact.round, String(now?.round ?? Math.ceil(state.phase / setting.warps)));
    say(fact.warp, String(now?.warp ?? state.warp));
    say(fact.list, `${state.length} ${state.length === 1 ? "entry" : "entries"}${state.sealed ? ", sealed" : ""}`);
    const gathering = now?.state === "gathering";
    say(fact.awaited, awaited === 0 ? "nobody" : gathering ? `${awaited} to join` : `${awaited === 1 ? `process ${first.process}` : `${awaited} processes`}, ${left}`);
  }

  drawEntries(state) {
    const { entries } = this.history;
    const count = Math.min(state.entries, entries.length);
    const byzantine = this.setting.cast?.byzantine ?? {};
    reuse(this.entries, Math.min(count, ROWS), (at) => {
      const { process, phase, value } = entries[at];
      return element("li", { class: byzantine[process] !== undefined ? "of-byzantine" : undefined, value: at },
        element("bdi", { class: "value", text: shown(value, 40) }),
        element("button", { type: "button", class: "source", text: `process ${process}, phase ${phase}`, on: { click: () => this.jump(process, phase) } }));
    }, count > ROWS ? `and ${count - ROWS} more` : undefined);
  }

  jump(process, phase) {
    this.picture.pick(process);
    this.go(this.history.stepsUntil(phase));
  }

  drawDecisions(state) {
    const groups = new Map();
    for (const { process, value } of this.history.decisions.slice(0, state.decisions)) {
      const group = groups.get(value) ?? [];
      group.push(process);
      groups.set(value, group);
    }
    const all = [...groups].sort(([, one], [, other]) => other.length - one.length);
    const key = JSON.stringify(all.map(([value, processes]) => [value, processes.length]));
    if (this.drawnDecisions === key) return;
    this.drawnDecisions = key;
    this.decisions.replaceChildren(...all.slice(0, 32).map(([value, processes]) => element("li", {},
      element("bdi", { class: "value", text: shown(value, 40) }), element("span", { text: `${processes.length} of ${this.setting.processes}` }))));
    if (all.length === 0) this.decisions.append(element("li", { class: "note", text: "Nobody has decided." }));
  }

  drawOffences(state) {
    const all = this.history.offences.slice(0, state.offences).slice(-ROWS);
    reuse(this.offences, all.length, (at) => element("li", { text: `process ${all[at].process}: ${shown(all[at].detail, 200)}` }), undefined, `${state.offences}`);
    if (all.length === 0) this.offences.replaceChildren(element("li", { class: "note", text: "None is on record." }));
  }

  drawLog(state) {
    const { told } = this.history;
    const later = told.findLastIndex(({ count }) => count < state.index);
    const until = this.steps === undefined ? told.length : later + 1;
    const from = Math.max(0, until - 100);
    reuse(this.log, until - from, (at) => element("li", { text: shown(told[from + at].says, 240) }), undefined, `${from} ${until}`);
    if (this.steps === undefined && until > 0) this.tell(told[until - 1].says);
  }

  tell(text) {
    if (performance.now() - (this.lastTold ?? 0) < 2000) return;
    this.lastTold = performance.now();
    say(document.getElementById("told"), shown(text, 200));
  }

  async choose(process) {
    this.draw();
    const { names, cast } = this.setting;
    const played = cast?.byzantine?.[process];
    const title = element("h3", { text: `process ${process}${names.length ? ` · ${shown(names[process - 1], 80)}` : ""}` });
    const role = cast ? element("p", { class: "note", text: played === undefined ? `correct, proposes ${shown(cast.proposals[process - 1] ?? "", 60)}` : `Byzantine: plays ${shown(played, 120)}` }) : undefined;
    this.about.replaceChildren(title, role ?? "");
    try {
      const { sentences, left_out: leftOut } = await api.told(this.id, { process });
      this.about.append(element("ol", { class: "log", tabindex: "0" }, ...sentences.map((text) => element("li", { text: shown(text, 240) }))));
      if (leftOut > 0) this.about.append(element("p", { class: "note", text: `and ${leftOut} more` }));
    } catch (error) {
      this.about.append(element("p", { class: "note", text: error.message }));
    }
  }

  explain(sections) {
    this.why.replaceChildren(...sections.map(({ title, blocks }) => element("section", {}, element("h3", { text: shown(title, 300) }), ...blocks.map(block))));
  }
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

// A list with so many rows, of which those that are there stay. With a key all are made anew when it changes.
function reuse(list, count, make, rest, key) {
  if (key !== undefined && list.dataset.key !== key) list.replaceChildren();
  if (key !== undefined) list.dataset.key = key;
  if (list.lastElementChild?.className === "note") list.lastElementChild.remove();
  while (list.childElementCount > count) list.lastElementChild.remove();
  while (list.childElementCount < count) list.append(make(list.childElementCount));
  if (rest) list.append(element("li", { class: "note", text: rest }));
}
