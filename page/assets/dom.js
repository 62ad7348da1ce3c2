// Elements without markup: texts of clients are only ever text.

const SVG = "http://www.w3.org/2000/svg";

// An element with these properties (class, text, and attributes) and children.
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
  if (text !== undefined) node.textContent = text;
  node.append(...children.filter((child) => child !== undefined && child !== null));
  return node;
}

// Sets an attribute only if that changes it.
export function set(node, name, value) {
  if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

// Sets the text only if that changes it, so that screen readers are not told twice.
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// A name or value of a client, shortened, each character that is hidden or reorders others shown by its number.
export function shown(text, longest = 64) {
  const visible = text.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, (it) => `\\u{${it.codePointAt(0).toString(16)}}`);
  const letters = [...visible];
  return letters.length > longest ? letters.slice(0, longest - 1).join("") + "…" : visible;
}

// Duration in nanoseconds as people read it.
export function duration(nanos) {
  const units = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]];
  const [size, unit] = units.find(([size]) => nanos >= size) ?? [1, "ns"];
  const count = nanos / size;
  return `${count < 10 ? count.toFixed(1) : Math.round(count)} ${unit}`;
}
