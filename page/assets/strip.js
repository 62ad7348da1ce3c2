// All phases at a glance: a column for each phase, a row for each warp. A phase stands in the row of its warp: filled if it added
// an entry, hollow if not. The slider above says the same to those who do not see it.

import { element } from "./dom.js";

const TALL = 120;

export class Strip {
  constructor(setting, { go }) {
    this.setting = setting;
    this.slots = new Map(setting.first_round.map((warp, slot) => [warp, slot]));
    this.node = element("canvas", { class: "strip", "aria-hidden": "true", on: { click: (event) => go(this.first + Math.floor(event.offsetX / this.wide) + 1) } });
    this.first = 0;
    this.wide = 8;
  }

  // Shows the steps around this one.
  show(history, at) {
    const { node } = this;
    const width = node.clientWidth;
    if (width === 0) return;
    const { warps } = this.setting;
    const high = Math.max(1, Math.min(10, Math.floor(TALL / warps)));
    const height = Math.max(12, Math.min(TALL, warps * high));
    const steps = history.steps;
    this.wide = Math.max(3, Math.min(14, width / Math.max(1, steps.length)));
    const visible = Math.floor(width / this.wide);
    this.first = Math.max(0, Math.min(steps.length - visible, at - Math.floor(visible / 2)));
    const key = [width, steps.length, at, this.first, matchMedia("(prefers-color-scheme: dark)").matches].join(" ");
    if (this.key === key) return;
    this.key = key;
    const scale = devicePixelRatio || 1;
    [node.width, node.height] = [width * scale, height * scale];
    node.style.height = `${height}px`;
    const style = getComputedStyle(node);
    const colour = (name) => style.getPropertyValue(name);
    const draw = node.getContext("2d");
    draw.scale(scale, scale);
    const size = Math.min(this.wide, height / warps) - 1;
    const rowOf = (slot) => (slot / warps) * height;
    if (at > 0) {
      draw.fillStyle = colour("--lit");
      draw.fillRect((at - 1 - this.first) * this.wide, 0, this.wide, height);
    }
    draw.strokeStyle = colour("--faint");
    for (let step = this.first; step < Math.min(steps.length, this.first + visible); step += 1) {
      const { warp, added } = steps[step];
      const x = (step - this.first) * this.wide;
      const y = rowOf(this.slots.get(warp) ?? 0);
      draw.globalAlpha = step < at ? 1 : 0.35;
      draw.fillStyle = colour(added ? "--won" : "--faint");
      if (added || size < 4) draw.fillRect(x, y, Math.max(size, 1), Math.max(size, 1));
      else draw.strokeRect(x + 0.5, y + 0.5, size - 1, size - 1);
    }
  }
}
