/**
 * Points that are added, moved and removed, by pointer and by keyboard; and a line that is dragged along x.
 * What is dragged is drawn from what is at hand; only where it is let go is said to the server.
 */
import { colour } from "./colours.js";
import { say } from "./numbers.js";

const REACH = { mouse: 11, pen: 14, touch: 24 };
const STEP = 0.02;
const JUST_NOW = 450;

/**
 * @typedef {Object} Editing
 * @property {function(): number[][]} points
 * @property {function(number[][], boolean): void} change new points, and whether the change is at its end
 * @property {function(number, number): number[]} make a point at a place
 * @property {function(string): void} announce
 * @property {number} least of every coordinate
 * @property {number} most
 * @property {number} max_length
 * @property {boolean} [locked] points stay where they are: a recording
 * @property {function(?number[]): void} [hover] is told where the pointer or the cross is
 * @property {?{get: function(): number, set: function(number, boolean): void}} [line]
 */

export class PointEditor {
  /** @param {import("./plot.js").Plot} plot @param {Editing} editing */
  constructor(plot, editing) {
    this.plot = plot;
    this.editing = editing;
    this.chosen = -1;
    this.cursor = null;
    this.hover = null;
    const { canvas } = plot;
    canvas.tabIndex = 0;
    canvas.setAttribute("role", "application");
    canvas.setAttribute("aria-roledescription", "picture with points");
    const title = canvas.getAttribute("aria-label");
    canvas.setAttribute("aria-label", `${title}. Arrow keys move, Enter adds a point, N and P choose points, Delete removes.`);
    canvas.addEventListener("pointerdown", (event) => this.#down(event));
    canvas.addEventListener("pointermove", (event) => this.#move(event));
    canvas.addEventListener("pointerup", (event) => this.#up(event));
    canvas.addEventListener("pointercancel", () => this.#stop());
    canvas.addEventListener("pointerleave", () => this.#hovered(null));
    canvas.addEventListener("dblclick", (event) => this.#twice(event));
    canvas.addEventListener("keydown", (event) => this.#key(event));
    canvas.addEventListener("focus", () => plot.draw());
    canvas.addEventListener("blur", () => {
      this.cursor = null;
      plot.draw();
    });
    const held = (event) => {
      const [x, y] = this.#place(event.touches[0]);
      if (this.#nearest(x, y, REACH.touch) >= 0 || this.#onLine(x, REACH.touch)) event.preventDefault();
    };
    canvas.addEventListener("touchstart", held, { passive: false });
  }

  #place(event) {
    const box = this.plot.canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  #nearest(px, py, reach) {
    let best = -1;
    if (this.editing.locked) return best;
    let least = reach;
    this.editing.points().forEach(([x, y], k) => {
      const away = Math.hypot(this.plot.px(x) - px, this.plot.py(y) - py);
      if (away <= least) [best, least] = [k, away];
    });
    return best;
  }

  #onLine(px, reach) {
    const { line } = this.editing;
    return Boolean(line) && Math.abs(this.plot.px(line.get()) - px) <= Math.min(reach, 16) * 0.8;
  }

  #inside(px, py) {
    const { left, right, top, bottom } = this.plot.box;
    return px >= left && px <= right && py >= top && py <= bottom;
  }

  /** As links write numbers, so that a link gives the same ones. */
  #bounded = (x) => Number(Math.min(Math.max(x, this.editing.least), this.editing.most).toPrecision(6));

  #down(event) {
    if (event.button !== 0) return;
    const [px, py] = this.#place(event);
    const reach = REACH[event.pointerType] ?? REACH.mouse;
    const near = this.#nearest(px, py, reach);
    this.began = { px, py, moved: false, kind: near >= 0 ? "point" : this.#onLine(px, reach) ? "line" : "empty" };
    this.chosen = near;
    if (this.began.kind !== "empty") this.plot.canvas.setPointerCapture(event.pointerId);
    this.plot.draw();
  }

  #move(event) {
    const [px, py] = this.#place(event);
    if (!this.began) {
      const reach = REACH.mouse;
      const near = this.#nearest(px, py, reach);
      const shape = near >= 0 ? "grab" : this.#onLine(px, reach) ? "ew-resize" : this.#inside(px, py) ? "crosshair" : "default";
      this.plot.canvas.style.cursor = shape;
      this.#hovered(this.#inside(px, py) ? [px, py] : null);
      return;
    }
    if (Math.hypot(px - this.began.px, py - this.began.py) > 3) this.began.moved = true;
    if (!this.began.moved) return;
    if (this.began.kind === "point") {
      this.plot.canvas.style.cursor = "grabbing";
      this.#put(this.chosen, this.plot.atX(px), this.plot.atY(py), false);
    } else if (this.began.kind === "line") this.editing.line.set(this.#bounded(this.plot.atX(px)), false);
  }

  #up(event) {
    const began = this.began;
    this.began = null;
    if (!began) return;
    const [px, py] = this.#place(event);
    if (began.kind === "empty") {
      if (!began.moved && this.#inside(px, py)) this.#add(this.plot.atX(px), this.plot.atY(py));
    } else if (began.moved && began.kind === "point") this.#put(this.chosen, this.plot.atX(px), this.plot.atY(py), true);
    else if (began.moved) this.editing.line.set(this.#bounded(this.plot.atX(px)), true);
    this.plot.draw();
  }

  #stop() {
    if (this.began?.moved && this.began.kind === "point") this.editing.change(this.editing.points(), true);
    this.began = null;
  }

  #twice(event) {
    const [px, py] = this.#place(event);
    const near = this.#nearest(px, py, REACH.mouse);
    const fresh = near === this.editing.points().length - 1 && performance.now() - (this.added ?? -1e9) < JUST_NOW;
    if (near >= 0 && !fresh) this.remove(near);
  }

  #hovered(place) {
    this.hover = place;
    this.editing.hover?.(place && [this.plot.atX(place[0]), this.plot.atY(place[1])]);
  }

  #put(index, x, y, final) {
    const points = this.editing.points().map((point) => [...point]);
    if (!points[index]) return;
    points[index][0] = this.#bounded(x);
    points[index][1] = this.#bounded(y);
    this.editing.change(points, final);
    if (final) this.#tell(`Point ${index + 1} of ${points.length} is`, points[index]);
  }

  #add(x, y) {
    if (this.editing.locked) return this.editing.announce("A recording has no server to ask: points stay as they are.");
    const points = this.editing.points();
    if (points.length >= this.editing.max_length) return this.editing.announce(`There is room for ${this.editing.max_length} points only.`);
    const made = this.editing.make(this.#bounded(x), this.#bounded(y));
    if (!made) return;
    this.editing.change([...points, made], true);
    this.chosen = points.length;
    this.added = performance.now();
    this.#tell("Added a point", made);
  }

  /** @param {number} index by default the one that is chosen */
  remove(index = this.chosen) {
    const points = this.editing.points();
    if (!points[index] || this.editing.locked) return;
    this.editing.change(points.filter((_, k) => k !== index), true);
    this.chosen = -1;
    this.editing.announce(`Removed a point; ${points.length - 1} are left.`);
  }

  #tell(what, [x, y]) {
    this.editing.announce(`${what} at ${say(x)}, ${say(y)}.`);
  }

  #key(event) {
    const { plot } = this;
    const points = this.editing.points();
    const arrows = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
    const arrow = arrows[event.key];
    const name = event.key.toLowerCase();
    if (arrow && !event.altKey && !event.ctrlKey && !event.metaKey) {
      const far = STEP * (event.shiftKey ? 5 : 1);
      const [dx, dy] = [arrow[0] * far * (plot.x[1] - plot.x[0]), arrow[1] * far * (plot.y[1] - plot.y[0])];
      if (points[this.chosen] && !this.editing.locked) this.#put(this.chosen, points[this.chosen][0] + dx, points[this.chosen][1] + dy, true);
      else {
        const [x, y] = this.#cursor();
        this.cursor = [Math.min(Math.max(x + dx, plot.x[0]), plot.x[1]), Math.min(Math.max(y + dy, plot.y[0]), plot.y[1])];
        this.editing.hover?.(this.cursor);
        this.editing.announce(`${say(this.cursor[0])}, ${say(this.cursor[1])}`);
      }
    } else if (event.key === "Enter" || event.key === " ") {
      this.chosen = -1;
      this.#add(...this.#cursor());
      this.chosen = -1;
    } else if (event.key === "Delete" || event.key === "Backspace") this.remove();
    else if (event.key === "Escape") {
      this.chosen = -1;
      this.editing.announce("No point is chosen: arrow keys move the cross.");
    } else if ((name === "n" || name === "p") && points.length && !event.ctrlKey && !event.metaKey) {
      const step = name === "n" ? 1 : -1;
      this.chosen = this.chosen < 0 ? (step > 0 ? 0 : points.length - 1) : (this.chosen + step + points.length) % points.length;
      this.#tell(`Point ${this.chosen + 1} of ${points.length}`, points[this.chosen]);
    } else return;
    event.preventDefault();
    plot.draw();
  }

