// The events of an instance in few bytes, and the state after any of them.
//
// An event is four numbers. Copies of the state at some places make it quick to go back.

import { MARK, State } from "./state.js";

const FIELDS = 4;
const CHUNK = 1 << 14;
// Events that are kept: 32 MiB. Of a longer history the first ones are dropped.
const KEPT = 1 << 21;
// Sentences and states of the server that are kept.
const SENTENCES = 10_000;
const FRAMES = 20_000;
// Awaited processes that are kept in all these states together.
const AWAITED = 200_000;

const KINDS = [
  "joined", "session", "append", "read", "refused", "gathering_ended", "patience_spent", "stepped", "added", "won",
  "failed", "limit", "answer", "sealed", "decided", "withdrawn", "offence", "finished", "closed", "restarted", "rejoined",
  "late",
];
const KIND = Object.fromEntries(KINDS.map((name, number) => [name, number]));

// An event of history.ndjson as numbers.
function encode(event) {
  const { event: name, process = 0 } = event;
  switch (name) {
    case "accepted":
      return [event.op.read === undefined ? KIND.append : KIND.read, process, event.number, 0];
    case "answered": {
      const { append, read } = event.answer;
      if (read) return [KIND.answer, process, read.start + read.count, event.phase];
      if (append === "failed") return [KIND.failed, process, 0, event.phase];
      if (append === "limit_reached") return [KIND.limit, process, 0, event.phase];
      return [KIND.won, process, append.success ?? 0, event.phase];
    }
    case "stepped":
      return [KIND.stepped, event.warp, event.phase, event.length];
    case "added":
      return [KIND.added, process, event.position, event.phase];
    case "sealed":
      return [KIND.sealed, 0, event.phase, event.length];
    case "offence":
      return [KIND.offence, process, event.phase ?? 0, 0];
    default:
      return [KIND[name] ?? KIND.rejoined, process, event.number ?? 0, 0];
  }
}

// Four numbers for each step: behind how many events it stands, its phase, its warp, negative if it added an entry, and behind how
// many events the first patience was spent after it, if one was.
const STEP = 4;

class Steps {
  constructor() {
    this.numbers = new Int32Array(STEP * 1024);
    this.length = 0;
  }

  push(count, phase, warp) {
    if (STEP * this.length === this.numbers.length) {
      const larger = new Int32Array(2 * this.numbers.length);
      larger.set(this.numbers);
      this.numbers = larger;
    }
    this.numbers.set([count, phase, warp, 0], STEP * this.length);
    this.length += 1;
  }

  lastAdded() {
    const place = STEP * (this.length - 1) + 2;
    if (this.length > 0 && this.numbers[place] > 0) this.numbers[place] *= -1;
  }

  patienceSpent(count) {
    const place = STEP * (this.length - 1) + 3;
    if (this.length > 0 && this.numbers[place] === 0) this.numbers[place] = count;
  }

  count(step) {
    return this.numbers[STEP * step];
  }

  phase(step) {
    return this.numbers[STEP * step + 1];
  }

  warp(step) {
    return Math.abs(this.numbers[STEP * step + 2]);
  }

  added(step) {
    return this.numbers[STEP * step + 2] < 0;
  }

  // How many events belong to the first so many steps: those before the next step, and before the end of the wait for it.
  countAfter(steps) {
    return (steps > 0 && this.numbers[STEP * (steps - 1) + 3]) || this.count(steps);
  }

