// Streams of server-sent events, received by `fetch` so that a token can go with the request, and opened again when they are lost.

import { Refused } from "./api.js";

// The longest line that is taken, in characters.
const LONGEST = 16 * 1024 * 1024;
const FIRST_PAUSE = 250;
const LONGEST_PAUSE = 8000;
// A server that sends signs of life, and then for so long nothing, is gone. In milliseconds.
const SILENCE = 45_000;

// Receives a stream until its event `end`, or until `signal` is aborted. `open` opens it, `take` is called with the name and data
// of each event, `status` with what people should know: "connected", "lost" with the seconds until the next try, or "refused".
// An error of the page itself is told too, and thrown.
export async function follow({ open, take, status, signal }) {
  let pause = FIRST_PAUSE;
  while (!signal.aborted) {
    try {
      const response = await open();
      status("connected");
      return await receive(response, signal, (name, data) => {
        if (name === "refused") throw new Refused(data.status ?? 0, data.why);
        take(name, data);
        if (name !== "setting" && name !== "snapshot") pause = FIRST_PAUSE;
      });
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof Refused)) {
        status("refused", new Refused(0, "the page failed: load it again"));
        throw error;
      }
      if (!error.mayPass) return status("refused", error);
      const wait = Math.max(pause, error.retryAfter * 1000);
      status("lost", error, wait);
      await new Promise((done) => setTimeout(done, wait));
      pause = Math.min(pause * 2, LONGEST_PAUSE);
    }
  }
}

// Calls `take` with each event of a response until it is `end`.
async function receive(response, signal, take) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  const lines = new Lines();
  let name = "message";
  let signs = false;
  try {
    for (;;) {
      const { value, done } = await read(reader, signs);
      if (signal.aborted) return;
      if (done) throw new Refused(0, "the connection was lost");
      for (const line of lines.of(value)) {
        if (line === "") name = "message";
        else if (line.startsWith(":")) signs = true;
        else if (line.startsWith("event: ")) name = line.slice(7);
        else if (line.startsWith("data: ")) {
          take(name, JSON.parse(line.slice(6)));
          if (name === "end") return;
        }
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

async function read(reader, signs) {
  let timer;
  const silence = new Promise((_, reject) => {
    if (signs) timer = setTimeout(() => reject(new Refused(0, "the server is silent")), SILENCE);
  });
  try {
    return await Promise.race([reader.read(), silence]);
  } catch (error) {
    throw error instanceof Refused ? error : new Refused(0, "the connection was lost");
  } finally {
    clearTimeout(timer);
  }
}

// Cuts a text that comes in pieces into lines.
class Lines {
  rest = "";

  of(text) {
    if (this.rest.length + text.length > LONGEST) throw new Refused(0, "a line of the stream is too long");
    if (!text.includes("\n")) {
      this.rest += text;
      return [];
    }
    const lines = (this.rest + text).split("\n");
    this.rest = lines.pop();
    return lines;
  }
}
