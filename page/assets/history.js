// The events of an instance in few bytes, and the state after any of them.
//
// An event is four numbers; texts stand beside. Copies of the state at some places make it quick to go back.

const FIELDS = 4;
const CHUNK = 1 << 14;
// Events that are kept: 32 MiB. Of a longer history the first ones are dropped.
const KEPT = 1 << 21;

const KINDS = [
  "joined", "session", "append", "read", "refused", "gathering_ended", "patience_spent", "stepped", "added", "won",
  "failed", "limit", "answer", "sealed", "decided", "withdrawn", "offence", "finished", "closed", "restarted", "rejoined",
  "late",
];
const KIND = Object.fromEntries(KINDS.map((name, number) => [name, number]));

// Marks of a process.
export const MARK = {
  joined: 1, won: 2, failed: 4, limit: 8, left: 16, given_up: 32, late: 64, accused: 128, refused: 256, executed: 512,
};

// An event of history.ndjson as numbers, and its text.
function encode(event) {
  const { event: name, process = 0 } = event;
  switch (name) {
    case "accepted":
      return event.op.read === undefined
        ? [KIND.append, process, event.number, 0, event.op.append]
        : [KIND.read, process, event.number, event.op.read.start ?? event.op.read];
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
      return [KIND.added, process, event.position, event.phase, event.value];
    case "sealed":
      return [KIND.sealed, 0, event.phase, event.length];
    case "decided":
      return [KIND.decided, process, 0, 0, event.value];
    case "gathering_ended":
      return [KIND.gathering_ended, 0, event.joined, 0];
    case "offence":
      return [KIND.offence, process, event.phase ?? 0, 0, event.detail];
    default:
      return [KIND[name] ?? KIND.rejoined, process, event.number ?? 0, 0];
  }
}

// The state of an instance after some events.
export class State {
  constructor(processes) {
    this.marks = new Uint16Array(processes);
    // How many accesses wait, the last entry read, and where an append won.
    this.waiting = new Uint16Array(processes);
    this.readTo = new Int32Array(processes);
    this.position = new Int32Array(processes).fill(-1);
    this.index = 0;
    this.phase = 0;
    this.warp = 0;
    this.length = 0;
    this.sealed = false;
    this.gathered = false;
    this.ended = "";
    this.entries = 0;
    this.decisions = 0;
    this.offences = 0;
    this.steps = 0;
  }

  copy() {
    const copy = Object.assign(Object.create(State.prototype), this);
    for (const name of ["marks", "waiting", "readTo", "position"]) copy[name] = this[name].slice();
    return copy;
  }
}

export class History {
  constructor(processes, first) {
    this.processes = processes;
    this.first = first;
    this.chunks = [];
    this.count = 0;
    this.dropped = 0;
    this.texts = new Map();
    // Append-only, so a state needs only their lengths.
    this.entries = [];
    this.decisions = [];
    this.offences = [];
    // Of each step: behind how many events it stands, its phase and warp, and whether it added an entry.
    this.steps = [];
    this.frames = [];
    // Sentences, each with how many events are before its own.
    this.told = [];
    // Events of the server; those that are counted are these and marks of ours.
    this.events = 0;
    this.latest = new State(processes);
    this.copies = [this.latest.copy()];
  }

  // The index of the next event.
  get next() {
    return this.first + this.events;
  }

  // Takes a frame. Events that are here already, after a reconnection, are passed over.
  take({ events, late = [], now }) {
    for (const event of events) {
      if (event.index < this.next) continue;
      if (event.index > this.next) throw new Error(`event ${this.next} is missing`);
      if (event.says) this.told.push({ count: this.count, says: event.says });
      this.events += 1;
      this.push(encode(event));
    }
    for (const process of late) this.push([KIND.late, process, 0, 0]);
    if (now) this.frames.push({ count: this.count, now });
    if (this.frames.length > 40000) this.frames.splice(0, 20000);
  }

