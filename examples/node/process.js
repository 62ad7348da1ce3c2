// One correct process: it appends its value, reads the list, and decides the most frequent entry.

import { randomBytes } from "node:crypto";
import { CALL_TIMEOUT, Refusal } from "./cluster.js";

/**
 * Performs what a process does, one after the other, each until it is answered or refused for good.
 * @typedef {object} Accesses
 * @property {(number: number | string, access: {append: object} | {read: object}) => Promise<object | undefined>} perform
 *   Resolves to the phase and to the answer of the append or read.
 * @property {(value: Buffer) => Promise<void>} decide
 */

/**
 * Plays one correct process to its decision.
 * @param {import("./cluster.js").Cluster} cluster
 * @param {string} name The name or id of the instance.
 * @param {Buffer} value
 * @param {boolean} unary Whether to use unary calls, not one stream.
 * @returns {Promise<Buffer>}
 */
export async function propose(cluster, name, value, unary) {
  const { instance, own: found } = await cluster.get(name);
  const { instanceId, parameters } = instance;
  if (parameters.appendWindow !== "APPEND_WINDOW_FIRST_ACCESS") {
    throw new Error(
      "the instance has another append window than first_access, for which this algorithm is",
    );
  }
  if (!found) throw new Error("the caller is no process of this instance");
  const attach = unary ? undefined : new Attach(cluster, instanceId);
  const accesses = attach ?? unaryCalls(cluster, instanceId);
  try {
    const own = attach ? await attach.begin() : found;
    if (own.decided) return own.decided; // reported by an earlier life
    let number = Number(own.nextAccessNumber);
    let { phase, result: appended } = own.append ?? {};
    // What an earlier life of this process has left. The same number and content again is the same access.
    for (const { number, append, read } of own.waiting) {
      const answer = await accesses.perform(
        number,
        append ? { append } : { read },
      );
      if (append) ({ phase, append: appended } = answer);
    }
    const { processes, warpSize } = parameters;
    const warps = Math.ceil(processes / warpSize);
    const rounds = parameters.appendRounds || 1;
    // Until it wins, or its warp has had its append rounds (K2).
    while (
      number === 1 ||
      (appended?.outcome === "APPEND_OUTCOME_FAILED" &&
        Number(phase) <= warps * (rounds - 1))
    ) {
      const answer = await accesses.perform(number++, { append: { value } });
      ({ phase, append: appended } = answer);
    }
    // No more entries than that can stand (K1).
    const inLast = processes - (warps - 1) * warpSize;
    const most = (warps - 1) * rounds + Math.min(rounds, inLast);
    const decision = mode(await readAll(accesses, number, most));
    await accesses.decide(decision);
    return decision;
  } finally {
    attach?.close();
  }
}

/**
 * Reads until it holds the most entries that there can be, or all of a sealed list.
 * @param {Accesses} accesses
 * @param {number} number The number of the first read.
 * @param {number} most
 */
async function readAll(accesses, number, most) {
  /** @type {Buffer[]} */
  const entries = [];
  let length = 0;
  let sealed = false;
  while (entries.length < most && !(sealed && entries.length === length)) {
    const start = entries.length;
    const { read } = await accesses.perform(number++, { read: { start } });
    if (
      read.length < length ||
      (sealed && (!read.sealed || read.length > length)) ||
      read.start !== start ||
      start + read.values.length > read.length
    ) {
      throw new Error(
        "loss: the server tells less of the list, or something else, than it has told before",
      );
    }
    entries.push(...read.values);
    ({ length, sealed } = read);
  }
  if (entries.length === 0)
    throw new Error("no decision: the list is sealed without any entry");
  return entries;
}

/**
 * The most frequent entry; of several the smallest.
 * @param {Buffer[]} entries
 */
