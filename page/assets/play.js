// Runs that a viewer makes up: presets, and a form that shows at once what the theorem promises.

import * as api from "./api.js";
import { element } from "./dom.js";
import { promises } from "./promise.js";

const CHOICES = {
  arbiter: [["first_come", "the first to arrive wins"], ["uniform", "the winner is drawn"], ["byzantine_first", "Byzantine processes win"]],
  append_window: [["first_access", "closed after the first access"], ["open", "open, as the paper prints it"]],
  order: [["ascending", "by number"], ["descending", "from the last to the first"], ["shuffled", "drawn anew in each round"]],
};
const NUMBERS = { processes: ["n, processes", 12], warp_size: ["p, processes of a warp", 2], read_size: ["r, entries of a read", 3], byzantine: ["f, Byzantine processes", 1], values: ["|Vc|, different proposals", 2] };
const WAIT = 150;

export function showPlay(content, { connection }) {
  let timer;
  let asked;
  const fields = {};
  const result = element("ul", { class: "promises", "aria-live": "polite" });
  const file = element("pre", { class: "file" });
  const wrong = element("p", { class: "refused", role: "alert", hidden: true });
  const run = element("button", { type: "submit", class: "run", text: "Run it" });
  const read = () => ({
    ...Object.fromEntries(Object.keys(NUMBERS).map((name) => [name, Number(fields[name].value)])),
    ...Object.fromEntries(["strategy", ...Object.keys(CHOICES)].map((name) => [name, fields[name].value])),
    seed: fields.seed.value === "" ? null : Number(fields.seed.value),
  });
  const refuse = (error) => {
    wrong.hidden = false;
    wrong.textContent = error.message;
    run.disabled = true;
    result.replaceChildren();
  };
  const preview = async () => {
    const mine = (asked = Symbol("asked"));
    try {
      const { promise, scenario } = await api.preview(read());
      if (mine !== asked) return;
      wrong.hidden = true;
      run.disabled = false;
      result.replaceChildren(...promises(promise));
      file.textContent = scenario;
    } catch (error) {
      if (mine === asked) refuse(error);
    }
  };
  const changed = () => {
    clearTimeout(timer);
    timer = setTimeout(preview, WAIT);
  };
  const start = async (wanted) => {
    try {
      const { id } = await api.make(wanted);
      location.hash = `/instance/${encodeURIComponent(id)}?phase=0`;
    } catch (error) {
      refuse(error);
    }
  };
  const row = (name, title, field) => {
    fields[name] = field;
    return [element("label", { for: `play-${name}`, text: title }), field];
  };
  const number = ([name, [title, value]]) => row(name, title, element("input", { id: `play-${name}`, type: "number", min: "0", max: "1024", value: String(value), required: true }));
  const choice = (name, title) => row(name, title, element("select", { id: `play-${name}` }, ...CHOICES[name].map(([value, text]) => element("option", { value, text }))));
  const strategies = element("datalist", { id: "play-strategies" });
  const usage = element("p", { class: "note" });
  const form = element("form", { class: "form", on: { input: changed, submit: (event) => {
    event.preventDefault();
    start({ form: read() });
  } } },
    ...Object.entries(NUMBERS).flatMap(number),
    ...row("strategy", "what they play", element("input", { id: "play-strategy", list: "play-strategies", value: "collude(value=0)", maxlength: "256", autocomplete: "off" })), strategies,
    ...choice("arbiter", "of the appends of a phase"), ...choice("append_window", "the append window is"), ...choice("order", "warps take turns"),
    ...row("seed", "seed (empty: a new one)", element("input", { id: "play-seed", type: "number", min: "0" })), run);
  const presets = element("ul", { class: "presets" });
  content.append(element("h1", { text: "Make up a run" }),
    element("section", { class: "panel" }, element("h2", { text: "The story in six runs" }), presets),
    element("div", { class: "columns" },
      element("section", { class: "panel wide" }, element("h2", { text: "A run of your own" }), form, wrong, usage),
      element("section", { class: "panel narrow" }, element("h2", { text: "What the theorem promises of it" }), result,
        element("details", {}, element("summary", { text: "The same as a scenario file" }), file))));
  api.offer().then(({ presets: offered, strategies: known }) => {
    presets.replaceChildren(...offered.map(({ name, story }) => element("li", {},
      element("button", { type: "button", text: name, on: { click: () => start({ preset: name }) } }), element("p", { class: "note", text: story }))));
    strategies.replaceChildren(...known.map(([name]) => element("option", { value: name })));
    const explain = () => {
      const chosen = fields.strategy.value.split("(")[0].trim();
      usage.textContent = known.find(([name]) => name === chosen)?.[1] ?? "";
    };
    fields.strategy.addEventListener("input", explain);
    explain();
  }, (error) => connection(error.message));
  preview();
  return () => clearTimeout(timer);
}
