/** A sampler that moves: the density, the path of the last moves, what was kept, histograms against the truth. */
import { SERIES, colour, faded, ramp } from "./colours.js";
import { contour, extent, say } from "./numbers.js";
import { Plot, calm, element, heat, legend } from "./plot.js";

const MOST_DRAWS = 4000;
const LEVELS = [-0.3, -1, -2, -3.3, -5, -7.5];
const MOVE_SECONDS = { moving: 0.9, resting: 0.5 };
const WITHOUT_ACCEPT = ["SGLD", "SGHMC"];
const PROPOSES = ["MetropolisHastings", "MALA", "HMC"];
const DEPTHS = ["green", "blue", "violet", "pink", "orange", "red", "sky", "faint"];

export class SamplersView {
  timeline = false;

  constructor(place, app) {
    this.app = app;
    this.map = null;
    this.panels = {};
    this.moving = true;
    const row = element("div", { class: "row" });
    row.style.setProperty("--columns", app.slots.length);
    place.replaceChildren(row);
    for (const slot of app.slots) row.append(this.#panel(slot));
    const tick = (now) => {
      this.clock = requestAnimationFrame(tick);
      for (const panel of Object.values(this.panels)) this.#advance(panel, now / 1000);
    };
    this.clock = requestAnimationFrame(tick);
  }

  close() {
    cancelAnimationFrame(this.clock);
    for (const panel of Object.values(this.panels)) for (const plot of panel.plots) plot.close();
  }

  nameOf(slot) {
    const name = this.app.labelOf("sampler", slot).replace(/ \(.*\)/, "");
    const { sampler, decreasing } = this.app.settingsOf(slot);
    return decreasing && WITHOUT_ACCEPT.includes(sampler) ? `${name}, decreasing steps` : name;
  }

  controls() {
    const box = element("input", { type: "checkbox", id: "moving", checked: !calm.matches });
    this.moving = !calm.matches;
    box.addEventListener("change", () => (this.moving = box.checked));
    return element("div", { class: "control" }, element("label", { class: "check", for: "moving" }, box, "Show the moves"));
  }

  #panel(slot) {
    const panel = { slot, draws: [], moves: [], histogram: null, diagnostics: null, at: 0, move: null, began: 0 };
    const two = this.app.slots.length > 1;
    panel.main = new Plot({ title: this.nameOf(slot), aspect: 1.08, least: 280, xLabel: "first coordinate", yLabel: "second coordinate", paint: (p) => this.#paint(p, panel) });
    panel.histograms = [0, 1].map((axis) => {
      const plot = new Plot({ title: ["First coordinate", "Second coordinate"][axis], height: 130, yLabel: "density", paint: (p) => this.#paintHistogram(p, panel, axis) });
      if (axis === 0) plot.note.replaceWith(legend([["blue/.45", "", "draws"], ["ink", "thin", "truth"]]));
      return plot;
    });
    panel.energy = new Plot({ title: "Energy along the path", height: 144, xLabel: "step of the integrator", yLabel: "energy", paint: (p) => this.#paintEnergy(p, panel) });
    this.#explain(panel);
    panel.plots = [panel.main, ...panel.histograms, panel.energy];
    this.panels[slot] = panel;
    const rest = element("div", { class: "stack" }, ...panel.histograms.map((plot) => plot.figure), panel.energy.figure);
    return element("div", { class: two ? "stack" : "main-and-side" }, panel.main.figure, rest);
  }

  settingsChanged() {
    for (const panel of Object.values(this.panels)) this.#explain(panel);
  }

  /** Name and legend of a sampler. */
  #explain(panel) {
    const { sampler } = this.app.settingsOf(panel.slot);
    const tree = DEPTHS.slice(0, 5).map((name, k) => [name, "thin", k ? `${k + 1}` : "doubling 1"]);
    const path = sampler === "NUTS" ? tree : PROPOSES.includes(sampler) ? [["blue", "thin", "path"]] : [];
    const refused = PROPOSES.includes(sampler) ? [["red", "dot", "refused"]] : [];
    const words = legend([["faint", "dot", "draws, by chain"], ...path, ["green", "dot", path.length ? "accepted" : "newest"], ...refused]);
    panel.energy.figure.hidden = path.length === 0;
    panel.main.setTitle(this.nameOf(panel.slot));
    panel.main.caption.replaceChildren(panel.main.titleText, words);
  }

  recolour() {
    this.picture = null;
  }

  begin(slot) {
    const panel = this.panels[slot];
    if (panel) Object.assign(panel, { version: null, draws: [], moves: [], move: null, at: 0, fresh: true });
  }

  show() {}

  receive(slot, message) {
    const panel = this.panels[slot];
    const { map, draws, moves, histogram, diagnostics } = message.data;
    if (map) this.#setMap(map);
    draws.forEach((chain, c) => {
      const kept = (panel.draws[c] ??= []);
      kept.push(...chain);
      if (kept.length > MOST_DRAWS) kept.splice(0, kept.length - MOST_DRAWS);
    });
    if (moves.length) {
      panel.moves = moves;
      if (panel.at > moves.length) panel.at = 0;
      panel.move ??= moves[0];
    }
    panel.histogram = histogram;
    panel.diagnostics = diagnostics;
    panel.version = message;
    this.#views(panel);
    for (const plot of panel.plots) plot.draw();
    panel.main.say(this.#sentence(slot));
    panel.histograms.forEach((plot, axis) => plot.say(`Mean ${say(diagnostics.mean[axis])} against ${say(diagnostics.true_mean[axis])}, standard deviation ${say(diagnostics.std[axis])} against ${say(diagnostics.true_std[axis])}.`));
    panel.energy.say(this.#energySentence(panel));
  }

  #setMap(map) {
    const top = extent(map.log_density)[1];
    const relative = map.log_density.map((row) => row.map((value) => (value === null ? null : value - top)));
    this.map = { ...map, relative, lines: LEVELS.map((level) => contour(map.x, map.y, relative, level)) };
    this.picture = null;
    for (const panel of Object.values(this.panels)) panel.main.view([map.x[0], map.x.at(-1)], [map.y[0], map.y.at(-1)], true);
  }

  #views(panel) {
    panel.histogram?.forEach((one, axis) => {
      const top = Math.max(extent([one.density])[1], 1.15 * extent([one.truth])[1]);
      panel.histograms[axis].view([one.edges[0], one.edges.at(-1)], [0, Math.min(top, 2.2 * extent([one.truth])[1]) * 1.05]);
    });
  }

  #advance(panel, now) {
    const { moves } = panel;
    if (!moves.length) return;
    if (!this.moving) {
      panel.share = 1;
      if (panel.move !== moves.at(-1)) {
        panel.move = moves.at(-1);
        this.#energyView(panel);
        panel.main.draw();
      }
      return;
    }
    const spent = now - panel.began;
    const { moving, resting } = MOVE_SECONDS;
    const slow = panel.move && panel.move.path.length < 3 ? 0.5 : 1;
    if (spent > (moving + resting) * slow || !panel.move || panel.fresh) {
      panel.fresh = false;
      panel.at = (panel.at + 1) % moves.length;
      panel.move = moves[panel.at];
      panel.began = now;
      this.#energyView(panel);
    }
    const share = Math.min((now - panel.began) / (moving * slow), 1);
    if (share !== panel.share) {
      panel.share = share;
      panel.main.draw();
      panel.energy.draw();
    }
  }

  #energyView(panel) {
    const energy = panel.move?.energy?.filter((value) => value !== null) ?? [];
    if (energy.length > 1) {
      const [low, high] = extent([energy]);
      const middle = (low + high) / 2;
      const half = Math.max((high - low) / 2, 0.05);
      const above = panel.move.depth?.length ? 2 : 1.2; // room for the tree
      panel.energy.view([0, panel.move.path.length - 1], [middle - 1.2 * half, middle + above * half], true);
    } else panel.energy.view([0, 1], [0, 1], true);
  }

  #paint(plot, panel) {
    const { map } = this;
    if (!map) return plot.text("Computing …", (plot.box.left + plot.box.right) / 2, plot.box.bottom / 2, colour("soft"), "center", 14);
    plot.still(panel.version ?? map, () => this.#paintDraws(plot, panel, map));
    if (panel.move) this.#paintMove(plot, panel.move, panel.share ?? 1);
  }

  #paintDraws(plot, panel, map) {
    const tint = ramp("sky");
    this.picture ??= heat(map.relative, (value) => tint(0.42 * Math.exp(value / 2.2)));
    plot.image(this.picture, map.x, map.y);
    map.lines.forEach((segments, k) => plot.segments(segments, faded("blue", 0.55 - 0.07 * k), 1));
    panel.draws.forEach((chain, c) => {
      const shade = faded(SERIES[c % 8] === "blue" ? "ink" : SERIES[c % 8], chain.length > 800 ? 0.32 : 0.5);
      this.#specks(plot, chain, shade);
    });
  }

  #specks(plot, chain, shade) {
    const ink = plot.context;
    ink.fillStyle = shade;
    for (const [x, y] of chain) ink.fillRect(plot.px(x) - 1.3, plot.py(y) - 1.3, 2.6, 2.6);
  }

  #paintMove(plot, move, share) {
    const { path, end } = move;
    const tree = move.depth?.length === path.length;
    if (path.length > 1) {
      const order = tree ? [...path.keys()].sort((i, j) => move.depth[i] - move.depth[j]) : [...path.keys()];
      const count = Math.max(2, Math.ceil(share * path.length));
      const seen = order.slice(0, count);
      const shown = tree ? [...seen].sort((i, j) => i - j) : seen;
      plot.path(shown.map((k) => path[k]), colour("card"), 4.5);
      if (tree) {
        for (let k = 1; k < shown.length; k++) {
          const deeper = Math.max(move.depth[shown[k]], move.depth[shown[k - 1]], 0);
          plot.path([path[shown[k - 1]], path[shown[k]]], colour(DEPTHS[deeper % 8]), 2);
        }
        for (const k of shown) plot.dots([path[k]], colour(DEPTHS[Math.max(move.depth[k], 0) % 8]), path.length > 70 ? 1.6 : 2.8);
      } else {
        plot.path(shown.map((k) => path[k]), colour("blue"), 2);
        if (path.length < 80) plot.dots(shown.map((k) => path[k]), colour("blue"), 2.4);
      }
    }
    const start = tree ? path[move.depth.indexOf(-1)] ?? path[0] : path[0];
    if (start) plot.mark(...start, colour("ink"), 5);
    if (share >= 1 || path.length < 2) {
      const proposed = path.length && !tree ? path.at(-1) : end;
      if (move.accepted) plot.mark(...end, colour("green"), 7);
      else {
        plot.mark(...proposed, colour("card"), 8, 0, colour("red"));
        plot.cross(...proposed, colour("red"), 4, 2.2);
      }
      const words = move.divergent ? "divergent" : move.accepted ? "" : "refused: stays where it was";
      if (words) plot.text(words, plot.px(proposed[0]) + 12, plot.py(proposed[1]) - 12, colour("red"), plot.px(proposed[0]) > plot.box.right - 170 ? "right" : "left", 13);
    }
  }

