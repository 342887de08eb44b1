/** Functions of one variable: draws, bands, points, and a question at one x. */
import { colour, faded } from "./colours.js";
import { extent, interpolate, padded, say } from "./numbers.js";
import { Plot, element, legend } from "./plot.js";
import { PointEditor } from "./points.js";

const NINETY = 1.6449;
const KINDS = ["mean", "epistemic", "aleatoric", "total", "lower", "upper"];
const TONES = { a: "blue", b: "green" };

export class FunctionsView {
  timeline = true;

  constructor(place, app) {
    this.app = app;
    this.data = {};
    this.panels = {};
    this.range = null;
    const row = element("div", { class: "row" });
    row.style.setProperty("--columns", app.slots.length);
    place.replaceChildren(row);
    for (const slot of app.slots) row.append(this.#panel(slot));
  }

  close() {
    for (const panel of Object.values(this.panels)) [panel.plot, panel.strip].forEach((plot) => plot.close());
  }

  nameOf(slot) {
    const { prior_only, data, points } = this.app.settingsOf(slot);
    return prior_only || (data === "own" && !points.length) ? "The prior" : this.app.labelOf("method", slot);
  }

  #panel(slot) {
    const { app } = this;
    const tone = TONES[slot];
    const plot = new Plot({ title: this.nameOf(slot), aspect: app.slots.length > 1 ? 1.15 : 1.75, least: 300, xLabel: "x", yLabel: "y", paint: (p) => this.#paint(p, slot) });
    plot.note.replaceWith(
      legend([[tone, "thin", "functions, their mean bold"], [`${tone}/.5`, "", "mean ± 1.64 sd of functions"], ["orange/.55", "", "90% of new measurements"]]),
    );
    const strip = new Plot({ title: "Where does the uncertainty come from?", height: 132, xLabel: "x", yLabel: "std. deviation", paint: (p) => this.#paintStrip(p, slot) });
    strip.note.replaceWith(legend([[tone, "", "epistemic: shrinks with data"], ["orange", "", "aleatoric: noise that stays"]]));
    const editor = new PointEditor(plot, this.#editing(plot));
    this.panels[slot] = { plot, strip, editor };
    const box = element("div", {}, plot.figure, strip.figure);
    box.className = "stack";
    return box;
  }

  #editing() {
    const { app } = this;
    const setting = app.setting("points");
    return {
      points: () => this.points(),
      change: (points, final) => {
        this.held = points;
        if (final) app.editPoints(points, true);
        this.draw();
      },
      make: (x, y) => [x, y],
      announce: (text) => app.announce(text),
      locked: app.recorded,
      least: setting.least,
      most: setting.most,
      max_length: setting.max_length,
      line: { get: () => app.settings.ask, set: (x, final) => this.#ask(x, final) },
    };
  }

  #ask(x, final) {
    const ask = Number(x.toPrecision(4));
    this.app.change({ ask }, { final, run: final && !this.app.recorded });
    this.draw();
    this.app.reread();
  }

  removePoint() {
    const editor = Object.values(this.panels).map((panel) => panel.editor).find((each) => each.chosen >= 0);
    if (editor) editor.remove();
    else this.app.announce("No point is chosen: click one, or press N in the picture.");
  }

  points() {
    return this.held ?? this.data.a?.points ?? this.data.b?.points ?? [];
  }

  settingsChanged() {
    const { settings } = this.app;
    this.held = settings.data === "own" ? settings.points : null;
    for (const slot of this.app.slots) this.panels[slot]?.plot.setTitle(this.nameOf(slot));
    this.draw();
  }

  begin() {
    const { settings } = this.app;
    if (settings.data === "own") this.held = settings.points;
  }

  show(slot, message) {
    this.data[slot] = message.data;
    if (this.app.settings.data !== "own") this.held = null;
    this.#frame();
    this.panels[slot].plot.say(this.#sentence(slot));
    this.panels[slot].strip.say(this.#sentence(slot));
  }

  #frame() {
    const all = Object.values(this.data);
    const { ask } = this.app.settings;
    const grid = all[0].grid;
    const points = this.points();
    const xs = extent([grid, points.map((p) => p[0])]);
    const ys = [];
    for (const data of all) ys.push(points.length ? central(data, points) : extent([data.lower, data.upper]));
    if (points.length) ys.push(extent([points.map((p) => p[1])]));
    const y = padded(extent(ys), 0.06);
    const widest = Math.max(...all.map((data) => extent([data.total])[1]), 1e-9);
    for (const { plot, strip } of Object.values(this.panels)) {
      plot.view([Math.min(xs[0], ask), Math.max(xs[1], ask)], y);
      strip.view([Math.min(xs[0], ask), Math.max(xs[1], ask)], [0, widest * 1.08]);
    }
  }

  draw() {
    for (const { plot, strip } of Object.values(this.panels)) {
      plot.draw();
      strip.draw();
    }
  }

  #paint(plot, slot) {
    const data = this.data[slot];
    const { ask } = this.app.settings;
    const tone = TONES[slot];
    if (data) plot.still(data, () => this.#paintDraws(plot, data, tone));
    this.#paintQuestion(plot, data, ask, tone);
    this.points().forEach(([x, y]) => plot.mark(x, y, colour("ink"), 4.6));
    this.panels[slot]?.editor.paint();
    const { left, right, bottom } = plot.box;
    const hint = right - left > 420 ? "click to add a point, drag to move it, drag the line to ask" : "click or tap adds a point, drag moves it";
    if (!this.app.edited && !this.app.recorded) plot.text(hint, right - 8, bottom - 12, colour("soft"), "right", 12.5);
    if (!data && !this.points().length) plot.text("Computing the first draws …", (left + right) / 2, (plot.box.top + bottom) / 2, colour("soft"), "center", 14);
  }

  #paintDraws(plot, data, tone) {
    const { grid } = data;
    plot.band(grid, data.lower, data.upper, faded("orange", 0.2));
    const epistemic = [1, -1].map((sign) => grid.map((_, k) => data.mean[k] + sign * NINETY * data.epistemic[k]));
    plot.band(grid, epistemic[1], epistemic[0], faded(tone, 0.2));
    for (const curve of data.curves) plot.curve(grid, curve, faded(tone, data.curves.length > 12 ? 0.3 : 0.6), 1.1);
    plot.curve(grid, data.mean, colour(tone), 2.6);
  }

  #paintQuestion(plot, data, ask, tone) {
    const ink = plot.context;
    const x = plot.px(ask);
    plot.segments([[ask, plot.y[0], ask, plot.y[1]]], colour("ink"), 1.25);
    ink.fillStyle = colour("ink");
    ink.beginPath();
    ink.roundRect(x - 5, plot.box.top, 10, 22, 5);
    ink.fill();
    if (!data) return;
    const answer = this.#answer(data);
    ink.lineWidth = 5;
    ink.strokeStyle = colour("orange");
    ink.beginPath();
    ink.moveTo(x, plot.py(answer.lower));
    ink.lineTo(x, plot.py(answer.upper));
    ink.stroke();
    for (const curve of data.curves) plot.dots([[ask, interpolate(data.grid, curve, ask)]], colour(tone), 2.4);
    plot.mark(ask, answer.mean, colour(tone), 6.5);
    const right = x > (plot.box.left + plot.box.right) / 2;
    const short = `y = ${say(answer.mean)} ± ${say(answer.total, 2)}`;
    const words = plot.box.right - plot.box.left < 420 ? short : `x = ${say(answer.x)}:  ${short}`;
    plot.text(words, x + (right ? -12 : 12), plot.box.top + 11, colour("ink"), right ? "right" : "left", 13);
  }

  #paintStrip(plot, slot) {
    const data = this.data[slot];
    if (!data) return;
    const zero = data.grid.map(() => 0);
    const { grid, epistemic, aleatoric } = data;
    plot.band(grid, zero, aleatoric, faded("orange", 0.14));
    plot.band(grid, zero, epistemic, faded(TONES[slot], 0.14));
    plot.curve(grid, aleatoric, colour("orange"), 2, [6, 4]);
    plot.curve(grid, epistemic, colour(TONES[slot]), 2);
    const { ask } = this.app.settings;
    plot.segments([[ask, plot.y[0], ask, plot.y[1]]], colour("ink"), 1.25);
  }

  #answer(data) {
    const { ask } = this.app.settings;
    if (Math.abs(data.answer.x - ask) <= 1e-9 * Math.max(1, Math.abs(ask))) return data.answer;
    const x = Math.min(Math.max(ask, data.grid[0]), data.grid.at(-1)); // no further than what is known
    return Object.fromEntries([["x", x], ...KINDS.map((kind) => [kind, interpolate(data.grid, data[kind], x)])]);
  }

  #sentence(slot) {
    const data = this.data[slot];
    if (!data) return "";
    const answer = this.#answer(data);
    return `${this.nameOf(slot)}, ${this.points().length} points, ${data.curves.length} functions drawn. At x = ${say(answer.x)}: mean ${say(answer.mean)}, epistemic ${say(answer.epistemic)}, aleatoric ${say(answer.aleatoric)}, 90% from ${say(answer.lower)} to ${say(answer.upper)}.`;
  }

  words() {
    return this.app.slots.map((slot) => this.#sentence(slot)).join(" ");
  }

  readings() {
    return this.app.slots.filter((slot) => this.data[slot]).map((slot) => this.#reading(slot));
  }

  #reading(slot) {
    const answer = this.#answer(this.data[slot]);
    const share = Math.round((100 * answer.epistemic ** 2) / (answer.epistemic ** 2 + answer.aleatoric ** 2 || 1));
    return {
      title: `${this.nameOf(slot)}: y at x = ${say(answer.x)}`,
      tone: TONES[slot],
      content: [
        element("p", {}, element("strong", {}, `${say(answer.mean)} ± ${say(answer.total, 2)}`), `  90% between ${say(answer.lower)} and ${say(answer.upper)}`),
        element("p", {}, `${share}% of the variance is epistemic (more data would remove it), ${100 - share}% is noise.`),
      ],
    };
  }
}

/** Ends of the bands where there are points, and half as much again: far away they may explode. */
function central(data, points) {
  const [least, most] = extent([points.map((p) => p[1])]);
  const [low, high] = extent([data.lower, data.upper]);
  const room = 2.2 * (most - least || Math.abs(most) || 1);
  return [Math.max(low, least - room), Math.min(high, most + room)];
}
