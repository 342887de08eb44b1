/** A plane of digits: move in it, draw one and see where it is encoded, erase a part and see completions. */
import { SERIES, colour } from "./colours.js";
import { ellipse, extent, padded, say } from "./numbers.js";
import { Plot, element } from "./plot.js";
import { PointEditor } from "./points.js";

const SIDE = 28;
const BRUSH = 1.25;
const ERASER = 2.2;
const DIGIT_COLOURS = [...SERIES.slice(0, 7), "soft", "faint", "ink"];

/** A digit as a canvas; light on dark. @param {number[]} pixels @param {number} scale */
function digit(pixels, scale, words, most = 1) {
  const canvas = element("canvas", { class: "pixel", width: SIDE, height: SIDE, role: "img", "aria-label": words });
  canvas.style.width = canvas.style.height = `${SIDE * scale}px`;
  fill(canvas, pixels, most);
  return canvas;
}

function fill(canvas, pixels, most = 1, erased = null) {
  const ink = canvas.getContext("2d");
  const image = ink.createImageData(SIDE, SIDE);
  pixels.forEach((value, k) => {
    const light = Math.round(255 * Math.min(value / most, 1));
    const hidden = erased?.[k] === 1;
    image.data.set(hidden ? [120, 90, 30, 255] : [light, light, light, 255], 4 * k);
  });
  ink.putImageData(image, 0, 0);
}

export class LatentView {
  timeline = false;

