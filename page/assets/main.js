// Which view the address names. `#/` is the table of all instances, `#/instance/ID?phase=K` one of them.

import { about, takeToken } from "./api.js";
import { element, say, shown } from "./dom.js";
import { showInstance } from "./instance.js";
import { showInstances } from "./instances.js";
import { showPlay } from "./play.js";

const content = document.getElementById("content");
const crumbs = document.getElementById("crumbs");
let leave = () => {};

function route() {
  takeToken();
  const [path, query] = location.hash.replace(/^#/, "").split("?");
  const options = new URLSearchParams(query);
  const instance = path.match(/^\/instance\/(.+)$/);
  leave();
  content.replaceChildren();
  connection("");
  if (instance) {
    const id = decodeURIComponent(instance[1]);
    crumbs.replaceChildren(element("span", { class: "id", text: shown(id) }));
    leave = showInstance(content, id, options.has("phase") ? Number(options.get("phase")) : undefined, { connection });
  } else if (path === "/play") {
    crumbs.replaceChildren(element("span", { text: "play" }));
    leave = showPlay(content, { connection });
  } else {
    crumbs.replaceChildren();
    leave = showInstances(content, options, { connection });
  }
}

function connection(text) {
  say(document.getElementById("connection"), text);
}

addEventListener("hashchange", route);
route();
about().then(({ plays }) => {
  if (plays) document.querySelector(".brand").append(element("a", { class: "play", href: "#/play", text: "make up a run" }));
}, () => {});
