// The state of an instance after some events.

// Marks of a process, as bits. Snapshots have the same.
export const MARK = {
  joined: 1, won: 2, failed: 4, limit: 8, left: 16, given_up: 32, late: 64, accused: 128, refused: 256, executed: 512,
};
// What a snapshot counts of a group of warps, in this order, if it has no marks of single processes.
const COUNTED = ["joined", "won", "left", "late", "accused"];
const ARRAYS = ["marks", "waiting", "readTo", "position", "acted"];

export class State {
  constructor(processes, warpSize) {
    this.warpSize = warpSize;
    this.marks = new Uint16Array(processes);
    // How many accesses wait, how far the list was read, where an append won, and the phase of the last access.
    this.waiting = new Int16Array(processes);
    this.readTo = new Int32Array(processes);
    this.position = new Int32Array(processes).fill(-1);
    this.acted = new Int32Array(processes);
    // Counts of groups of warps from before the first event, if that is all that is known.
    this.before = undefined;
    // How many events of this page there are, and the index of the next one on the server.
    this.index = 0;
    this.next = 0;
    this.phase = 0;
    this.warp = 0;
    this.length = 0;
    this.sealed = 0;
    this.gathered = false;
    this.ended = "";
    this.entries = 0;
    this.decisions = 0;
    this.offences = 0;
    this.steps = 0;
  }

  // Takes over what a snapshot says.
  restore({ entries, length, marks, warps, group = 1, now }) {
    this.length = length;
    this.entries = entries.length;
    this.gathered = now.state !== "gathering";
    this.ended = now.state === "finished" || now.state === "closed" ? now.state : "";
    this.phase = Math.max(0, (now.phase ?? 1) - 1);
    if (marks) this.restoreMarks(Uint8Array.from(atob(marks), (byte) => byte.charCodeAt(0)));
    if (warps) this.before = { group, counts: warps };
    for (const [position, process] of entries) this.position[process - 1] = position;
  }

  restoreMarks(bytes) {
    for (let of = 0; of < this.marks.length; of += 1) this.marks[of] = bytes[2 * of] | (bytes[2 * of + 1] << 8);
  }

  copy() {
    const copy = Object.assign(Object.create(State.prototype), this);
    for (const name of ARRAYS) copy[name] = this[name].slice();
    return copy;
  }

  mark(of, bit) {
    this.marks[of] |= bit;
  }

  answered(of, phase) {
    this.mark(of, MARK.executed);
    this.waitsLess(of);
    this.acted[of] = phase;
  }

  // What waited before a snapshot is not known.
  waitsLess(of) {
    this.waiting[of] = Math.max(0, this.waiting[of] - 1);
  }

  // How many processes of these warps have each mark. What is only known of a group of warps is counted at its first one.
  countsOf(firstWarp, lastWarp = firstWarp) {
    const first = (firstWarp - 1) * this.warpSize;
    const last = Math.min(this.marks.length, lastWarp * this.warpSize);
    const counts = { all: last - first, joined: 0, won: 0, failed: 0, left: 0, late: 0, accused: 0, waiting: 0 };
    for (let of = first; of < last; of += 1) {
      const marks = this.marks[of];
      if (marks & MARK.joined) counts.joined += 1;
      if (marks & MARK.won) counts.won += 1;
      if (marks & (MARK.failed | MARK.limit)) counts.failed += 1;
      if (marks & MARK.left) counts.left += 1;
      if (marks & MARK.late) counts.late += 1;
      if (marks & MARK.accused) counts.accused += 1;
      if (this.waiting[of] > 0) counts.waiting += 1;
    }
    if (this.before) this.addBefore(counts, firstWarp, lastWarp);
    return counts;
  }

  addBefore(counts, firstWarp, lastWarp) {
    const { group, counts: before } = this.before;
    for (let row = Math.ceil((firstWarp - 1) / group); row * group < lastWarp; row += 1) {
      COUNTED.forEach((name, at) => {
        counts[name] = Math.min(counts.all, counts[name] + (before[row]?.[at] ?? 0));
      });
    }
  }
}
