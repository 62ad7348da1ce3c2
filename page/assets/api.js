// What the page asks its server for. The token of a viewer comes in the fragment of the link and goes into a header: it is in no
// address that is sent, and in no cookie.

const TOKEN = "stickycas-token";

export class Refused extends Error {
  constructor(status, why) {
    super(why);
    this.status = status;
  }
}

// Takes the token out of the address, so that it stays in no history.
export function takeToken() {
  const fragment = new URLSearchParams(location.hash.replace(/^#[^?]*\??/, ""));
  const token = fragment.get("token");
  if (!token) return;
  sessionStorage.setItem(TOKEN, token);
  fragment.delete("token");
  const path = location.hash.replace(/^#/, "").split("?")[0] || "/";
  const rest = fragment.toString();
  history.replaceState(null, "", `#${path}${rest ? `?${rest}` : ""}`);
}

async function ask(path, query, options = {}) {
  const given = Object.entries(query ?? {}).filter(([, value]) => value !== undefined && value !== "" && value !== false);
  const address = given.length > 0 ? `${path}?${new URLSearchParams(given)}` : path;
  const token = sessionStorage.getItem(TOKEN);
  const headers = { ...options.headers, ...(token ? { authorization: `Bearer ${token}` } : {}) };
  const response = await fetch(address, { ...options, headers, cache: "no-store", credentials: "omit", redirect: "error" });
  if (response.ok) return response;
  const told = await response.json().catch(() => ({}));
  throw new Refused(response.status, told.why ?? `the server answers ${response.status}`);
}

const of = (id) => `api/instances/${encodeURIComponent(id)}`;

const posted = (path, given) => ask(path, undefined, { method: "POST", body: JSON.stringify(given), headers: { "content-type": "application/json" } });

export const about = async () => (await ask("api/about")).json();
export const offer = async () => (await ask("api/play")).json();
export const preview = async (form) => (await posted("api/play/preview", form)).json();
export const make = async (wanted) => (await posted("api/play/runs", wanted)).json();
export const instances = async (query) => (await ask("api/instances", query)).json();
export const promise = async (id, f, values) => (await ask(`${of(id)}/promise`, { f, values })).json();
export const explanation = async (id) => (await ask(`${of(id)}/explanation`)).json();
export const told = async (id, query) => (await ask(`${of(id)}/told`, query)).json();

// The longest line of the stream that is taken, in characters.
const LONGEST = 64 * 1024 * 1024;

// Calls `take` with each event of an instance from this index on, until it ends or `signal` is aborted.
export async function events(id, from, signal, take) {
  const response = await ask(`${of(id)}/events`, { from }, { signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let name = "message";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw new Refused(0, "the connection ended");
    rest += value;
    if (rest.length > LONGEST) throw new Refused(0, "a line of the stream is too long");
    const lines = rest.split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (line === "") name = "message";
      else if (line.startsWith("event: ")) name = line.slice(7);
      else if (line.startsWith("data: ")) {
        take(name, JSON.parse(line.slice(6)));
        if (name === "end") {
          await reader.cancel();
          return;
        }
      }
    }
  }
}