function mode(entries) {
  let best = { count: 0, value: Buffer.alloc(0) };
  for (const value of entries) {
    const count = entries.filter((entry) => entry.equals(value)).length;
    if (
      count > best.count ||
      (count === best.count && value.compare(best.value) < 0)
    )
      best = { count, value };
  }
  return best.value;
}

/**
 * A call for each access.
 * @returns {Accesses}
 */
function unaryCalls(cluster, instanceId) {
  return {
    async perform(accessNumber, { append, read }) {
      const method = append ? "Append" : "Read";
      const request = { instanceId, accessNumber, ...(append ?? read) };
      const { phase, result } = await cluster.call(
        "StickyCasService",
        method,
        request,
        true,
      );
      return append ? { phase, append: result } : { phase, read: result };
    },
    async decide(value) {
      await cluster.call("StickyCasService", "Decide", { instanceId, value });
    },
  };
}

/**
 * All accesses on one stream. When it breaks, a new stream and the same access number go on.
 * @implements {Accesses}
 */
class Attach {
  /** @type {import("./cluster.js").Stream | undefined} */
  #stream;
  /** @type {AsyncGenerator<object>} */
  #frames;
  /** Random, the same for this whole life. */
  #incarnation = randomBytes(8).readBigUInt64LE().toString();

  constructor(cluster, instanceId) {
    Object.assign(this, { cluster, instanceId });
  }

  /** Opens the first stream; resolves to the state of the process. */
  begin() {
    return this.cluster.repeat(() => this.#open());
  }

  async perform(number, access) {
    const { answer } = await this.#exchange({ access: { number, ...access } });
    return answer;
  }

  async decide(value) {
    await this.#exchange({ decision: { value } });
  }

  close() {
    this.#stream?.cancel();
    this.#stream = undefined;
  }

  /** Sends the same frame, on a new stream if need be, until it is answered or refused for good. */
  #exchange(frame) {
    return this.cluster.repeat(async () => {
      if (!this.#stream) await this.#open();
      return await this.#try(frame);
    });
  }

  /** Opens a stream to the server that is asked, and the instance on it. */
  async #open() {
    const { stream, messages } = this.cluster.open(
      "StickyCasService",
      "Attach",
    );
    this.#stream = stream;
    this.#frames = (async function* () {
      for await (const { frames } of messages) yield* frames;
    })();
    const hello = {
      instanceId: this.instanceId,
      incarnation: this.#incarnation,
    };
    const { welcome } = await this.#try({ hello });
    this.cluster.noteWelcome();
    return welcome.own;
  }

  /** Sends a frame once and waits for its answer. After an error the stream is closed, unless it is still of use. */
  async #try(frame) {
    const stream = this.#stream;
    // Only an access waits for its phase.
    const timer = frame.access
      ? undefined
      : setTimeout(() => stream.cancel(), CALL_TIMEOUT);
    try {
      stream.write({ frames: [frame] });
      for (;;) {
        const { value: received } = await this.#frames.next();
        if (this.#answers(received, frame.access?.number)) return received;
      }
    } catch (error) {
      if (!(error.inBand && error.code === "RESOURCE_EXHAUSTED")) this.close();
      throw error;
    } finally {
      clearTimeout(timer);
    }
  }

  /** Whether a frame of the server answers what was sent: an access of this number, or else a Hello or a Decision. */
  #answers({ welcome, decided, answer, refusal, replaced }, number) {
    if (refusal) {
      // A reason that this client does not know is a number.
      const reason = String(refusal.reason).replace("REFUSAL_REASON_", "");
      const more = {
        owner: refusal.owner,
        delay: refusal.retryAfter,
        inBand: true,
      };
      throw new Refusal(refusal.code, reason, refusal.message, more);
    }
    if (replaced?.incarnation === this.#incarnation) {
      throw new Refusal(10, "", "an earlier hello of this client came late");
    }
    if (replaced)
      throw new Error("REPLACED: another client plays this process");
    return Boolean(
      welcome ||
        decided ||
        (answer && Number(answer.number) === Number(number)),
    );
  }
}
