// Elements without markup: texts of clients are only ever text.

const SVG = "http://www.w3.org/2000/svg";
// Characters that are drawn as nothing, fillers among them.
const HIDDEN = /[\u034f\p{C}\p{Zl}\p{Zp}\u115f\u1160\u2800\u3164\uffa0]/gu;

// Letters that are written from right to left, with what stands between them.
const RTL = "\\u0590-\\u08ff\\ufb1d-\\ufdff\\ufe70-\\ufefc\\u{10800}-\\u{10fff}\\u{1e800}-\\u{1efff}";
const BACKWARDS = new RegExp(`([${RTL}](?:[^\\p{L}\\p{Nd},;:()]*[${RTL}])*)`, "u");

// The text as nodes: what is written from right to left does not reorder what stands beside it.
function isolated(text) {
  if (!BACKWARDS.test(text)) return [text];
  return text.split(BACKWARDS).map((part, at) => {
    const node = document.createElement(at % 2 === 1 ? "bdi" : "span");
    node.textContent = part;
    return node;
  });
}

// An element with these properties (text, listeners and attributes) and children.
export function element(name, { text, on, ...attributes } = {}, ...children) {
  return fill(document.createElement(name), text, on, attributes, children);
}

export function svg(name, { text, on, ...attributes } = {}, ...children) {
  return fill(document.createElementNS(SVG, name), text, on, attributes, children);
}

function fill(node, text, on, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  for (const [event, listener] of Object.entries(on ?? {})) node.addEventListener(event, listener);
  if (text !== undefined) node.append(...(node instanceof SVGElement ? [text] : isolated(text)));
  node.append(...children.filter((child) => child !== undefined && child !== null));
  return node;
}

// A button with a text, which may be another for those who hear the page.
export function button(text, click, attributes = {}) {
  return element("button", { type: "button", text, on: { click }, ...attributes });
}

// A part of a page with a title.
export function panel(title, ...children) {
  return element("section", { class: "panel" }, element("h2", { text: title }), ...children);
}

// Sets an attribute only if that changes it.
export function set(node, name, value) {
  if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

// Sets the text only if that changes it, so that screen readers are not told twice.
export function say(node, text) {
  if (node.textContent !== text) node.replaceChildren(...isolated(text));
}

// Makes the children of a list those with these numbers, from `from` to before `to`. Those that stay are not touched. Numbers are
// of things that never change; with another `key` all are made anew.
export function keepRange(list, from, to, make, key = "") {
  const kept = list.kept ?? { from: 0, to: 0, key: undefined };
  const isEmpty = kept.from === kept.to;
  if (kept.key !== key || (!isEmpty && (to <= kept.from || from >= kept.to))) list.replaceChildren();
  if (list.childElementCount === 0 || isEmpty) [kept.from, kept.to, kept.key] = [from, from, key];
  for (; kept.from < from; kept.from += 1) list.firstElementChild.remove();
  for (; kept.to > to; kept.to -= 1) list.lastElementChild.remove();
  while (kept.from > from) list.prepend(make((kept.from -= 1)));
  for (; kept.to < to; kept.to += 1) list.append(make(kept.to));
  list.kept = kept;
}

// A name or value of a client, shortened, each character that is hidden or reorders others shown by its number, and with no more than
// two marks on a letter, for more reach into other lines.
export function shown(text, longest = 64) {
  const visible = text.slice(0, 4 * longest).replace(HIDDEN, (it) => `\\u{${it.codePointAt(0).toString(16)}}`).replace(/(\p{M}{2})\p{M}+/gu, "$1");
  const letters = [...visible];
  return letters.length > longest || text.length > 4 * longest ? `${letters.slice(0, longest - 1).join("")}…` : visible;
}

// An instance by its name, or by the beginning of its id.
export function named(name, id, longest = 48) {
  return shown(name || id.replace(/^([0-9a-f]{8})[0-9a-f]{24}$/, "$1"), longest);
}

// Numbers in order, those in a row as a range: `1 to 3, 5`.
export function listed(numbers) {
  const runs = [];
  for (const number of numbers.toSorted((one, other) => one - other)) {
    if (runs.at(-1)?.at(-1) === number - 1) runs.at(-1).push(number);
    else runs.push([number]);
  }
  return runs.map((run) => (run.length > 2 ? `${run[0]} to ${run.at(-1)}` : run.join(", "))).join(", ");
}

// Duration in nanoseconds as people read it.
export function duration(nanos) {
  const units = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]];
  const [size, unit] = units.find(([size]) => nanos >= size) ?? [1, "ns"];
  const count = nanos / size;
  return `${count < 10 ? count.toFixed(1) : Math.round(count)} ${unit}`;
}

// With a comma after each three digits.
export function grouped(number) {
  return number.toLocaleString("en-GB");
}
