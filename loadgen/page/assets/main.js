// Which view the address names. `#/instance/ID?phase=K` is an instance; `#/` the table of those of a server, the form where runs are
// made up, and otherwise the one run that there is.

import { about, instances, parsed, takeToken } from "./api.js";
import { element, say, set, shown } from "./dom.js";
import { showInstance } from "./instance.js";
import { showInstances } from "./instances.js";
import { showPlay } from "./play.js";

const content = document.getElementById("content");
const crumbs = document.getElementById("crumbs");
let leave = () => {};
// What this page can do, once it is known.
let can;
// Milliseconds between two questions what this page can do.
const FIRST_PAUSE = 1000;
const LONGEST_PAUSE = 16_000;

function route() {
  takeToken();
  const { path, options } = parsed(location.hash);
  const instance = path.match(/^\/instance\/(.+)$/);
  const focused = document.activeElement?.id;
  leave();
  content.replaceChildren();
  connection("");
  say(document.getElementById("told"), "");
  document.title = "StickyCAS";
  if (instance) {
    const id = decoded(instance[1]);
    crumbs.replaceChildren(element("span", { class: "id", text: shown(id, 80) }));
    leave = showInstance(content, id, options, { connection });
  } else if (path === "/play") {
    crumbs.replaceChildren();
    leave = showPlay(content, options, { connection });
  } else {
    crumbs.replaceChildren();
    leave = showFirst(options);
  }
  // What was chosen stays chosen where the view is built anew.
  if (focused) document.getElementById(focused)?.focus();
}

function showFirst(options) {
  if (can?.live) return showInstances(content, options, { connection, live: true });
  let close = () => (close = undefined);
  known.then(async ({ live, plays }) => {
    const { rows } = live || plays ? { rows: [] } : await instances({}).catch(() => ({ rows: [] }));
    if (!close) return;
    if (plays) location.replace("#/play");
    else if (rows.length === 1) location.replace(`#/instance/${encodeURIComponent(rows[0].id)}`);
    else close = showInstances(content, options, { connection, live });
  });
  return () => close();
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

// What people should know of the connection. `state` is "live", "lost", or nothing.
function connection(text, state = "") {
  const node = document.getElementById("connection");
  say(node, text);
  set(node, "class", state);
}

// Asked again until there is an answer or a refusal.
async function ask() {
  for (let pause = FIRST_PAUSE; ; pause = Math.min(2 * pause, LONGEST_PAUSE)) {
    try {
      return await about();
    } catch (error) {
      if (error.mayPass === false) return {};
      if (!content.hasChildNodes()) connection(error.message, "lost");
      await new Promise((done) => setTimeout(done, Math.max(pause, (error.retryAfter ?? 0) * 1000)));
    }
  }
}

// What this page can do; asked with the token, so after it was taken.
takeToken();
const known = ask();
known.then((it) => {
  can = it;
  const { plays, version } = it;
  if (plays) document.querySelector(".brand").append(element("a", { class: "play", href: "#/play", text: "Make up a run" }));
  if (version) say(document.getElementById("version"), `StickyCAS ${version}`);
});
// The fragment is the view's, so the link past the head is no fragment.
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  content.focus();
});
addEventListener("hashchange", route);
// A page that the browser keeps for the button "back" has no open streams.
addEventListener("pagehide", () => leave());
addEventListener("pageshow", ({ persisted }) => persisted && route());
route();
