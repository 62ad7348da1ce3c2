// Which server to ask, what a refusal says, and when to ask again.

/**
 * The calls of one server. Messages are plain objects with camelCase fields: bytes are Buffers, 64-bit numbers and enums are
 * strings, all other fields that are absent have their default.
 * @typedef {object} Transport
 * @property {(service: string, method: string, request: object, metadata: Record<string, string>, timeout: number) => Promise<object>} unary
 *   Rejects with an error that has `code` and, if the server has sent any, `metadata`.
 * @property {(service: string, method: string, metadata: Record<string, string>) => Stream} stream
 * @property {(type: string, bytes: Buffer) => object} decode A message of google.rpc.
 * @property {() => void} close
 */

/**
 * What the server sends comes by iteration, which throws such an error too.
 * @typedef {AsyncIterable<object> & {write: (message: object) => void, end: () => void, cancel: () => void}} Stream
 */

/**
 * Connects to HOST:PORT when the first call is made; without `tls` in plain text.
 * @callback Connect
 * @param {string} address
 * @param {{ca: Buffer, key?: Buffer, cert?: Buffer}} [tls]
 * @returns {Transport}
 */

/** Of one call, and of whatever need not wait for a phase, in milliseconds. */
export const CALL_TIMEOUT = 10_000;
const FIRST_PAUSE = 50;
const LONGEST_PAUSE = 500;
/** In a row. */
const MOST_REDIRECTS = 4;

// By their numbers.
const CODES =
  "OK CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS PERMISSION_DENIED RESOURCE_EXHAUSTED FAILED_PRECONDITION ABORTED OUT_OF_RANGE UNIMPLEMENTED INTERNAL UNAVAILABLE DATA_LOSS UNAUTHENTICATED".split(
    " ",
  );
/** Of a unary call without a reason: no StickyCAS server answers so. */
const NOT_STICKYCAS = [
  "UNIMPLEMENTED",
  "UNAUTHENTICATED",
  "PERMISSION_DENIED",
  "NOT_FOUND",
];
const MAY_BE_REPEATED = [
  "UNAVAILABLE",
  "DEADLINE_EXCEEDED",
  "RESOURCE_EXHAUSTED",
  "INTERNAL",
];

/** Why a request was not answered. */
export class Refusal extends Error {
  /**
   * @param {number} code
   * @param {string} reason Of StickyCAS; empty: the connection broke, whatever the code.
   * @param {string} message
   * @param {{owner?: string, delay?: {seconds: string, nanos: number}, inBand?: boolean}} [more] The server to ask, the
   *   least time to wait, and whether the refusal came on a stream that goes on.
   */
  constructor(code, reason, message, { owner, delay, inBand = false } = {}) {
    super(`${[CODES[code], reason].filter(Boolean).join(" ")}: ${message}`);
    this.code = CODES[code] ?? "UNKNOWN";
    this.reason = reason;
    this.owner = owner;
    this.delay = delay ? Number(delay.seconds) * 1000 + delay.nanos / 1e6 : 0;
    this.inBand = inBand;
    /** To ask again does not help. */
    this.isFinal =
      reason === "TOO_MANY_SESSIONS" ||
      !(reason === "" || MAY_BE_REPEATED.includes(this.code));
    /** The server is there, and the same request will be answered. */
    this.isAnswer = ["DEADLINE", "RECOVERING"].includes(reason);
  }
}

/** The servers that were given. One is asked at a time, until another is known to be the owner. */
export class Cluster {
  #transports = new Map();
  #asked = 0;
  #redirects = 0;
  #pause = FIRST_PAUSE;
  #silentSince = undefined;

  /**
   * @param {string[]} addresses HOST:PORT of each.
   * @param {(address: string) => Transport} connect
   * @param {() => Record<string, string>} identify The metadata of a call, which say who calls.
   * @param {number} giveUpAfter Milliseconds without any answer.
   */
  constructor(addresses, connect, identify, giveUpAfter) {
    Object.assign(this, { addresses, connect, identify, giveUpAfter });
  }

