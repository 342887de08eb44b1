/** Variational inference: two families on one target, a mixture step by step, a coin flip by flip. */
import { SERIES, colour, faded, mixed, rgb } from "./colours.js";
import { ellipse, extent, padded, say } from "./numbers.js";
import { Plot, element, legend } from "./plot.js";
import { PointEditor } from "./points.js";

const paragraph = (...parts) => element("p", {}, ...parts);
const strong = (words) => element("strong", {}, words);

export class VariationalView {
  timeline = true;

  constructor(place, app) {
    this.app = app;
    this.place = place;
    this.example = null;
    this.#become(app.settings.example);
  }

  close() {
    for (const plot of this.scene.plots) plot.close();
  }

  settingsChanged() {
    if (this.app.settings.example !== this.example) this.#become(this.app.settings.example);
    this.scene.settingsChanged?.();
  }

  #become(example) {
    this.scene?.plots.forEach((plot) => plot.close());
    this.example = example;
    this.scene = new { correlated: Correlated, mixture: Mixture, coin: Coin }[example](this.app);
    this.place.replaceChildren(...this.scene.nodes);
  }

  show(slot, message) {
    if (message.data.example !== this.example) return;
    this.scene.show(message.data);
    for (const plot of this.scene.plots) plot.draw();
  }

  points() {
    return this.scene.points?.() ?? [];
  }

  removePoint() {
    if (this.scene.editor?.chosen >= 0) this.scene.editor.remove();
    else this.app.announce("No point is chosen.");
  }

  words() {
    return this.scene.sentence?.() ?? "";
  }

  readings() {
    return this.scene.data ? this.scene.readings() : [];
  }
}

function beside(first, second, shares) {
  const row = element("div", { class: "row" }, first, second);
  row.style.setProperty("--columns", 2);
  if (shares) row.classList.add(shares);
  return row;
}

