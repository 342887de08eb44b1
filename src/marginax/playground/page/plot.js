/**
 * A picture with axes on a canvas: drawn from arrays that are at hand, in the next frame after it was asked for.
 */
import { colour, faded, rgb } from "./colours.js";
import { say, ticks } from "./numbers.js";

/** @type {Set<Plot>} */
const waiting = new Set();
let frame = 0;

function drawWaiting() {
  frame = 0;
  const now = [...waiting];
  waiting.clear();
  for (const plot of now) plot.paint();
}

const everyPlot = new Set();

/** Draw all again: the theme has changed. */
export function drawAll() {
  for (const plot of everyPlot) plot.draw();
}

export const calm = matchMedia("(prefers-reduced-motion: reduce)");

/** @param {string} tag @param {Object} attributes @param {...(Node|string)} children */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, String(value));
  }
  made.append(...children);
  return made;
}

let counted = 0;

export class Plot {
  /**
   * @param {Object} options
   * @param {string} options.title above the picture
   * @param {string} [options.note] beside the title
   * @param {number} options.aspect width over height
   * @param {number} [options.least] height in pixels
   * @param {number} [options.height] in pixels, in the place of an aspect
   * @param {string} [options.xLabel]
   * @param {string} [options.yLabel]
   * @param {boolean} [options.square] the same unit along both axes
   * @param {boolean} [options.bare] no axes
   * @param {function(Plot, CanvasRenderingContext2D): void} options.paint inside of the frame
   */
  constructor(options) {
    this.options = options;
    this.x = [0, 1];
    this.y = [0, 1];
    this.target = [0, 1, 0, 1];
    this.size = [0, 0];
    const id = `plot${++counted}`;
    this.canvas = element("canvas", { role: "img", "aria-label": options.title, "aria-describedby": id });
    this.holder = element("div", { class: "canvas" }, this.canvas);
    if (options.height) this.holder.style.height = `${options.height}px`;
    else this.holder.style.aspectRatio = String(options.aspect);
    if (options.least) this.holder.style.minHeight = `${options.least}px`;
    this.words = element("p", { class: "unseen", id });
    this.note = element("span", {}, options.note ?? "");
    this.titleText = element("b", {}, options.title);
    this.caption = element("figcaption", {}, this.titleText, this.note);
    this.figure = element("figure", {}, this.caption, this.holder, this.words);
    this.context = this.canvas.getContext("2d");
    this.observer = new ResizeObserver(() => this.#resize());
    this.observer.observe(this.holder);
    this.inked = 0;
    everyPlot.add(this);
  }

  /** It is not shown any more. */
  close() {
    this.observer.disconnect();
    everyPlot.delete(this);
    waiting.delete(this);
  }

  /** What the picture says, for those who do not see it. */
  say(text) {
    if (this.words.textContent !== text) this.words.textContent = text;
  }

  setTitle(text) {
    this.titleText.textContent = text;
    this.canvas.setAttribute("aria-label", text);
  }

  #resize() {
    const { width, height } = this.holder.getBoundingClientRect();
    if (!width || !height) return;
    const density = Math.min(devicePixelRatio || 1, 2.5);
    this.size = [width, height];
    this.canvas.width = Math.round(width * density);
    this.canvas.height = Math.round(height * density);
    this.density = density;
    this.#margins();
    this.#fit();
    this.paint();
  }