  #paintHistogram(plot, panel, axis) {
    const one = panel.histogram?.[axis];
    if (!one) return;
    plot.bars(one.edges, one.density, faded("blue", 0.45));
    const centres = one.truth.map((_, k) => (one.edges[k] + one.edges[k + 1]) / 2);
    plot.curve(centres, one.truth, colour("ink"), 1.8);
  }

  #paintEnergy(plot, panel) {
    const energy = panel.move?.energy;
    const known = energy?.length > 1 && energy.some((value) => value !== null);
    if (!known) return plot.text(panel.move ? "this sampler has no energy" : "no move yet", (plot.box.left + plot.box.right) / 2, (plot.box.top + plot.box.bottom) / 2, colour("soft"), "center", 13);
    const count = Math.max(2, Math.ceil((panel.share ?? 1) * energy.length));
    if (panel.move.depth?.length) return this.#paintTree(plot, panel.move);
    const shown = energy.slice(0, count);
    plot.curve(shown.map((_, k) => k), shown, colour(panel.move.accepted ? "blue" : "red"), 2);
    plot.segments([[0, energy[0], energy.length - 1, energy[0]]], faded("ink", 0.35), 1);
  }

  /** Energies of the leaves, and above them what each doubling of the tree has reached. */
  #paintTree(plot, { energy, depth }) {
    const deepest = Math.max(...depth);
    for (let d = 0; d <= deepest; d++) {
      const inside = depth.map((own, k) => (own <= d ? k : -1)).filter((k) => k >= 0);
      const [first, last, y] = [plot.px(inside[0]), plot.px(inside.at(-1)), plot.box.top + 4 * (deepest - d) + 2];
      plot.context.fillStyle = colour(DEPTHS[d % 8]);
      plot.context.fillRect(first, y, Math.max(last - first, 2), 2.5);
    }
    plot.curve(energy.map((_, k) => k), energy, faded("ink", 0.45), 1.2);
    energy.forEach((value, k) => value !== null && plot.dots([[k, value]], colour(depth[k] < 0 ? "ink" : DEPTHS[depth[k] % 8]), depth[k] < 0 ? 4 : 2.6));
  }

  #energySentence(panel) {
    const energy = panel.moves.at(-1)?.energy?.filter((value) => value !== null) ?? [];
    if (energy.length < 2) return "This sampler has no energy.";
    const [low, high] = extent([energy]);
    return `The energy of the last path stays between ${say(low)} and ${say(high)}.`;
  }

  #sentence(slot) {
    const d = this.panels[slot].diagnostics;
    if (!d) return "";
    return `${this.nameOf(slot)}: ${d.num_draws} draws, ${d.num_gradients} gradients, acceptance ${say(d.acceptance, 2)}, R-hat ${say(worst(d.rhat))}, effective sample size ${say(least(d.ess))}.`;
  }

  words() {
    return this.app.slots.map((slot) => this.#sentence(slot)).join(" ");
  }

  readings() {
    return this.app.slots.flatMap((slot) => {
      const d = this.panels[slot].diagnostics;
      return d ? this.#reading(slot, d) : [];
    });
  }

  #reading(slot, d) {
    const two = this.app.slots.length > 1 ? `${this.nameOf(slot)}: ` : "";
    const rhat = worst(d.rhat);
    const mixes = rhat === null ? "not enough draws to tell" : rhat < 1.01 ? (misses(d) ? "chains agree, and all of them miss a part" : "chains agree") : rhat < 1.1 ? "chains nearly agree" : "chains disagree: do not trust this yet";
    const p = (...parts) => element("p", {}, ...parts);
    const what = this.app.settingsOf(slot).sampler === "MetropolisHastings" ? "density" : "gradient";
    return [
      { title: `${two}Do the chains agree?`, tone: rhat !== null && rhat < 1.05 ? "green" : "red", content: [p(element("strong", {}, `R-hat ${say(rhat, 4)}`)), p(`${mixes}; ${d.num_draws} draws kept.`)] },
      { title: `${two}What is a draw worth?`, tone: "blue", content: [p(element("strong", {}, `ESS ${say(least(d.ess))}`)), p(`${say(d.ess_per_gradient, 2)} effective draws per ${what}; ${d.num_gradients} ${what === "density" ? "densities" : "gradients"} so far.`)] },
      { title: `${two}Moves`, tone: "orange", content: [p(element("strong", {}, d.num_draws === 0 ? "none yet" : d.acceptance === null ? "never refuses" : `${Math.round(100 * d.acceptance)}% accepted`)), p(`Step size ${say(d.step_size)}. Mean ${pair(d.mean, d)} (truth ${pair(d.true_mean, d)}), std ${pair(d.std, d)} (truth ${pair(d.true_std, d)}).`)] },
    ];
  }
}

/** Two numbers, and zero where they are nothing beside the scale of the density. */
const pair = (values, d) => values.map((x, k) => say(x !== null && Math.abs(x) < 1e-3 * d.true_std[k] ? 0 : x, 2)).join(", ");
/** Whether the mean is further from the truth than draws of all of the density would bring it. */
const misses = (d) => d.mean.some((x, k) => Math.abs(x - d.true_mean[k]) > 5 * (d.std[k] / Math.sqrt(d.ess[k])));
const present = (values) => (values ?? []).filter((value) => value !== null);
const worst = (values) => (present(values).length ? Math.max(...present(values)) : null);
const least = (values) => (present(values).length ? Math.min(...present(values)) : null);
