// All phases at a glance: a column for each phase, a row for each warp. A phase stands in the row of its warp: filled if it added
// an entry, hollow if not. The slider above says the same to those who do not see it.

import { element } from "./dom.js";
import { palette } from "./palette.js";

const TALL = 96;

export class Strip {
  constructor(setting, { go }) {
    this.warps = setting.warps;
    const click = ({ offsetX }) => go(this.first + Math.floor(offsetX / this.wide) + 1);
    this.node = element("canvas", { class: "strip", "aria-hidden": "true", on: { click } });
    this.first = 0;
    this.wide = 8;
  }

  forget() {
    this.key = undefined;
  }

  // Shows the steps around this one.
  show({ key: of, steps }, at) {
    const { node, warps } = this;
    const width = node.clientWidth;
    if (width === 0) return;
    const height = Math.max(14, Math.min(TALL, warps * Math.max(1, Math.min(11, Math.floor(TALL / warps)))));
    this.wide = Math.max(3, Math.min(28, width / Math.max(1, steps.length)));
    const visible = Math.floor(width / this.wide);
    this.first = Math.max(0, Math.min(steps.length - visible, at - Math.floor(visible / 2)));
    const key = [of, width, steps.length, at].join(" ");
    if (this.key === key) return;
    this.key = key;
    const pen = this.prepare(width, height);
    const colours = palette();
    const size = Math.min(this.wide, height / warps) - 1;
    if (at > 0) {
      pen.fillStyle = colours.lit;
      pen.fillRect((at - 1 - this.first) * this.wide, 0, this.wide, height);
    }
    pen.strokeStyle = colours.faint;
    for (let step = this.first; step < Math.min(steps.length, this.first + visible); step += 1) {
      const x = (step - this.first) * this.wide;
      const y = ((steps.warp(step) - 1) / warps) * height;
      pen.globalAlpha = step < at ? 1 : 0.35;
      pen.fillStyle = steps.added(step) ? colours.won : colours.faint;
      if (steps.added(step) || size < 4) pen.fillRect(x, y, Math.max(size, 1.5), Math.max(size, 1.5));
      else pen.strokeRect(x + 0.5, y + 0.5, size - 1, size - 1);
    }
  }

  prepare(width, height) {
    const scale = Math.max(1, devicePixelRatio);
    const { node } = this;
    [node.width, node.height] = [width * scale, height * scale];
    node.style.height = `${height}px`;
    const pen = node.getContext("2d");
    pen.scale(scale, scale);
    return pen;
  }
}
