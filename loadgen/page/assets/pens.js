// Two pens that draw the same: one on a canvas, one with the elements of an SVG file. Nothing is styled by classes, so a file stands
// alone and needs no style sheet.

import { svg } from "./dom.js";
import { palette } from "./palette.js";

const measuring = document.createElement("canvas").getContext("2d");

function font({ size = 11, weight = 400 }) {
  return `${weight} ${size}px ${palette().sans}`;
}

// The text, or as much of its beginning as is not wider than this.
export function fitting(text, width, style) {
  measuring.font = font(style);
  if (measuring.measureText(text).width <= width) return text;
  const letters = [...text];
  while (letters.length > 0 && measuring.measureText(`${letters.join("")}…`).width > width) letters.pop();
  return letters.length > 0 ? `${letters.join("")}…` : "";
}

export class CanvasPen {
  constructor(context) {
    this.context = context;
  }

  rect(x, y, width, height, { round = 0, ...style }) {
    const { context } = this;
    context.beginPath();
    if (round > 0) context.roundRect(x, y, width, height, round);
    else context.rect(x, y, width, height);
    this.paint(style);
  }

  circle(x, y, radius, style) {
    this.context.beginPath();
    this.context.arc(x, y, radius, 0, 2 * Math.PI);
    this.paint(style);
  }

  path(points, { closed = false, ...style }) {
    const { context } = this;
    context.beginPath();
    points.forEach(([x, y], at) => (at === 0 ? context.moveTo(x, y) : context.lineTo(x, y)));
    if (closed) context.closePath();
    this.paint(style);
  }

  text(x, y, text, { fill, anchor = "start", ...style }) {
    const { context } = this;
    context.font = font(style);
    context.textAlign = { start: "left", middle: "center", end: "right" }[anchor];
    context.fillStyle = fill;
    context.fillText(text, x, y);
  }

  paint({ fill, stroke, line = 1, dash }) {
    const { context } = this;
    if (fill) {
      context.fillStyle = fill;
      context.fill();
    }
    if (!stroke) return;
    context.strokeStyle = stroke;
    context.lineWidth = line;
    context.setLineDash(dash ?? []);
    context.stroke();
  }

  // What `draw` draws belongs together, and is called this.
  group(_title, draw) {
    draw();
  }
}

export class SvgPen {
  constructor() {
    this.nodes = [];
  }

  rect(x, y, width, height, { round = 0, ...style }) {
    this.add("rect", { x, y, width, height, rx: round || undefined }, style);
  }

  circle(cx, cy, r, style) {
    this.add("circle", { cx, cy, r }, style);
  }

  path(points, { closed = false, ...style }) {
    this.add("path", { d: `M${points.map(([x, y]) => `${x} ${y}`).join("L")}${closed ? "Z" : ""}` }, style);
  }

  text(x, y, text, { fill, anchor = "start", size = 11, weight = 400 }) {
    const family = palette().sans;
    const attributes = { x, y, fill, "text-anchor": anchor, "font-size": size, "font-weight": weight, "font-family": family };
    this.nodes.push(svg("text", { ...attributes, text }));
  }

  add(name, attributes, { fill, stroke, line = 1, dash }) {
    this.nodes.push(svg(name, {
      ...attributes, fill: fill ?? "none", stroke, "stroke-width": stroke && line, "stroke-dasharray": stroke && dash?.join(" "),
    }));
  }

  group(title, draw) {
    const outer = this.nodes;
    this.nodes = [];
    draw();
    outer.push(svg("g", {}, svg("title", { text: title }), ...this.nodes));
    this.nodes = outer;
  }
}