  #margins() {
    const [width, height] = this.size;
    const bare = this.options.bare;
    const left = bare ? 4 : this.options.yLabel ? 58 : 44;
    const bottom = bare ? 4 : this.options.xLabel ? 36 : 22;
    this.box = { left, top: 8, right: width - (bare ? 4 : 16), bottom: height - bottom };
  }

  /** What the axes span; a change glides there. @param {number[]} x @param {number[]} y @param {boolean} now */
  view(x, y, now = false) {
    this.wished = [...x, ...y];
    this.#fit();
    if (now || !this.seen || calm.matches) this.#jump();
    this.seen = true;
    this.draw();
  }

  #fit() {
    if (!this.wished) return;
    let [x0, x1, y0, y1] = this.wished;
    if (this.options.square && this.box) {
      const wide = this.box.right - this.box.left;
      const high = this.box.bottom - this.box.top;
      const unit = Math.max((x1 - x0) / wide, (y1 - y0) / high);
      [x0, x1] = [(x0 + x1 - unit * wide) / 2, (x0 + x1 + unit * wide) / 2];
      [y0, y1] = [(y0 + y1 - unit * high) / 2, (y0 + y1 + unit * high) / 2];
      this.target = [x0, x1, y0, y1];
      this.#jump();
    }
    this.target = [x0, x1, y0, y1];
  }

  #jump() {
    const [x0, x1, y0, y1] = this.target;
    this.x = [x0, x1];
    this.y = [y0, y1];
  }

  /** What the axes span, for tests and the curious. */
  #told() {
    const { left, right, top, bottom } = this.box;
    this.canvas.dataset.view = JSON.stringify({ x: this.x, y: this.y, left, right, top, bottom });
  }

  #glide() {
    const now = [...this.x, ...this.y];
    const span = [this.target[1] - this.target[0], this.target[3] - this.target[2]];
    const near = now.every((value, k) => Math.abs(value - this.target[k]) < 0.002 * span[k >> 1]);
    if (near) {
      this.#jump();
      return this.#told();
    }
    const moved = now.map((value, k) => value + 0.22 * (this.target[k] - value));
    this.x = moved.slice(0, 2);
    this.y = moved.slice(2);
    this.draw();
  }

  px = (x) => this.box.left + ((x - this.x[0]) / (this.x[1] - this.x[0])) * (this.box.right - this.box.left);
  py = (y) => this.box.bottom - ((y - this.y[0]) / (this.y[1] - this.y[0])) * (this.box.bottom - this.box.top);
  atX = (px) => this.x[0] + ((px - this.box.left) / (this.box.right - this.box.left)) * (this.x[1] - this.x[0]);
  atY = (py) => this.y[0] + ((this.box.bottom - py) / (this.box.bottom - this.box.top)) * (this.y[1] - this.y[0]);

  /** In the next frame. */
  draw() {
    waiting.add(this);
    frame ||= requestAnimationFrame(drawWaiting);
  }

  paint() {
    if (!this.size[0]) return;
    this.#glide();
    const ink = this.context;
    const { left, top, right, bottom } = this.box;
    ink.setTransform(this.density, 0, 0, this.density, 0, 0);
    ink.fillStyle = colour("card");
    ink.fillRect(0, 0, ...this.size);
    if (!this.options.bare) this.#axes(ink);
    ink.save();
    ink.beginPath();
    ink.rect(left, top, right - left, bottom - top);
    ink.clip();
    ink.lineJoin = ink.lineCap = "round";
    this.options.paint(this, ink);
    ink.restore();
    this.#labels(ink);
    this.inked++;
  }

  #axes(ink) {
    const { left, top, right, bottom } = this.box;
    ink.font = `12px ${FONT}`;
    ink.lineWidth = 1;
    ink.strokeStyle = colour("grid");
    ink.fillStyle = colour("soft");
    ink.textAlign = "center";
    ink.textBaseline = "top";
    for (const x of ticks(...this.x, (right - left) / 60)) {
      const at = Math.round(this.px(x)) + 0.5;
      line(ink, [[at, top], [at, bottom]]);
      ink.fillText(say(x, 4), at, bottom + 5);
    }
    ink.textAlign = "right";
    ink.textBaseline = "middle";
    for (const y of ticks(...this.y, (bottom - top) / 36)) {
      const at = Math.round(this.py(y)) + 0.5;
      line(ink, [[left, at], [right, at]]);
      ink.fillText(say(y, 4), left - 6, at);
    }
  }

  /** What the axes are, over what was painted. */
  #labels(ink) {
    const { xLabel, yLabel } = this.options;
    const { top, right, bottom } = this.box;
    if (xLabel) this.text(xLabel, right, this.size[1] - 8, colour("soft"), "right");
    if (!yLabel) return;
    ink.save();
    ink.translate(10, (top + bottom) / 2);
    ink.rotate(-Math.PI / 2);
    this.text(yLabel, 0, 0, colour("soft"), "center");
    ink.restore();
  }

  /**
   * What does not change from frame to frame: drawn once for a thing, a view and a theme, then copied.
   * @param {*} thing that is shown; another one is drawn anew @param {function(): void} draw
   */
  still(thing, draw) {
    const stamp = [...this.x, ...this.y, ...this.size, this.density, document.documentElement.dataset.theme].join();
    if (!this.kept || this.kept.thing !== thing || this.kept.stamp !== stamp) {
      const picture = this.kept?.picture ?? document.createElement("canvas");
      [picture.width, picture.height] = [this.canvas.width, this.canvas.height];
      const ink = picture.getContext("2d");
      ink.setTransform(this.density, 0, 0, this.density, 0, 0);
      ink.lineJoin = ink.lineCap = "round";
      const own = this.context;
      this.context = ink;
      draw();
      this.context = own;
      this.kept = { thing, stamp, picture };
    }
    this.context.drawImage(this.kept.picture, 0, 0, ...this.size);
  }

  // What is drawn inside.

  /** @param {number[]} xs @param {?number[]} ys */
  curve(xs, ys, style, width = 2, dash = []) {
    const ink = this.context;
    ink.strokeStyle = style;
    ink.lineWidth = width;
    ink.setLineDash(dash);
    ink.beginPath();
    let down = false;
    for (let k = 0; k < xs.length; k++) {
      if (ys[k] === null) down = false;
      else if (down) ink.lineTo(this.px(xs[k]), this.py(ys[k]));
      else {
        ink.moveTo(this.px(xs[k]), this.py(ys[k]));
        down = true;
      }
    }
    ink.stroke();
    ink.setLineDash([]);
  }

  /** Between two curves. */
  band(xs, lower, upper, style) {
    const ink = this.context;
    ink.fillStyle = style;
    ink.beginPath();
    xs.forEach((x, k) => ink.lineTo(this.px(x), this.py(upper[k])));
    for (let k = xs.length - 1; k >= 0; k--) ink.lineTo(this.px(xs[k]), this.py(lower[k]));
    ink.fill();
  }

  /** A line through points. */
  path(points, style, width = 1.5, dash = [], fill = null) {
    const ink = this.context;
    ink.strokeStyle = style;
    ink.lineWidth = width;
    ink.setLineDash(dash);
    ink.beginPath();
    for (const [x, y] of points) ink.lineTo(this.px(x), this.py(y));
    if (fill) {
      ink.fillStyle = fill;
      ink.fill();
    }
    if (style) ink.stroke();
    ink.setLineDash([]);
  }

  /** Segments [x0, y0, x1, y1], as one stroke. */
  segments(segments, style, width = 1) {
    const ink = this.context;
    ink.strokeStyle = style;
    ink.lineWidth = width;
    ink.beginPath();
    for (const [x0, y0, x1, y1] of segments) {
      ink.moveTo(this.px(x0), this.py(y0));
      ink.lineTo(this.px(x1), this.py(y1));
    }
    ink.stroke();
  }

  dots(points, style, radius) {
    const ink = this.context;
    ink.fillStyle = style;
    for (const [x, y] of points) {
      ink.beginPath();
      ink.arc(this.px(x), this.py(y), radius, 0, 2 * Math.PI);
      ink.fill();
    }
  }

  /** A mark with a rim of the card's colour; classes differ by shape too. */
  mark(x, y, style, radius, shape = 0, ring = null) {
    const ink = this.context;
    const [a, b] = [this.px(x), this.py(y)];
    ink.beginPath();
    if (shape === 0) ink.arc(a, b, radius, 0, 2 * Math.PI);
    else if (shape === 1) ink.rect(a - radius * 0.88, b - radius * 0.88, radius * 1.76, radius * 1.76);
    else {
      ink.moveTo(a, b - radius * 1.25);
      ink.lineTo(a + radius * 1.12, b + radius * 0.8);
      ink.lineTo(a - radius * 1.12, b + radius * 0.8);
      ink.closePath();
    }
    ink.fillStyle = style;
    ink.strokeStyle = ring ?? colour("card");
    ink.lineWidth = ring ? 3 : 1.5;
    ink.fill();
    ink.stroke();
  }

  cross(x, y, style, size = 5, width = 2) {
    const [a, b] = [this.px(x), this.py(y)];
    const ink = this.context;
    ink.strokeStyle = style;
    ink.lineWidth = width;
    ink.beginPath();
    ink.moveTo(a - size, b - size);
    ink.lineTo(a + size, b + size);
    ink.moveTo(a - size, b + size);
    ink.lineTo(a + size, b - size);
    ink.stroke();
  }

  /** A picture of a map, made by `heat`, at its place. */
  image(picture, xs, ys) {
    const ink = this.context;
    const dx = (xs.at(-1) - xs[0]) / (xs.length - 1) / 2;
    const dy = (ys.at(-1) - ys[0]) / (ys.length - 1) / 2;
    const [left, right] = [this.px(xs[0] - dx), this.px(xs.at(-1) + dx)];
    const [top, bottom] = [this.py(ys.at(-1) + dy), this.py(ys[0] - dy)];
    ink.imageSmoothingEnabled = true;
    ink.imageSmoothingQuality = "high";
    ink.drawImage(picture, left, top, right - left, bottom - top);
  }

  bars(edges, heights, style) {
    const ink = this.context;
    ink.fillStyle = style;
    heights.forEach((height, k) => {
      const [a, b] = [this.px(edges[k]), this.px(edges[k + 1])];
      ink.fillRect(a, this.py(height), b - a - 0.5, this.py(0) - this.py(height));
    });
  }

  text(words, px, py, style = colour("soft"), align = "left", size = 12) {
    const ink = this.context;
    ink.font = `${size}px ${FONT}`;
    ink.textAlign = align;
    ink.textBaseline = "middle";
    ink.lineWidth = 3;
    ink.strokeStyle = faded("card", 0.85);
    ink.strokeText(words, px, py);
    ink.fillStyle = style;
    ink.fillText(words, px, py);
  }
}

