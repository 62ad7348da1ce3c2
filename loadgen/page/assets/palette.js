// The colours of the style sheet, for what is drawn on a canvas or written into a file.

const NAMES = [
  "page", "ink", "soft", "faint", "rule", "well", "lit", "won", "on-won", "left", "on-left", "decided-0", "decided-1", "decided-2", "hatch", "byzantine", "bad", "frontier", "sans",
];
const QUERIES = ["(prefers-color-scheme: dark)", "(forced-colors: active)", "print"].map((query) => matchMedia(query));

let known;

export function palette() {
  if (!known) {
    const style = getComputedStyle(document.documentElement);
    known = Object.fromEntries(NAMES.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
  }
  return known;
}

// Calls `change` when the colours are others, until the function that it returns is called.
export function onOtherColours(change) {
  const listener = () => {
    known = undefined;
    change();
  };
  for (const query of QUERIES) query.addEventListener("change", listener);
  return () => QUERIES.forEach((query) => query.removeEventListener("change", listener));
}