  #cursor() {
    return this.cursor ?? [(this.plot.x[0] + this.plot.x[1]) / 2, (this.plot.y[0] + this.plot.y[1]) / 2];
  }

  /** The point that is chosen, and the cross of the keyboard. */
  paint() {
    const { plot } = this;
    const point = this.editing.points()[this.chosen];
    const ink = plot.context;
    if (point) {
      ink.strokeStyle = colour("ink");
      ink.lineWidth = 2;
      ink.beginPath();
      ink.arc(plot.px(point[0]), plot.py(point[1]), 10, 0, 2 * Math.PI);
      ink.stroke();
    } else if (this.cursor && document.activeElement === plot.canvas) {
      const [x, y] = this.cursor;
      plot.segments([[plot.x[0], y, plot.x[1], y], [x, plot.y[0], x, plot.y[1]]], colour("faint"));
    }
  }
}

/**
 * Rows of numbers of a small table; a first line of names is passed over.
 * @param {string} text @param {number} columns @returns {number[][]}
 */
export function readTable(text, columns) {
  const rows = text.split(/\r?\n/).map((line) => line.trim()).filter(Boolean);
  const points = rows.map((row) => row.split(/[;,\t]|\s+/).map((cell) => (cell.trim() === "" ? NaN : Number(cell))));
  const whole = (point) => point.length >= columns && point.slice(0, columns).every(Number.isFinite);
  if (points.length && !whole(points[0])) points.shift();
  const bad = points.findIndex((point) => !whole(point));
  if (!points.length) throw new Error(`The file has no rows of ${columns} numbers.`);
  if (bad >= 0) throw new Error(`Row ${bad + 1} of the numbers in the file is not ${columns} numbers.`);
  return points.map((point) => point.slice(0, columns));
}