export const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", Arial, sans-serif';

function line(ink, [[x0, y0], [x1, y1]]) {
  ink.beginPath();
  ink.moveTo(x0, y0);
  ink.lineTo(x1, y1);
  ink.stroke();
}

/**
 * A picture of a map, a pixel for each number; rows of the map go up.
 * @param {number[][]} map @param {function(number, number, number): number[]} tint (value, row, column) to red, green, blue
 */
export function heat(map, tint) {
  const [height, width] = [map.length, map[0].length];
  const picture = document.createElement("canvas");
  [picture.width, picture.height] = [width, height];
  const ink = picture.getContext("2d");
  const pixels = ink.createImageData(width, height);
  const empty = rgb("card");
  for (let j = 0; j < height; j++) {
    for (let i = 0; i < width; i++) {
      const at = 4 * ((height - 1 - j) * width + i);
      const value = map[j][i];
      const [r, g, b] = value === null ? empty : tint(value, j, i);
      pixels.data[at] = r;
      pixels.data[at + 1] = g;
      pixels.data[at + 2] = b;
      pixels.data[at + 3] = 255;
    }
  }
  ink.putImageData(pixels, 0, 0);
  return picture;
}

/** @param {[string, string, string][]} rows of colour, kind ("", "thin", "dashed", "dot") and words */
export function legend(rows) {
  const made = element("span", { class: "legend" });
  for (const [name, kind, words] of rows) {
    const sample = element("i", { class: kind, "aria-hidden": "true" });
    sample.style.color = `var(--${name.split("/")[0]})`;
    if (name.includes("/")) sample.style.opacity = name.split("/")[1];
    made.append(element("span", {}, sample, words));
  }
  return made;
}

