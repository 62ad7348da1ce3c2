// One instance: receives its events, and shows it at any moment of its history.

import * as api from "./api.js";
import { Clock, facts } from "./clock.js";
import { button, duration, element, grouped, named, panel, say, shown } from "./dom.js";
import { History } from "./history.js";
import { legend } from "./legend.js";
import { onOtherColours } from "./palette.js";
import { DecisionsPanel, EntriesPanel, OffencesPanel, ProcessPanel, reasons, SentencesPanel } from "./panels.js";
import { Picture } from "./picture.js";
import { PromiseForm } from "./promise.js";
import { Story } from "./story.js";
import { follow } from "./stream.js";
import { Strip } from "./strip.js";
import { decisionsOf, VerdictLine } from "./verdict.js";
import { WarpsTable } from "./warps.js";

// Milliseconds between announcements to those who hear the page, between two changes of the address, and, if less motion is wanted,
// between two pictures.
const ANNOUNCED = 4000;
const ADDRESSED = 300;
const CALM = 250;

export function showInstance(content, id, options, { connection }) {
  const view = new InstanceView(content, id, options, connection);
  view.run();
  return () => view.close();
}

class InstanceView {
  constructor(content, id, options, connection) {
    this.content = content;
    this.id = id;
    // What the link names, until it is there.
    this.wanted = { phase: numberOf(options, "phase"), process: numberOf(options, "process") };
    this.connection = connection;
    this.abort = new AbortController();
    this.arrived = 0;
    this.calm = matchMedia("(prefers-reduced-motion: reduce)");
  }

  close() {
    this.abort.abort();
    this.observer?.disconnect();
    this.clock?.stop();
    this.unlisten?.();
    cancelAnimationFrame(this.pending);
    clearTimeout(this.calmTimer);
    clearTimeout(this.addressTimer);
    clearTimeout(this.tellTimer);
  }

  async run() {
    const { signal } = this.abort;
    await follow({
      signal,
      open: () => api.openInstance(this.id, this.history?.next, signal),
      take: (name, data) => this.take(name, data),
      status: (...status) => this.status(...status),
    });
  }

  status(state, error, wait) {
    if (state === "connected") this.connection("connected");
    else if (state === "lost") this.connection(`reconnecting in ${Math.ceil(wait / 1000)} s: ${error.message}`, "lost");
    else this.refused(error);
  }

  // The server answers, and does not show this instance (any more).
  refused(error) {
    this.connection("not connected", "lost");
    const lines = [error.message, ...advice(error, this.history !== undefined)];
    const note = element("div", { class: "refused", role: "alert" }, ...lines.map((text) => element("p", { text: shown(text, 500) })));
    if (error.status === 409) note.append(button("Show it from the beginning", () => dispatchEvent(new HashChangeEvent("hashchange"))));
    if (this.notice?.isConnected) this.notice.replaceChildren(note);
    else this.content.replaceChildren(note);
  }

  take(name, data) {
    if (name === "setting") this.takeSetting(data);
    else if (name === "snapshot") this.takeSnapshot(data);
    else if (name === "frame") this.takeFrame(data);
    else if (name === "end") this.ended();
  }

  takeSetting(setting) {
    this.connection(setting.live ? "live" : "recorded", setting.live ? "live" : "");
    if (this.setting) return;
    this.setting = setting;
    this.begin(new History(setting));
    this.build();
  }

  // A snapshot stands for events that this viewer is not sent. If it has them already, it goes on with them.
  takeSnapshot(snapshot) {
    if (snapshot.index <= this.history.next && this.history.count > 0) return;
    this.clock.stop();
    this.begin(new History(this.setting, snapshot));
    this.clock.steps = undefined;
    this.sayMissing(snapshot);
    this.arrived = performance.now();
    this.draw();
  }

  begin(history) {
    this.history = history;
    this.announced = undefined;
    if (this.clock) this.clock.history = history;
  }

  sayMissing({ index, missing, untold = 0 }) {
    const begins = missing > 0
      ? `The first ${grouped(missing)} events are not kept any more: the history below begins with event ${index}, from the state of that moment.`
      : `The history below begins with event ${index}, from the state of that moment.`;
    const text = untold > 0 ? `${begins} ${grouped(untold)} marks are missing: the server does not tell whose they are.` : begins;
    this.notice.replaceChildren(element("p", { class: "missing", text }));
  }