  close() {
    for (const transport of this.#transports.values()) transport.close();
  }

  get #transport() {
    const address = this.addresses[this.#asked];
    if (!this.#transports.has(address))
      this.#transports.set(address, this.connect(address));
    return this.#transports.get(address);
  }

  /**
   * Makes the same unary call until it is answered or refused for good.
   * @param {boolean} [waits] Whether it is answered in a phase only.
   */
  call(service, method, request, waits = false) {
    return this.repeat(async () => {
      const transport = this.#transport;
      try {
        const name = `stickycas.v1.${service}`;
        return await transport.unary(
          name,
          method,
          request,
          this.identify(),
          CALL_TIMEOUT,
        );
      } catch (error) {
        const refusal = refusalOf(transport, error);
        if (waits && refusal.code === "DEADLINE_EXCEEDED")
          refusal.isAnswer = true;
        if (!refusal.reason && NOT_STICKYCAS.includes(refusal.code))
          refusal.isFinal = true;
        throw refusal;
      }
    });
  }

  /**
   * Opens a stream, once.
   * @returns {{stream: Stream, messages: AsyncGenerator<object>}} The messages throw a refusal, also when they come to an end.
   */
  open(service, method) {
    const transport = this.#transport;
    const stream = transport.stream(
      `stickycas.v1.${service}`,
      method,
      this.identify(),
    );
    async function* messages() {
      try {
        yield* stream;
      } catch (error) {
        throw refusalOf(transport, error);
      }
      throw new Refusal(0, "", "the stream has ended");
    }
    return { stream, messages: messages() };
  }

  /**
   * Makes the same request until it is answered or refused for good. That is safe whether a try was executed or not: an access
   * has its number, and a decision or a Create with a name is the same when it comes again.
   * @template T
   * @param {() => Promise<T>} request
   * @returns {Promise<T>}
   */
  async repeat(request) {
    for (;;) {
      try {
        const answer = await request();
        this.noteAnswer();
        return answer;
      } catch (error) {
        await this.#prepareAgain(error);
      }
    }
  }

  /** A server has answered. */
  noteAnswer() {
    this.noteWelcome();
    this.#pause = FIRST_PAUSE;
  }

  /** A server is there. The pause stays, or streams that break behind each Welcome would follow each other at once. */
  noteWelcome() {
    this.#redirects = 0;
    this.#silentSince = undefined;
  }

  /** Chooses the server to ask next, and waits if that is due. Throws the error if nothing is to be asked again. */
  async #prepareAgain(error) {
    if (!(error instanceof Refusal) || error.isFinal) throw error;
    console.error(`asks again: ${error.code} ${error.reason}`);
    if (error.isAnswer) {
      this.#silentSince = undefined;
    } else {
      this.#silentSince ??= Date.now();
      if (Date.now() - this.#silentSince > this.giveUpAfter) {
        throw new Error(
          `given up after ${this.giveUpAfter / 1000} s: ${error.message}`,
        );
      }
    }
    const owner = this.addresses.indexOf(error.owner);
    if (
      owner >= 0 &&
      owner !== this.#asked &&
      this.#redirects < MOST_REDIRECTS
    ) {
      this.#asked = owner;
      this.#redirects++;
      return;
    }
    this.#redirects = 0;
    if (error.code === "UNAVAILABLE" || !(error.reason || error.isAnswer)) {
      this.#asked = (this.#asked + 1) % this.addresses.length;
    }
    // Not all clients at the same moment.
    const pause = this.#pause * (1 + Math.random() / 2);
    this.#pause = Math.min(2 * this.#pause, LONGEST_PAUSE);
    await new Promise((resume) =>
      setTimeout(resume, Math.max(pause, error.delay)),
    );
  }

  /** Finds an instance by its name or id. Any server may be asked. */
  get(instance) {
    const isId = /^[0-9a-f]{32}$/.test(instance);
    return this.call(
      "InstanceService",
      "Get",
      isId ? { instanceId: instance } : { name: instance },
    );
  }
}

/** Reads the details of a failed call or stream. */
function refusalOf(transport, error) {
  if (!Number.isInteger(error.code)) return error; // no call has failed, but this program
  const [status] = error.metadata?.get("grpc-status-details-bin") ?? [];
  const { details = [] } = status
    ? transport.decode("google.rpc.Status", status)
    : {};
  const detail = (type) => {
    const found = details.find(({ typeUrl }) => typeUrl.endsWith(`/${type}`));
    return found && transport.decode(type, found.value);
  };
  const info = detail("google.rpc.ErrorInfo");
  const isOurs = info?.domain === "stickycas.v1";
  return new Refusal(
    error.code,
    isOurs ? info.reason : "",
    error.details ?? error.message,
    {
      owner: isOurs ? info.metadata.owner : undefined,
      delay: detail("google.rpc.RetryInfo")?.retryDelay,
    },
  );
}