  push([kind, process, a, b, text]) {
    const place = this.count % CHUNK;
    if (place === 0) this.chunks.push(new Int32Array(CHUNK * FIELDS));
    this.chunks.at(-1).set([kind, process, a, b], place * FIELDS);
    if (text !== undefined) this.texts.set(this.count, text);
    this.count += 1;
    if (kind === KIND.added) {
      this.entries.push({ position: a, process, phase: b, value: text });
      this.steps.at(-1).added = true;
    } else if (kind === KIND.decided) this.decisions.push({ process, value: text });
    else if (kind === KIND.offence) this.offences.push({ process, phase: a, detail: text });
    else if (kind === KIND.stepped) this.steps.push({ count: this.count - 1, phase: a, warp: process, added: false });
    this.apply(this.latest, this.count - 1);
    if (this.count - this.copies.at(-1).index >= Math.max(4 * this.processes, CHUNK)) this.copies.push(this.latest.copy());
    if (this.count - this.dropped > KEPT) this.drop();
  }

  drop() {
    const until = this.copies.find((copy) => copy.index >= this.dropped + KEPT / 4);
    this.copies.splice(0, this.copies.indexOf(until));
    this.dropped = until.index;
    for (let chunk = 0; (chunk + 1) * CHUNK <= this.dropped; chunk += 1) this.chunks[chunk] = undefined;
    for (const place of this.texts.keys()) if (place < this.dropped) this.texts.delete(place);
  }

  apply(state, place) {
    const chunk = this.chunks[Math.floor(place / CHUNK)];
    const at = (place % CHUNK) * FIELDS;
    const [kind, process, a, b] = [chunk[at], chunk[at + 1], chunk[at + 2], chunk[at + 3]];
    const of = process - 1;
    const mark = (bit) => {
      state.marks[of] |= bit;
    };
    state.index = place + 1;
    switch (kind) {
      case KIND.joined: mark(MARK.joined); break;
      case KIND.append: case KIND.read: state.waiting[of] += 1; break;
      case KIND.refused: mark(MARK.refused); break;
      case KIND.gathering_ended: state.gathered = true; break;
      case KIND.patience_spent: mark(MARK.given_up); break;
      case KIND.stepped: [state.warp, state.phase, state.length] = [process, a, b]; state.steps += 1; break;
      case KIND.added: state.entries += 1; state.length += 1; break;
      case KIND.won: mark(MARK.won | MARK.executed); state.position[of] = a; state.waiting[of] -= 1; break;
      case KIND.failed: mark(MARK.failed | MARK.executed); state.waiting[of] -= 1; break;
      case KIND.limit: mark(MARK.limit | MARK.executed); state.waiting[of] -= 1; break;
      case KIND.answer: mark(MARK.executed); state.readTo[of] = a; state.waiting[of] -= 1; break;
      case KIND.sealed: state.sealed = true; break;
      case KIND.decided: mark(MARK.left); state.decisions += 1; break;
      case KIND.withdrawn: state.waiting[of] -= 1; break;
      case KIND.offence: mark(MARK.accused); state.offences += 1; break;
      case KIND.finished: state.ended = "finished"; break;
      case KIND.closed: state.ended = "closed"; break;
      case KIND.late: mark(MARK.late); break;
    }
  }

  // The state after so many steps, with everything that followed the last of them; before the first step: 0.
  after(steps) {
    if (steps >= this.steps.length) return this.latest;
    const until = Math.max(this.steps[steps].count, this.dropped);
    let from = this.copies.length - 1;
    while (from > 0 && this.copies[from].index > until) from -= 1;
    const state = this.copies[from].copy();
    for (let place = state.index; place < until; place += 1) this.apply(state, place);
    return state;
  }

  // What the server said of the moment at which so many events were there.
  now(count) {
    let [low, high] = [0, this.frames.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.frames[middle].count <= count) low = middle + 1;
      else high = middle;
    }
    return this.frames[low - 1]?.now;
  }

  // How many steps there are up to this phase.
  stepsUntil(phase) {
    const later = this.steps.findIndex((step) => step.phase > phase);
    return later === -1 ? this.steps.length : later;
  }
}