class Correlated {
  constructor() {
    this.plane = new Plot({ title: "Target and approximations", aspect: 1.15, least: 260, square: true, xLabel: "first coordinate", yLabel: "second coordinate", paint: (p) => this.#paint(p) });
    this.plane.note.replaceWith(legend([["faint/.5", "", "target"], ["orange", "dashed", "mean-field"], ["blue", "thin", "full-rank"]]));
    this.bound = new Plot({ title: "The bound, over steps", aspect: 1.15, least: 260, xLabel: "step", yLabel: "nats", paint: (p) => this.#paintBound(p) });
    this.bound.note.replaceWith(legend([["ink", "dashed", "log evidence"]]));
    this.plots = [this.plane, this.bound];
    this.nodes = [beside(this.plane.figure, this.bound.figure)];
  }

  show(data) {
    this.data = data;
    const { mean, cov } = data.target;
    const reach = 3.2 * Math.sqrt(Math.max(cov[0][0], cov[1][1]));
    this.plane.view([mean[0] - reach, mean[0] + reach], [mean[1] - reach, mean[1] + reach]);
    const { steps, bound, log_evidence: top } = data;
    const known = [...bound.mean_field, ...bound.full_rank].filter((value) => value !== null).sort((a, b) => a - b);
    const low = known[Math.floor(known.length * 0.12)] ?? top - 1;
    this.bound.view([0, steps.at(-1) ?? 1], padded([Math.min(low, top - 0.3), top + 0.12 * Math.max(top - low, 0.3)]));
    this.plane.say(this.sentence());
    this.bound.say(this.sentence());
  }

  #paint(plot) {
    const { data } = this;
    if (!data) return;
    for (const radius of [2.45, 1.7, 1]) plot.path(ellipse(data.target.mean, data.target.cov, radius), faded("ink", 0.25), 1, [], faded("ink", 0.09));
    for (const radius of [1, 2.45]) {
      plot.path(ellipse(data.full_rank.mean, data.full_rank.cov, radius), colour("blue"), radius === 1 ? 1.5 : 2.8);
      plot.path(ellipse(data.mean_field.mean, data.mean_field.cov, radius), colour("orange"), radius === 1 ? 1.5 : 2.8, [7, 6]);
    }
    plot.mark(...data.full_rank.mean, colour("blue"), 5);
    plot.mark(...data.mean_field.mean, colour("orange"), 5, 1);
  }

  #paintBound(plot) {
    const { data } = this;
    if (!data) return;
    plot.segments([[plot.x[0], data.log_evidence, plot.x[1], data.log_evidence]], colour("ink"), 1.2);
    plot.curve(data.steps, data.bound.full_rank, colour("blue"), 2);
    plot.curve(data.steps, data.bound.mean_field, colour("orange"), 2, [7, 6]);
  }

  sentence() {
    const { data } = this;
    const last = (name) => data.bound[name].at(-1);
    return `Log evidence ${say(data.log_evidence)}; bound of mean-field ${say(last("mean_field"))}, of full-rank ${say(last("full_rank"))}.`;
  }

  readings() {
    const row = (name, title, tone, words) => {
      const { mean, cov } = this.data[name];
      const sd = cov.map((line, k) => say(Math.sqrt(line[k]), 3)).join(", ");
      const truth = this.data.target.cov.map((line, k) => say(Math.sqrt(line[k]), 3)).join(", ");
      return { title, tone, content: [paragraph(strong(`bound ${say(this.data.bound[name].at(-1), 3)}`), ` of ${say(this.data.log_evidence, 3)} nats`), paragraph(`Standard deviations ${sd} (truth ${truth}), mean ${mean.map((x) => say(x, 2)).join(", ")}. ${words}`)] };
    };
    return [
      row("mean_field", "Mean-field: axes only", "orange", "It fits inside the target, and is too sure of itself."),
      row("full_rank", "Full-rank: any ellipse", "blue", "It can turn with the target, and closes the gap."),
    ];
  }
}

class Mixture {
  constructor(app) {
    this.app = app;
    this.plane = new Plot({ title: "Who is responsible for a point?", note: "colours are soft assignments", aspect: 1.15, least: 260, square: true, xLabel: "first coordinate", yLabel: "second coordinate", paint: (p) => this.#paint(p) });
    this.bound = new Plot({ title: "Bound", aspect: 1.15, least: 260, xLabel: "step", yLabel: "nats", paint: (p) => this.#paintBound(p) });
    this.bound.note.replaceWith(legend([["ink", "thin", "bound"], ["green", "dashed", "reconstruction"], ["red", "dashed", "complexity"]]));
    this.plots = [this.plane, this.bound];
    this.nodes = [beside(this.plane.figure, this.bound.figure)];
    const setting = app.setting("points");
    this.editor = new PointEditor(this.plane, {
      points: () => this.points(),
      change: (points, final) => {
        this.held = points;
        if (final) app.editPoints(points, true);
        this.plane.draw();
      },
      make: (x, y) => [x, y],
      announce: (text) => app.announce(text),
      locked: app.recorded,
      least: setting.least,
      most: setting.most,
      max_length: setting.max_length,
    });
  }

  points() {
    return this.held ?? this.data?.points ?? [];
  }

  settingsChanged() {
    const { points } = this.app.settings;
    this.held = points.length ? points : null;
    this.plane.draw();
  }

  show(data) {
    this.data = data;
    if (!this.app.settings.points.length) this.held = null;
    const points = this.points();
    this.plane.view(padded(extent([points.map((p) => p[0])]), 0.16), padded(extent([points.map((p) => p[1])]), 0.16));
    const rows = [data.bound, data.reconstruction, data.complexity.map((value) => (value === null ? null : -value))];
    this.bound.view([0, Math.max(data.bound.length - 1, 1)], padded(extent(rows.slice(0, 2)), 0.08));
    this.plane.say(this.sentence());
    this.bound.say(this.sentence());
  }

  #paint(plot) {
    const { data } = this;
    if (!data) return;
    const heaviest = Math.max(...data.components.map((part) => part.weight));
    data.components.forEach(({ weight, mean, cov }, k) => {
      const shade = SERIES[k % 8];
      const strength = Math.sqrt(weight / heaviest);
      if (strength < 0.12) return plot.cross(...mean, faded(shade, 0.8), 4, 1.5);
      for (const radius of [1, 2.15]) plot.path(ellipse(mean, cov, radius), faded(shade, 0.35 + 0.6 * strength), 1 + 1.6 * strength, [], faded(shade, 0.1 * strength));
      plot.cross(...mean, colour(shade), 5);
    });
    this.points().forEach(([x, y], n) => {
      const shares = data.responsibilities[n];
      const [r, g, b] = shares ? blended(shares) : rgb("faint");
      plot.mark(x, y, `rgb(${r} ${g} ${b})`, 4.6);
    });
    this.editor.paint();
  }

  #paintBound(plot) {
    const { data } = this;
    if (!data) return;
    const steps = data.bound.map((_, k) => k);
    plot.curve(steps, data.reconstruction, colour("green"), 1.8, [7, 5]);
    plot.curve(steps, data.bound, colour("ink"), 2.4);
    if (data.complexity.some((value) => value)) {
      const last = steps.length - 1;
      const [top, bottom] = [plot.py(data.reconstruction[last]), plot.py(data.bound[last])];
      const x = Math.min(plot.px(last), plot.box.right - 8);
      plot.context.strokeStyle = colour("red");
      plot.context.lineWidth = 3;
      plot.context.beginPath();
      plot.context.moveTo(x, top);
      plot.context.lineTo(x, bottom);
      plot.context.stroke();
      plot.text(`complexity ${say(data.complexity[last])}`, x - 8, (top + bottom) / 2, colour("red"), "right", 13);
    }
  }

  sentence() {
    const { data } = this;
    const used = data.components.filter((part) => part.weight > 0.01).length;
    return `${data.points.length} points, ${used} of ${data.components.length} components in use, bound ${say(data.bound.at(-1), 5)}.`;
  }

  readings() {
    const { data } = this;
    const used = data.components.filter((part) => part.weight > 0.01).length;
    const fell = data.bound.some((value, k) => k > 0 && value < data.bound[k - 1] - 1e-5 * Math.abs(value));
    return [
      { title: "Bound = reconstruction − complexity", tone: "green", content: [paragraph(strong(say(data.bound.at(-1), 5)), ` = ${say(data.reconstruction.at(-1), 5)} − ${say(data.complexity.at(-1), 4)} nats`), paragraph(fell ? "It fell from one step to the next: that should not be." : "It has not fallen from any step to the next.")] },
      { title: "Components in use", tone: "blue", content: [paragraph(strong(`${used} of ${data.components.length}`)), paragraph(`Weights ${data.components.map((part) => say(part.weight, 2)).join(", ")}.`)] },
    ];
  }
}

function blended(shares) {
  let made = [0, 0, 0];
  shares.forEach((share, k) => {
    const own = rgb(SERIES[k % 8]);
    made = made.map((x, i) => x + share * own[i]);
  });
  return mixed(rgb("card"), made, 1).map(Math.round);
}

class Coin {
  constructor(app) {
    this.app = app;
    this.plot = new Plot({ title: "How often does it come up heads?", aspect: 2, least: 260, xLabel: "probability of heads", yLabel: "density", paint: (p) => this.#paint(p) });
    this.plot.note.replaceWith(legend([["faint", "dashed", "prior"], ["blue", "thin", "posterior"], ["blue/.4", "", "90% of belief"]]));
    this.chips = element("div", { class: "flips", role: "img" });
    const caption = element("figcaption", {}, element("b", {}, "Flips"), element("span", {}, "flip by flip: step back and forth below"));
    const buttons = app.recorded ? [] : [this.#button("Heads", [1]), this.#button("Tails", [0]), this.#button("Ten fair flips", null), element("button", { type: "button", onclick: () => app.change({ flips: [] }) }, "No flips")];
    this.plots = [this.plot];
    this.nodes = [this.plot.figure, element("figure", {}, caption, this.chips, element("div", { class: "pads" }, ...buttons))];
  }

  #button(label, flips) {
    const act = () => {
      const more = flips ?? Array.from({ length: 10 }, () => Number(Math.random() < 0.5));
      const all = [...this.app.settings.flips, ...more];
      const most = this.app.setting("flips").max_length;
      if (all.length > most) this.app.announce(`There is room for ${most} flips.`);
      else this.app.change({ flips: all });
    };
    return element("button", { type: "button", onclick: act }, label);
  }

  show(data) {
    this.data = data;
    const [, top] = extent([data.posterior]);
    const [, before] = extent([data.prior]);
    this.plot.view([0, 1], [0, 1.1 * Math.max(top, Math.min(before, 4), 1.5)]);
    this.plot.say(this.sentence());
    const chips = data.flips.map((flip, k) => element("b", { class: `${flip ? "heads" : "tails"}${k === data.flips.length - 1 ? " new" : ""}` }, flip ? "H" : "T"));
    this.chips.replaceChildren(...(chips.length ? chips : [element("span", {}, "none yet: this is the prior")]));
    this.chips.setAttribute("aria-label", `${data.flips.length} flips, ${data.flips.filter(Boolean).length} heads`);
  }

  #paint(plot) {
    const { data } = this;
    if (!data) return;
    const { grid, posterior, prior } = data;
    const inside = grid.map((p, k) => k).filter((k) => grid[k] >= data.lower && grid[k] <= data.upper && posterior[k] !== null);
    plot.band(inside.map((k) => grid[k]), inside.map(() => 0), inside.map((k) => posterior[k]), faded("blue", 0.22));
    plot.curve(grid, prior, colour("faint"), 2, [6, 5]);
    plot.curve(grid, posterior, colour("blue"), 3);
    plot.segments([[data.mean, 0, data.mean, plot.y[1]]], colour("ink"), 1.2);
    const left = data.mean > 0.6;
    plot.text(`mean ${say(data.mean, 3)}`, plot.px(data.mean) + (left ? -8 : 8), plot.box.top + 14, colour("ink"), left ? "right" : "left", 13);
  }

  sentence() {
    const { data } = this;
    const heads = data.flips.filter(Boolean).length;
    return `${heads} heads in ${data.flips.length} flips: Beta(${say(data.a)}, ${say(data.b)}), mean ${say(data.mean)}, 90% between ${say(data.lower)} and ${say(data.upper)}.`;
  }

  readings() {
    const { data } = this;
    const heads = data.flips.filter(Boolean).length;
    return [
      { title: `${heads} heads in ${data.flips.length} flips`, tone: "blue", content: [paragraph(strong(`Beta(${say(data.a)}, ${say(data.b)})`)), paragraph(`90% of the belief is between ${say(data.lower, 2)} and ${say(data.upper, 2)}; the mean is ${say(data.mean)}.`)] },
      { title: "Log evidence", tone: "orange", content: [paragraph(strong(`${say(data.log_evidence)} nats`)), paragraph("How well the flips so far were foreseen, flip after flip.")] },
    ];
  }
}
