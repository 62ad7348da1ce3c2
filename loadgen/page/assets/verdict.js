// The verdict beside the title. Of a moment before the end: what is broken so far.

import { button, element, grouped, listed, say, set, shown } from "./dom.js";
import { MARK } from "./state.js";

const VALUES = 4;

// Whether the decision of a process does not count: it is Byzantine or faulty, or, where that is not known, accused of an offence.
export function isFaulty({ cast }, state, process) {
  if (!cast) return (state.marks[process - 1] & MARK.accused) > 0;
  return cast.byzantine[process] !== undefined || (cast.faulty?.includes(process) ?? false);
}

// What correct processes have decided: of each value which one it is, in the order of the first decisions, and its processes.
export function decisionsOf(setting, history, state) {
  const decided = new Map();
  for (const { process, value } of history.decisions.slice(0, state.decisions)) {
    if (isFaulty(setting, state, process)) continue;
    if (!decided.has(value)) decided.set(value, { at: decided.size, processes: [] });
    decided.get(value).processes.push(process);
  }
  return decided;
}

export class VerdictLine {
  // `why` is called to show the reasons.
  constructor(setting, { why }) {
    this.setting = setting;
    this.headline = element("strong");
    this.why = button("why", why, { class: "link" });
    this.basis = element("span", { class: "note", text: setting.cast ? "" : "as far as the server knows " });
    this.broken = element("ul");
    this.node = element("div", { class: "verdict", role: "status" }, element("p", {}, this.headline, " ", this.basis, this.why), this.broken);
  }

  // `reasons`: of the end, if that is shown and they are known; `decided`: see `decisionsOf`.
  show(decided, reasons) {
    const broken = this.whatBroke(decided);
    const headline = reasons?.headline ?? (broken.length > 0 ? "" : "so far nothing that is promised is broken");
    say(this.headline, shown(headline, 300));
    this.why.hidden = this.basis.hidden = !reasons;
    set(this.node, "class", `verdict is-${reasons?.verdict ?? (broken.length > 0 ? "broken" : "open")}`);
    const key = JSON.stringify(broken);
    if (this.key === key) return;
    this.key = key;
    this.broken.replaceChildren(...broken.map(([property, parts]) => element("li", {}, `${property} broken: `,
      ...parts.flatMap(([processes, value, rest], at) => [
        `${at > 0 ? "; " : ""}${processes} decided `, element("bdi", { class: "value", text: shown(value, 24) }), rest]))));
  }

  whatBroke(decided) {
    const broken = [];
    const who = (value) => listed(decided.get(value).processes);
    const values = [...decided.keys()];
    if (values.length > 1) {
      const parts = values.slice(0, VALUES).map((value) => [who(value), value, ""]);
      if (values.length > VALUES) parts.at(-1)[2] = `; and ${grouped(values.length - VALUES)} more values`;
      broken.push(["agreement", parts]);
    }
    const { proposals } = this.setting.cast ?? {};
    const strange = proposals ? values.filter((value) => !proposals.includes(value)) : [];
    if (strange.length > 0) broken.push(["strong validity", strange.slice(0, VALUES).map((value) => [who(value), value, ", which no correct process proposed"])]);
    return broken;
  }
}