  // How many steps stand before this many events, or before a phase behind this one.
  before(limit, field) {
    let [low, high] = [0, this.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.numbers[STEP * middle + field] < limit) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

export class History {
  static made = 0;

  // A history that begins with the first event, or with a snapshot of the state before it.
  constructor(setting, snapshot) {
    // Rows of one history are not those of another.
    this.key = History.made += 1;
    this.processes = setting.processes;
    this.next = snapshot?.index ?? setting.first_event ?? 0;
    this.chunks = [];
    this.count = 0;
    this.dropped = 0;
    // Append-only, so a state needs only their lengths.
    this.entries = [];
    this.entriesBefore = 0;
    this.decisions = [];
    this.decided = new Map();
    this.offences = [];
    this.steps = new Steps();
    this.frames = [];
    this.framesCut = 0;
    this.awaitedKept = 0;
    // Sentences, each with how many events are before its own, and how many were dropped.
    this.told = [];
    this.toldDropped = 0;
    this.latest = new State(setting.processes, setting.warp_size);
    this.latest.next = this.next;
    if (snapshot) this.begin(snapshot);
    this.copies = [this.latest.copy()];
    this.cursor = undefined;
  }

  begin(snapshot) {
    this.entries = snapshot.entries.map(([position, process, phase, value]) => ({ position, process, phase, value }));
    this.entriesBefore = snapshot.length - snapshot.entries.length;
    this.latest.restore(snapshot);
    this.keepState(snapshot.now);
  }

  // Takes a frame. Events that are here already, after a reconnection, are passed over.
  take({ events, late = [], now }) {
    for (const event of events) {
      if (event.index < this.next) continue;
      if (event.index > this.next) throw new Error(`event ${this.next} is missing`);
      if (event.says) this.told.push({ count: this.count, says: event.says, kind: event.event });
      this.next += 1;
      this.keepTexts(event);
      this.push(encode(event));
    }
    for (const process of late) this.push([KIND.late, process, 0, 0]);
    if (now) this.keepState(now);
    if (this.told.length > SENTENCES) this.toldDropped += this.told.splice(0, SENTENCES / 2).length;
  }

  keepTexts({ event, process, position, phase, value, detail, from }) {
    if (event === "added") this.entries.push({ position, process, phase, value });
    else if (event === "decided") this.keepDecision(process, value, from);
    else if (event === "offence") this.offences.push({ process, phase, detail });
  }

  keepDecision(process, value, from) {
    this.decisions.push({ process, value, from });
    if (!this.decided.has(process)) this.decided.set(process, value);
  }

  // Keeps what the server said of this moment; of old ones only how many processes were awaited.
  keepState(now) {
    const awaited = Float64Array.from(now.awaited.flatMap(({ process, left_nanos: left }) => [process, left ?? Infinity]));
    this.frames.push({ count: this.count, now: { ...now, awaited } });
    this.awaitedKept += now.awaited.length;
    while (this.awaitedKept > AWAITED) {
      const old = this.frames[this.framesCut];
      this.awaitedKept -= old.now.awaited.length / 2;
      old.now.awaited = new Float64Array();
      this.framesCut += 1;
    }
    if (this.frames.length > FRAMES) {
      for (const { now: old } of this.frames.splice(0, FRAMES / 2)) this.awaitedKept -= old.awaited.length / 2;
      this.framesCut = Math.max(0, this.framesCut - FRAMES / 2);
    }
  }

  push(fields) {
    const place = this.count % CHUNK;
    if (place === 0) this.chunks.push(new Int32Array(CHUNK * FIELDS));
    this.chunks.at(-1).set(fields, place * FIELDS);
    const [kind, warp, phase] = fields;
    if (kind === KIND.stepped) this.steps.push(this.count, phase, warp);
    else if (kind === KIND.added) this.steps.lastAdded();
    else if (kind === KIND.patience_spent) this.steps.patienceSpent(this.count);
    this.count += 1;
    this.apply(this.latest, this.count - 1);
    if (this.count - this.copies.at(-1).index >= Math.max(4 * this.processes, CHUNK)) this.copies.push(this.latest.copy());
    if (this.count - this.dropped > KEPT) this.drop();
  }

  drop() {
    const until = this.copies.findIndex((copy) => copy.index >= this.dropped + KEPT / 4);
    this.copies.splice(0, until);
    this.dropped = this.copies[0].index;
    this.cursor = undefined;
    for (let chunk = 0; (chunk + 1) * CHUNK <= this.dropped; chunk += 1) this.chunks[chunk] = undefined;
  }

  // The first number of steps whose state is still known.
  get firstSteps() {
    return this.dropped === 0 ? 0 : this.steps.before(this.dropped, 0);
  }

  apply(state, place) {
    const chunk = this.chunks[Math.floor(place / CHUNK)];
    const at = (place % CHUNK) * FIELDS;
    const [kind, process, a, b] = [chunk[at], chunk[at + 1], chunk[at + 2], chunk[at + 3]];
    const of = process - 1;
    state.index = place + 1;
    if (kind !== KIND.late) state.next += 1;
    switch (kind) {
      case KIND.joined: state.mark(of, MARK.joined); break;
      case KIND.append: case KIND.read: state.waiting[of] += 1; break;
      case KIND.refused: state.mark(of, MARK.refused); break;
      case KIND.gathering_ended: state.gathered = true; break;
      case KIND.patience_spent: state.mark(of, MARK.given_up); break;
      case KIND.stepped: [state.warp, state.phase, state.length] = [process, a, b]; state.steps += 1; break;
      case KIND.added: state.entries += 1; state.length += 1; break;
      case KIND.won: state.mark(of, MARK.won); state.position[of] = a; state.answered(of, b); break;
      case KIND.failed: state.mark(of, MARK.failed); state.answered(of, b); break;
      case KIND.limit: state.mark(of, MARK.limit); state.answered(of, b); break;
      case KIND.answer: state.readTo[of] = a; state.answered(of, b); break;
      case KIND.sealed: state.sealed = a; break;
      case KIND.decided: state.mark(of, MARK.left); state.decisions += 1; break;
      case KIND.withdrawn: state.waitsLess(of); break;
      case KIND.offence: state.mark(of, MARK.accused); state.offences += 1; break;
      case KIND.finished: state.ended = "finished"; break;
      case KIND.closed: state.ended = "closed"; break;
      case KIND.late: state.mark(of, MARK.late); break;
    }
  }

  // The state after so many steps, while the next one is waited for; before the first step: 0.
  after(steps) {
    if (steps >= this.steps.length) return this.latest;
    const until = Math.max(this.steps.countAfter(steps), this.dropped);
    const copy = this.copies[this.copies.findLastIndex(({ index }) => index <= until)];
    if (!this.cursor || this.cursor.index > until || this.cursor.index < copy.index) this.cursor = copy.copy();
    for (let place = this.cursor.index; place < until; place += 1) this.apply(this.cursor, place);
    return this.cursor;
  }

  // What the server said of the moment at which so many events were there, if it said something after the step before it.
  now(count) {
    let [low, high] = [0, this.frames.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.frames[middle].count <= count) low = middle + 1;
      else high = middle;
    }
    const steps = this.steps.before(count, 0);
    const since = steps > 0 ? this.steps.count(steps - 1) : -1;
    return this.frames[low - 1]?.count > since ? this.frames[low - 1].now : undefined;
  }

  // How many sentences belong to the first so many events.
  sentences(count) {
    return this.toldDropped + this.told.findLastIndex((it) => it.count < count) + 1;
  }

  sentence(at) {
    return this.told[at - this.toldDropped];
  }

  // How many steps there are up to this phase.
  stepsUntil(phase) {
    return this.steps.before(phase + 1, 1);
  }
}