/** All pictures of a place as one PNG. @param {HTMLElement} place @param {string} title @returns {Promise<Blob>} */
export function photograph(place, title) {
  const frame = place.getBoundingClientRect();
  const scale = 2;
  const top = 44;
  const sheet = document.createElement("canvas");
  [sheet.width, sheet.height] = [Math.round(frame.width + 32) * scale, Math.round(frame.height + top + 16) * scale];
  const ink = sheet.getContext("2d");
  ink.scale(scale, scale);
  ink.fillStyle = colour("page");
  ink.fillRect(0, 0, sheet.width, sheet.height);
  ink.textBaseline = "middle";
  ink.fillStyle = colour("ink");
  ink.font = `600 17px ${FONT}`;
  ink.fillText(title, 16, 24);
  ink.fillStyle = colour("soft");
  ink.font = `13px ${FONT}`;
  ink.textAlign = "right";
  ink.fillText("marginax playground", frame.width + 16, 24);
  ink.textAlign = "left";
  const placed = (node) => {
    const box = node.getBoundingClientRect();
    return [box.left - frame.left + 16, box.top - frame.top + top, box.width, box.height];
  };
  for (const figure of place.querySelectorAll("figure")) {
    const [x, y, width, height] = placed(figure);
    ink.fillStyle = colour("card");
    ink.strokeStyle = colour("line");
    ink.beginPath();
    ink.roundRect(x + 0.5, y + 0.5, width - 1, height - 1, 10);
    ink.fill();
    ink.stroke();
    for (const words of figure.querySelectorAll("figcaption b, figcaption span:not(:has(span))")) {
      const [wx, wy, , wh] = placed(words);
      const style = getComputedStyle(words);
      const sample = words.querySelector("i");
      ink.font = `${style.fontWeight} ${style.fontSize} ${FONT}`;
      ink.fillStyle = style.color;
      let indent = 0;
      if (sample) {
        const [sx, sy, sw, sh] = placed(sample);
        ink.save();
        ink.globalAlpha = Number(getComputedStyle(sample).opacity);
        ink.fillStyle = getComputedStyle(sample).color;
        ink.fillRect(sx, sy, sw, Math.max(sh, 2));
        ink.restore();
        indent = sx + sw + 6 - wx;
      }
      ink.fillText(words.textContent, wx + indent, wy + wh / 2);
    }
    for (const canvas of figure.querySelectorAll("canvas")) ink.drawImage(canvas, ...placed(canvas));
  }
  return new Promise((resolve) => sheet.toBlob(resolve, "image/png"));
}