  takeFrame(frame) {
    this.history.take(frame);
    this.arrived = performance.now();
    this.goToWanted();
    this.draw();
  }

  goToWanted() {
    const { phase, process } = this.wanted;
    const { steps } = this.history;
    if (process !== undefined && process >= 1 && process <= this.setting.processes) {
      this.wanted.process = undefined;
      this.picture.pick(process);
    }
    if (phase === undefined || (steps.length > 0 ? steps.phase(steps.length - 1) : 0) < phase) return;
    this.wanted.phase = undefined;
    this.clock.move(this.history.stepsUntil(phase));
  }

  async ended() {
    this.connection(this.setting.live ? "ended" : "recorded");
    let told;
    try {
      const explained = await api.explanation(this.id);
      told = reasons(explained.sections);
      this.reasons = explained;
    } catch (error) {
      told = [element("p", { class: "note", text: shown(error.message, 500) })];
      this.reasons = { headline: `no verdict: ${error.message}`, verdict: "none" };
    }
    if (this.abort.signal.aborted) return;
    this.why.replaceChildren(...told);
    this.draw();
  }

  build() {
    const { setting } = this;
    this.clock = new Clock({ changed: () => this.scrubbed() });
    this.clock.history = this.history;
    this.picture = new Picture(setting, { choose: (...chosen) => this.choose(...chosen) });
    this.strip = new Strip(setting, { go: (steps) => this.clock.go(steps), slider: this.clock.slider });
    this.clock.node.append(this.strip.names, this.strip.node);
    this.verdict = new VerdictLine(setting, { why: () => this.whyPanel.scrollIntoView() });
    this.facts = facts([["state", "state"], ["phase", "phase"], ["warp", "warp"], ["list", "list"], ["awaited", "waits for"], ["decided", "have decided"]]);
    const jump = (process, phase) => this.picture.pick(process, phase);
    this.entries = new EntriesPanel(setting, { jump });
    this.decisions = new DecisionsPanel(setting);
    this.offences = new OffencesPanel();
    this.sentences = new SentencesPanel();
    this.process = new ProcessPanel(setting, { pick: jump });
    this.warps = new WarpsTable(setting);
    this.story = new Story(setting.story ?? [], { go: (phase) => this.clock.go(this.history.stepsUntil(phase)) });
    this.notice = element("div");
    this.why = element("div", { class: "why" });
    this.toLatest = button("go to the latest phase", () => this.clock.go(undefined), { class: "link" });
    this.whyLater = element("p", { class: "note" }, "When the instance has ended, here is what was decided, and why. ", this.toLatest);
    this.whyPanel = panel("Why", this.whyLater, this.why);
    if (setting.first_event > 0) this.sayMissing({ index: setting.first_event, missing: setting.first_event });
    this.place();
    this.observer = new ResizeObserver(([{ contentRect }]) => {
      this.picture.resize(contentRect.width);
      this.stage.classList.toggle("is-tall", this.picture.layout.height > 0.75 * innerHeight);
      this.draw();
    });
    this.observer.observe(this.stage);
    this.unlisten = onOtherColours(() => this.recolour());
    document.title = `${shown(setting.title || setting.id, 40)} · StickyCAS`;
  }

  place() {
    const { setting } = this;
    const numbers = [sizes(setting), ...setting.words].join(" ");
    this.stage = element("div", { class: "stage" }, this.picture.node);
    this.keys = element("details", { class: "keys", open: matchMedia("(min-width: 60rem)").matches },
      element("summary", { text: "What the signs mean" }), legend(setting));
    this.content.replaceChildren(
      element("div", { class: "title" }, element("div", {}, element("h1", { text: named(setting.title, setting.id, 120) }), element("p", { class: "note", text: numbers })), this.verdict.node),
      this.notice, this.facts.node, this.story.node ?? "",
      element("div", { class: "time" }, this.clock.node),
      element("div", { class: "columns" },
        element("div", { class: "wide" }, this.stage, this.buttons(), this.keys, this.warps.node),
        element("div", { class: "narrow" }, panel("The list", this.entries.node), panel("Decisions", this.decisions.node), panel("A process", this.process.node))),
      element("div", { class: "columns even" }, element("div", { class: "narrow" }, panel("What happened", this.sentences.node), panel("Offences", this.offences.node)),
        new PromiseForm(setting).node),
      this.whyPanel);
  }

