// What the page asks its server for. The token of a viewer comes in the fragment of the link and goes into a header: it is in no
// address that is sent, in no cookie and in no storage, so a page that is loaded again needs the link again.

let token = "";

// A refusal. Status 0: there was no answer.
export class Refused extends Error {
  constructor(status, why, retryAfter = 0) {
    super(why);
    this.status = status;
    this.retryAfter = retryAfter;
  }

  // Whether the same request may be answered later.
  get mayPass() {
    return this.status === 0 || this.status === 408 || this.status === 429 || this.status >= 500;
  }
}

// The path and the options that a fragment names: `#/instance/ID?phase=3`, or `#token=...` alone.
export function parsed(fragment) {
  const text = fragment.replace(/^#/, "");
  const [path, query = ""] = text.startsWith("/") ? text.split("?") : ["/", text];
  return { path, options: new URLSearchParams(query) };
}

// Takes the token out of the address, so that it stays in no history.
export function takeToken() {
  const { path, options } = parsed(location.hash);
  if (!options.has("token")) return;
  token = options.get("token");
  options.delete("token");
  const rest = options.toString();
  history.replaceState(null, "", `#${path}${rest ? `?${rest}` : ""}`);
}

async function ask(path, query, options = {}) {
  const given = Object.entries(query ?? {}).filter(([, value]) => value !== undefined && value !== "" && value !== false);
  const address = given.length > 0 ? `${path}?${new URLSearchParams(given)}` : path;
  const headers = { ...options.headers, ...(token ? { authorization: `Bearer ${token}` } : {}) };
  let response;
  try {
    response = await fetch(address, { ...options, headers, cache: "no-store", credentials: "omit", redirect: "error" });
  } catch (error) {
    throw options.signal?.aborted ? error : new Refused(0, "the server does not answer");
  }
  if (response.ok) return response;
  const { why } = await response.json().catch(() => ({}));
  const retryAfter = Number(response.headers.get("retry-after")) || 0;
  throw new Refused(response.status, why ?? `the server answers ${response.status}`, retryAfter);
}

async function json(...wanted) {
  return (await ask(...wanted)).json();
}

const of = (id) => `api/instances/${encodeURIComponent(id)}`;

const posted = (path, given) =>
  json(path, undefined, { method: "POST", body: JSON.stringify(given), headers: { "content-type": "application/json" } });

export const about = () => json("api/about");
export const offer = () => json("api/play");
export const preview = (form) => posted("api/play/preview", form);
export const make = (wanted) => posted("api/play/runs", wanted);
export const instances = (query) => json("api/instances", query);
export const promise = (id, f, values, rounds) => json(`${of(id)}/promise`, { f, values, rounds });
export const explanation = (id) => json(`${of(id)}/explanation`);
export const told = (id, process) => json(`${of(id)}/told`, { process });

// The streams of events: of an instance from this index on, and of the server as a whole.
export const openInstance = (id, from, signal) => ask(`${of(id)}/events`, { from }, { signal });
export const openOverview = (signal) => ask("api/overview", undefined, { signal });
