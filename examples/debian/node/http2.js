// The calls of one server, as ../../node/cluster.js wants them, by Node's own HTTP/2 in place of a library for gRPC.

import { once } from "node:events";
import http2 from "node:http2";
import { Codec } from "./codec.js";

const CONNECT_TIMEOUT = 5_000;
const PING = 10_000;
const [DEADLINE_EXCEEDED, INTERNAL, UNAVAILABLE] = [4, 13, 14];

/**
 * @param {Buffer} descriptorSet
 * @returns {import("../../node/cluster.js").Connect}
 */
export function transportOf(descriptorSet) {
  const codec = new Codec(descriptorSet);
  return (address, tls) => new Http2Transport(codec, address, tls);
}

class Http2Transport {
  #session;
  #openCalls = 0;

  constructor(codec, address, tls) {
    Object.assign(this, { codec, address, tls });
  }

  close() {
    this.#session?.destroy();
  }

  decode(type, bytes) {
    return this.codec.decode(`.${type}`, bytes);
  }

  async unary(service, method, request, metadata, timeout) {
    const call = this.#call(service, method, {
      ...metadata,
      "grpc-timeout": `${timeout}m`,
    });
    let isLate = false;
    const timer = setTimeout(() => {
      isLate = true;
      call.cancel();
    }, timeout);
    try {
      call.write(request);
      call.end();
      let response;
      for await (const message of call) response = message;
      return response;
    } catch (error) {
      throw isLate
        ? callError(DEADLINE_EXCEEDED, `no answer within ${timeout} ms`)
        : error;
    } finally {
      clearTimeout(timer);
    }
  }

  stream(service, method, metadata) {
    return this.#call(service, method, metadata);
  }

  #call(service, method, metadata) {
    const path = `/${service}/${method}`;
    const { inputType, outputType } = this.codec.methods.get(path);
    const headers = {
      ":method": "POST",
      ":path": path,
      "content-type": "application/grpc",
      te: "trailers",
      ...metadata,
    };
    const stream = this.#connect().request(headers);
    this.#openCalls++;
    stream.on("close", () => this.#openCalls--);
    stream.on("error", () => {}); // whoever reads from it is told
    return {
      write: (message) =>
        stream.write(frame(this.codec.encode(inputType, message))),
      end: () => stream.end(),
      cancel: () => stream.close(http2.constants.NGHTTP2_CANCEL),
      [Symbol.asyncIterator]: () =>
        messages(stream, (bytes) => this.codec.decode(outputType, bytes)),
    };
  }

  #connect() {
    if (this.#session && !this.#session.closed && !this.#session.destroyed)
      return this.#session;
    const session = http2.connect(
      `${this.tls ? "https" : "http"}://${this.address}`,
      {
        ...this.tls,
        minVersion: "TLSv1.3",
      },
    );
    session.on("error", () => {}); // its calls are told
    const connecting = setTimeout(() => session.destroy(), CONNECT_TIMEOUT);
    session.on("connect", () => clearTimeout(connecting));
    // A server that is paused or cut off closes nothing: only a ping without an answer tells.
    const pings = setInterval(() => {
      if (this.#openCalls === 0 || session.connecting || session.destroyed)
        return;
      const unanswered = setTimeout(() => session.destroy(), PING);
      session.ping(() => clearTimeout(unanswered));
    }, PING);
    session.on("close", () => [connecting, pings].forEach(clearTimeout));
    this.#session = session;
    return session;
  }
}

function frame(bytes) {
  const head = Buffer.alloc(5); // not compressed, and the length
  head.writeUInt32BE(bytes.length, 1);
  return Buffer.concat([head, bytes]);
}

/** The messages of a call; throws the error with which it has ended. */
async function* messages(stream, decode) {
  const headers = {};
  let failure;
  const add = (more) => Object.assign(headers, more);
  stream.on("response", add).on("trailers", add);
  const closed = stream.closed
    ? undefined
    : once(stream, "close").catch(() => {});
  try {
    let rest = Buffer.alloc(0);
    for await (const chunk of stream) {
      rest = Buffer.concat([rest, chunk]);
      while (rest.length >= 5 && rest.length >= 5 + rest.readUInt32BE(1)) {
        const end = 5 + rest.readUInt32BE(1);
        yield decode(rest.subarray(5, end));
        rest = rest.subarray(end);
      }
    }
  } catch (error) {
    failure = error;
  }
  await closed;
  const status = headers["grpc-status"];
  if (status === undefined) {
    if (failure)
      throw callError(UNAVAILABLE, failure.cause?.message ?? failure.message);
    const http = headers[":status"] ?? 200;
    throw http === 200
      ? callError(INTERNAL, "the stream has ended without a status")
      : callError(UNAVAILABLE, `HTTP ${http}`);
  }
  if (status !== "0")
    throw callError(
      Number(status),
      decodeURIComponent(headers["grpc-message"] ?? ""),
      headers,
    );
}

function callError(code, message, headers = {}) {
  const get = (key) =>
    headers[key] ? [Buffer.from(headers[key], "base64")] : [];
  return Object.assign(new Error(message), { code, metadata: { get } });
}