  buttons() {
    const copied = element("span", { class: "note", role: "status" });
    const copy = async () => {
      this.address();
      await navigator.clipboard?.writeText(location.href).then(() => say(copied, "copied"), () => say(copied, "the address bar has it"));
    };
    return element("p", { class: "pages" }, button("Save as SVG", () => this.save()), button("Copy the link to this phase", copy), copied);
  }

  recolour() {
    this.picture.forget();
    this.strip.forget();
    this.keys.lastElementChild.replaceWith(legend(this.setting));
    this.drawNow();
  }

  // Who goes elsewhere does not want the phase of the link any more.
  scrubbed() {
    this.wanted.phase = undefined;
    this.moved();
  }

  moved() {
    clearTimeout(this.addressTimer);
    this.addressTimer = setTimeout(() => this.address(), ADDRESSED);
    this.draw();
  }

  // Makes the address name this moment.
  address() {
    const options = new URLSearchParams();
    if (!this.clock.isLatest) options.set("phase", this.history.after(this.clock.at).phase);
    if (this.picture.chosen > 0) options.set("process", this.picture.chosen);
    const rest = options.toString();
    history.replaceState(null, "", `#/instance/${encodeURIComponent(this.id)}${rest ? `?${rest}` : ""}`);
  }

  save() {
    const { phase } = this.picture.moment;
    const { title, id } = this.setting;
    const caption = `${named(title, id, 80)}, phase ${phase}`;
    const address = URL.createObjectURL(new Blob([this.picture.exported(caption)], { type: "image/svg+xml" }));
    element("a", { href: address, download: `${named("", id).replace(/[^\w.-]+/g, "-")}-phase-${phase}.svg` }).click();
    setTimeout(() => URL.revokeObjectURL(address), 1000);
  }

  choose(process, phase) {
    if (phase !== undefined) this.clock.go(this.history.stepsUntil(phase));
    else this.moved();
    this.process.show(process);
    this.drawNow();
    say(document.getElementById("told"), this.picture.sentence(process));
  }

  draw() {
    if (this.pending || this.calmTimer) return;
    this.pending = requestAnimationFrame(() => {
      this.pending = undefined;
      this.drawNow();
    });
  }

  drawNow() {
    const { history, clock } = this;
    const state = history.after(clock.at);
    const now = history.now(clock.isLatest ? history.count : state.index);
    const isDraining = clock.isLatest && this.setting.live && !state.ended && now?.awaited_count > 0 && now.open;
    const moment = momentOf(this.setting, history, state, now, { decisions: this.decisionsAt(state), isLive: clock.isLatest && this.setting.live, elapsed: isDraining ? (performance.now() - this.arrived) * 1e6 : 0 });
    this.picture.show(moment);
    this.picture.reveal(this.stage);
    clock.show(moment.phase);
    this.strip.show(history, clock.at);
    this.drawVerdict(state, moment);
    this.drawFacts(state, now, moment);
    this.entries.show(history, state);
    this.decisions.show(history, state);
    this.offences.show(history, state);
    this.sentences.show(history, clock.isLatest ? history.count : state.index);
    this.warps.show(state, moment.lit);
    this.story.show(state.phase);
    this.announce(state);
    if (isDraining) this.drawLater();
  }

  decisionsAt(state) {
    const key = `${this.history.key} ${state.decisions} ${state.offences}`;
    if (this.decided?.key !== key) this.decided = { key, values: decisionsOf(this.setting, this.history, state) };
    return this.decided.values;
  }

  // A moment before the last tells nothing of what came later.
  drawVerdict(state, { decisions }) {
    const isEnd = state === this.history.latest && this.reasons !== undefined;
    this.verdict.show(decisions, isEnd ? this.reasons : undefined);
    this.why.hidden = !isEnd;
    this.whyLater.hidden = isEnd;
    this.toLatest.hidden = this.clock.isLatest;
    this.process.showUntil(state === this.history.latest ? Infinity : state.next);
  }