  constructor(place, app) {
    this.app = app;
    this.plane = new Plot({ title: "The plane of codes", note: "drag the dot, or click", aspect: 1.05, least: 260, square: true, xLabel: "first latent", yLabel: "second latent", paint: (p) => this.#paint(p) });
    this.out = element("div", { class: "digits" });
    this.pad = this.#drawingPad();
    const said = element("figure", {}, element("figcaption", {}, element("b", {}, "Decoded"), element("span", {}, "mean and standard deviation")), this.out);
    this.padFigure = element("figure", {}, element("figcaption", {}, element("b", {}, "Your digit"), element("span", {}, "draw with mouse, finger or keys")), this.pad.canvas, this.pad.buttons);
    const row = element("div", { class: "main-and-side" }, this.plane.figure, element("div", { class: "stack" }, said, this.padFigure));
    place.replaceChildren(row);
    const line = app.setting("z");
    this.editor = new PointEditor(this.plane, {
      points: () => [this.#z()],
      change: (points, final) => this.#move(points[0], final),
      make: (x, y) => {
        this.#move([x, y], true);
        return null;
      },
      announce: (text) => app.announce(text),
      locked: app.recorded,
      least: line?.least ?? -4,
      most: line?.most ?? 4,
      max_length: 2,
    });
    this.settingsChanged();
  }

  close() {
    this.plane.close();
  }

  #z() {
    const { settings } = this.app;
    return settings.task === "decode" ? (settings.z?.length === 2 ? settings.z : [0, 0]) : (this.data?.z ?? [0, 0]);
  }

  #move(z, final) {
    if (!z) return;
    this.app.change({ task: "decode", z: z.map((x) => Number(x.toPrecision(4))) }, { final });
    this.plane.draw();
  }

  #drawingPad() {
    const canvas = element("canvas", { class: "pixel", width: SIDE, height: SIDE, role: "application", tabindex: 0, "aria-label": "Your digit. Draw it with the pointer, or move the brush by arrow keys and draw by the space bar" });
    canvas.style.width = canvas.style.height = "min(100%, 196px)";
    canvas.style.touchAction = "none";
    let last = null;
    const place = (event) => {
      const box = canvas.getBoundingClientRect();
      return [((event.clientX - box.left) / box.width) * SIDE, ((event.clientY - box.top) / box.height) * SIDE];
    };
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      last = place(event);
      this.#stroke(last, last);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!last) return;
      const now = place(event);
      this.#stroke(last, now);
      last = now;
    });
    canvas.addEventListener("pointerup", () => {
      if (last) this.#say();
      last = null;
    });
    let brush = [SIDE / 2, SIDE / 2];
    canvas.addEventListener("keydown", (event) => {
      const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
      if (!way && event.key !== " ") return;
      event.preventDefault();
      const now = way ? brush.map((x, k) => Math.min(Math.max(x + 2 * way[k], 1), SIDE - 1)) : brush;
      if (!way || event.shiftKey) this.#stroke(brush, now);
      brush = now;
      this.#showBrush(brush);
      this.app.announce(`Brush at column ${brush[0]}, row ${brush[1]} of ${SIDE}.`);
      if (!way) this.#say();
    });
    canvas.addEventListener("blur", () => fill(canvas, this.pixels, 1, this.erased));
    const clear = element("button", { type: "button", onclick: () => this.#clear() }, "Clear");
    this.erasing = element("button", { type: "button", "aria-pressed": "false", onclick: () => this.erasing.setAttribute("aria-pressed", String(this.erasing.getAttribute("aria-pressed") !== "true")) }, "Erase a part");
    return { canvas, buttons: element("div", { class: "pads" }, this.erasing, clear) };
  }

  #showBrush([x, y]) {
    fill(this.pad.canvas, this.pixels, 1, this.erased);
    const ink = this.pad.canvas.getContext("2d");
    ink.strokeStyle = colour("red");
    ink.strokeRect(x - 1.5, y - 1.5, 3, 3);
  }

  #stroke([x0, y0], [x1, y1]) {
    const erasing = this.erasing.getAttribute("aria-pressed") === "true";
    const reach = erasing ? ERASER : BRUSH;
    const target = erasing ? this.erased : this.pixels;
    const length = Math.hypot(x1 - x0, y1 - y0);
    for (let k = 0; k < SIDE * SIDE; k++) {
      const [x, y] = [(k % SIDE) + 0.5, Math.floor(k / SIDE) + 0.5];
      const t = length ? Math.min(Math.max(((x - x0) * (x1 - x0) + (y - y0) * (y1 - y0)) / length ** 2, 0), 1) : 0;
      const away = Math.hypot(x - x0 - t * (x1 - x0), y - y0 - t * (y1 - y0));
      const value = Math.min(Math.max(reach + 0.5 - away, 0), 1);
      target[k] = erasing ? Math.max(target[k], value > 0.5 ? 1 : 0) : Math.max(target[k], Math.round(100 * value) / 100);
    }
    fill(this.pad.canvas, this.pixels, 1, this.erased);
  }

  #say() {
    const hidden = this.erased.some(Boolean);
    const patch = { digit: [...this.pixels], task: hidden ? "complete" : "encode" };
    if (hidden) patch.erased = [...this.erased];
    this.app.change(patch);
  }

  #clear() {
    this.pixels = new Array(SIDE * SIDE).fill(0);
    this.erased = new Array(SIDE * SIDE).fill(0);
    this.erasing.setAttribute("aria-pressed", "false");
    fill(this.pad.canvas, this.pixels);
    this.app.change({ task: "decode", digit: [], erased: [] });
  }

  settingsChanged() {
    const { settings } = this.app;
    const whole = (values) => (values?.length === SIDE * SIDE ? [...values] : new Array(SIDE * SIDE).fill(0));
    this.#fillPad(whole(settings.digit), settings.task === "complete" ? whole(settings.erased) : null);
    this.plane.draw();
  }

  #fillPad(pixels, erased) {
    this.pixels = [...pixels];
    this.erased = erased ? [...erased] : new Array(SIDE * SIDE).fill(0);
    fill(this.pad.canvas, this.pixels, 1, this.erased);
  }

  show(slot, message) {
    this.data = message.data;
    const { codes, digit: own, erased } = this.data;
    if (own && !this.app.settings.digit.length) this.#fillPad(own, erased);
    this.plane.view(padded(extent([codes.map((c) => c[0])])), padded(extent([codes.map((c) => c[1])])), true);
    const most = Math.max(...this.data.std, 0.05);
    const rows = [digit(this.data.mean, 4.2, "The mean of the decoded digit"), digit(this.data.std, 4.2, `Its standard deviation, at most ${say(most, 2)}`, most)];
    (this.data.completions ?? []).forEach((pixels, k) => rows.push(digit(pixels, 2.4, `Completion ${k + 1}`)));
    this.out.replaceChildren(...rows);
    this.plane.say(this.words());
    this.plane.draw();
  }

  #paint(plot) {
    const { data } = this;
    if (!data) return;
    for (const [x, y, label] of data.codes) plot.text(String(label), plot.px(x), plot.py(y), colour(DIGIT_COLOURS[label]), "center", 11);
    const z = this.#z();
    if (data.z_std && this.app.settings.task !== "decode") plot.path(ellipse(z, [[data.z_std[0] ** 2, 0], [0, data.z_std[1] ** 2]], 2), colour("ink"), 2);
    plot.mark(...z, colour("ink"), 7);
    this.editor.paint();
  }

  words() {
    const z = this.#z();
    return `At ${say(z[0], 3)}, ${say(z[1], 3)} of the plane.`;
  }

  readings() {
    const { data } = this;
    if (!data) return [];
    const p = (...parts) => element("p", {}, ...parts);
    const unsure = data.std.reduce((sum, x) => sum + x, 0) / data.std.length;
    const spread = data.z_std ? ` Its code is known to ± ${data.z_std.map((x) => say(x, 2)).join(", ")}.` : "";
    return [{ title: "Here", tone: "blue", content: [p(element("strong", {}, `z = ${this.#z().map((x) => say(x, 3)).join(", ")}`)), p(`A pixel is unsure by ${say(unsure, 2)} on average.${spread}`)] }];
  }
}
