// All phases at a glance, below the slider and on its scale: a column for each phase, a row for each warp. A phase stands in the row of
// its warp: filled if it has added an entry by the moment that is shown, hollow if not. The slider says the same to those who do not see it.

import { element } from "./dom.js";
import { palette } from "./palette.js";

// The height of a row, and of all.
const ROW = 11;
const TALL = 128;
// Above this number of warps the rows would be too low.
const WARPS = 64;
// Pixels of the slider's thumb, and the most of a column.
const THUMB = 16;
const WIDEST = 96;

export class Strip {
  constructor(setting, { go, slider }) {
    this.warps = setting.warps;
    this.slider = slider;
    const click = ({ offsetX }) => go(Math.floor(offsetX / this.wide));
    this.node = element("canvas", { class: "strip", "aria-hidden": "true", hidden: this.warps > WARPS, on: { click } });
    const ends = this.warps === 1 ? [1] : [1, this.warps];
    this.names = element("p", { class: "strip-names", "aria-hidden": "true", hidden: this.warps > WARPS }, ...ends.map((warp) => element("span", { text: `warp ${warp}` })));
    this.height = Math.max(14, Math.min(ROW * this.warps, TALL));
  }

  forget() {
    this.key = undefined;
  }

  // Shows all steps; the one that is shown is marked.
  show({ key: of, steps }, at) {
    const { node, warps, height } = this;
    const width = node.clientWidth;
    if (width === 0) return;
    const key = [of, width, steps.length, at].join(" ");
    if (this.key === key) return;
    this.key = key;
    // The first column is before the first phase. The middle of the thumb is that of the column.
    this.wide = Math.min(WIDEST, width / (steps.length + 1));
    this.slider.style.width = `${this.wide * steps.length + THUMB}px`;
    this.slider.style.marginLeft = `${(this.wide - THUMB) / 2}px`;
    const pen = this.prepare(width, height);
    const colours = palette();
    const row = height / warps;
    const size = Math.max(2, Math.min(this.wide - 1, row < 5 ? row : row - 1));
    pen.fillStyle = colours.lit;
    pen.fillRect(at * this.wide, 0, Math.max(2, this.wide), height);
    pen.strokeStyle = colours.faint;
    // Where many phases have the same place, hollow ones are not all drawn.
    const each = Math.ceil(steps.length / (4 * width));
    for (let step = 0; step < steps.length; step += 1) {
      const added = step < at && steps.added(step);
      if (!added && step % each > 0) continue;
      const x = (step + 1.5) * this.wide - size / 2;
      const y = (steps.warp(step) - 0.5) * row - size / 2;
      pen.globalAlpha = step < at ? 1 : 0.35;
      pen.fillStyle = added ? colours.won : colours.faint;
      if (added || size < 4) pen.fillRect(x, y, size, size);
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