  // Draws the draining patience again: at once, or calmly if less motion is wanted.
  drawLater() {
    if (!this.calm.matches) return this.draw();
    this.calmTimer ??= setTimeout(() => {
      this.calmTimer = undefined;
      this.draw();
    }, CALM);
  }

  drawFacts(state, now, moment) {
    const { facts: { say: tell }, setting } = this;
    tell("state", state.ended || (state.gathered ? "running" : "gathering"));
    tell("phase", grouped(moment.phase));
    tell("warp", moment.lit ? `${grouped(moment.lit)}, round ${grouped(Math.ceil(moment.phase / setting.warps))}` : "-");
    tell("list", state.sealed ? `${grouped(state.length)}, sealed` : `${grouped(state.length)} ${state.length === 1 ? "entry" : "entries"}`);
    tell("awaited", awaitedWords(state, now, moment));
    tell("decided", `${grouped(state.decisions)} of ${grouped(setting.processes)}`);
  }

  announce(state) {
    const { history, clock } = this;
    const last = history.sentences(clock.isLatest ? history.count : state.index);
    if (last === this.announced || last === history.toldDropped) return;
    const wait = (this.announcedAt ?? 0) + ANNOUNCED - performance.now();
    if (wait > 0) return this.announceLater(wait);
    this.announcedAt = performance.now();
    this.announced = last;
    say(document.getElementById("told"), shown(history.sentence(last - 1).says, 200));
  }

  // What is the last then, so that the end is heard too.
  announceLater(wait) {
    this.tellTimer ??= setTimeout(() => {
      this.tellTimer = undefined;
      this.announce(this.history.after(this.clock.at));
    }, wait);
  }
}

// The numbers of an instance, for who does not know what a warp is.
function sizes({ processes, warps, warp_size: p, read_size: r }) {
  const groups = warps === 1 ? "one group (a warp)" : `${grouped(warps)} groups (warps) of ${grouped(p)}${processes % p > 0 ? " or fewer" : ""}`;
  return `${grouped(processes)} processes in ${groups}; a read returns ${r === 1 ? "one entry" : `up to ${grouped(r)} entries`}.`;
}

function numberOf(options, name) {
  const text = options.get(name) ?? "";
  return /^\d{1,15}$/.test(text) ? Number(text) : undefined;
}

// What is drawn of a moment. The warp that is lit is that of the open phase; of a moment in the past, that of the phase that was
// executed last, and the warp whose turn is next is marked too.
function momentOf(setting, history, state, now, { decisions, isLive, elapsed }) {
  const isOpen = isLive && !state.ended && now?.phase > 0;
  const awaited = new Map();
  const list = state.ended || !now ? [] : now.awaited;
  for (let at = 0; now?.state !== "gathering" && at < list.length; at += 2) {
    awaited.set(list[at], list[at + 1] === Infinity ? 1 : Math.max(0, list[at + 1] - elapsed) / (setting.patience_nanos || 1));
  }
  return {
    state, awaited, elapsed, entries: history.entries, entriesBefore: history.entriesBefore, decided: history.decided, decisions,
    phase: isOpen ? now.phase : state.phase, lit: isOpen ? now.warp : state.warp,
    next: !isOpen && !state.ended && now?.phase > state.phase ? now.warp : 0,
  };
}

function awaitedWords(state, now, { elapsed }) {
  const count = state.ended ? 0 : now?.awaited_count ?? 0;
  if (count === 0) return "-";
  if (now.state === "gathering") return `${grouped(count)} to join`;
  const [process, left = Infinity] = now.awaited;
  const time = left === Infinity ? "" : ` (${duration(Math.max(0, left - elapsed))})`;
  return `${count === 1 && process ? `process ${process}` : grouped(count)}${time}`;
}

// What to do about a refusal, besides what the server says.
function advice(error, wasShown) {
  const lines = [];
  if (error.status === 401) lines.push("A page that is loaded again needs the link again.");
  if (error.status === 403) lines.push("It is for its members, its creator and observers.");
  if (error.status === 404 && wasShown) lines.push("The server does not know this instance any more: it was started again without it, or the instance has expired. What is shown is what was received before.");
  if (error.status === 409 && wasShown) lines.push("The server has been started again, and its history is shorter than what was received before.");
  return lines;
}
