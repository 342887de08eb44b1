/** Decision boundaries: what is likely, what is unsure because of noise, what is unsure for want of data. */
import { SERIES, classMixture, colour, mixed, ramp, rgb } from "./colours.js";
import { contour, extent, lookUp, say } from "./numbers.js";
import { Plot, element, heat } from "./plot.js";
import { PointEditor } from "./points.js";

const HALF = 0.5;

/** A panel's name, what it shows, and its sentence. */
const MAPS = {
  point: { title: "One network (MAP)", note: "the most probable one alone" },
  probability: { title: "Average over the posterior", short: "average", note: "what to believe" },
  expected_entropy: { title: "Expected entropy", note: "classes overlap: data will not help", tone: "orange" },
  mutual_information: { title: "Mutual information", note: "networks disagree: data will help", tone: "violet" },
};

/** How probabilities become colours. */
export function probabilityPicture(maps) {
  if (maps.length === 2) {
    const [low, high] = [rgb(SERIES[0]), rgb(SERIES[1])];
    const card = rgb("card");
    return heat(maps[1], (p) => (p === null ? card : p < HALF ? mixed(card, low, 0.08 + 0.72 * (1 - 2 * p)) : mixed(card, high, 0.08 + 0.72 * (2 * p - 1))));
  }
  return heat(maps[0], (_, j, i) => classMixture(maps.map((map) => map[j][i])));
}

export class BoundariesView {
  timeline = true;

  constructor(place, app) {
    this.app = app;
    this.data = {};
    this.cache = {};
    this.panels = [];
    this.spot = null;
    for (const slot of app.slots) this.#row(place, slot);
    place.replaceChildren(...this.rows);
  }

  get kinds() {
    return this.app.slots.length > 1 ? ["probability", "expected_entropy", "mutual_information"] : ["point", "probability", "expected_entropy", "mutual_information"];
  }

  #row(place, slot) {
    const row = element("div", { class: "row" });
    row.style.setProperty("--columns", this.app.slots.length > 1 ? 3 : 2);
    for (const kind of this.kinds) {
      const plot = new Plot({ ...MAPS[kind], title: this.#title(kind, slot), aspect: 1.35, least: 220, xLabel: "first input", yLabel: "second input", paint: (p) => this.#paint(p, kind, slot) });
      const panel = { plot, kind, slot };
      panel.editor = new PointEditor(plot, this.#editing());
      this.panels.push(panel);
      row.append(plot.figure);
    }
    (this.rows ??= []).push(row);
  }

  #title(kind, slot) {
    return this.app.slots.length > 1 ? `${this.nameOf(slot)}: ${MAPS[kind].short ?? MAPS[kind].title.toLowerCase()}` : MAPS[kind].title;
  }

  close() {
    for (const { plot } of this.panels) plot.close();
  }

  nameOf(slot) {
    return this.app.labelOf("method", slot);
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
      make: (x, y) => [x, y, app.newClass],
      announce: (text) => app.announce(text),
      hover: (place) => this.#hover(place),
      locked: app.recorded,
      least: setting.least,
      most: setting.most,
      max_length: setting.max_length,
    };
  }

  /** Where beliefs are read: under the pointer, or where the settings ask. */
  get place() {
    return this.spot ?? [this.app.settings.ask_x ?? 0, this.app.settings.ask_y ?? 0];
  }

  #hover(place) {
    this.spot = place;
    this.app.reread();
    this.draw();
  }

  removePoint() {
    const editor = this.panels.map((panel) => panel.editor).find((each) => each.chosen >= 0);
    if (editor) editor.remove();
    else this.app.announce("No point is chosen: click one, or press N in the picture.");
  }

  get own() {
    return Object.entries(this.app.setting("points").when).every(([name, values]) => values.includes(this.app.settings[name]));
  }

  points() {
    return this.held ?? this.data.a?.points ?? this.data.b?.points ?? [];
  }

  settingsChanged() {
    this.held = this.own ? this.app.settings.points : null;
    for (const { plot, kind, slot } of this.panels) plot.setTitle(this.#title(kind, slot));
    this.draw();
  }

  recolour() {
    for (const cached of Object.values(this.cache)) cached.pictures = {};
  }

  show(slot, message) {
    this.data[slot] = message.data;
    if (!this.own) this.held = null;
    this.cache[slot] = { pictures: {}, lines: {} };
    for (const panel of this.panels) {
      if (panel.slot !== slot) continue;
      const { x, y } = message.data;
      panel.plot.view([x[0], x.at(-1)], [y[0], y.at(-1)], true);
      panel.plot.say(this.#sentence(slot, panel.kind));
      if (panel.kind === "point") panel.plot.figure.hidden = !message.data.point;
    }
  }

  draw() {
    for (const { plot } of this.panels) plot.draw();
  }

  #paint(plot, kind, slot) {
    const data = this.data[slot];
    if (!data) return plot.text("Computing …", (plot.box.left + plot.box.right) / 2, plot.box.bottom / 2, colour("soft"), "center", 14);
    const cached = this.cache[slot];
    const maps = kind === "point" ? data.point?.probability : data.probability;
    if (!maps) return;
    plot.still(maps, () => {
      cached.pictures[kind] ??= kind === "point" || kind === "probability" ? probabilityPicture(maps) : this.#entropyPicture(data, kind);
      plot.image(cached.pictures[kind], data.x, data.y);
      cached.lines[kind] ??= borders(data, maps);
      plot.segments(cached.lines[kind], colour("ink"), kind === "point" || kind === "probability" ? 1.8 : 0.9);
    });
    for (const [x, y, k] of this.points()) plot.mark(x, y, colour(SERIES[k]), 5, k);
    const [x, y] = this.place;
    plot.segments([[x - 0.09, y, x + 0.09, y], [x, y - 0.11, x, y + 0.11]], colour("ink"), 2);
    this.panels.find((panel) => panel.plot === plot)?.editor.paint();
  }

  #entropyPicture(data, kind) {
    const tint = ramp(MAPS[kind].tone);
    const most = Math.log(data.num_classes);
    return heat(data[kind], (value) => tint(0.8 * Math.min(value / most, 1) ** 0.7));
  }

  #sentence(slot, kind) {
    const data = this.data[slot];
    if (kind === "probability" || kind === "point") return `${data.points.length} points of ${data.num_classes} classes; the line is where the most probable class changes.`;
    const [low, high] = extent(data[kind]);
    return `From ${say(low, 2)} to ${say(high, 2)} nats.`;
  }

  words() {
    return this.#sentence("a", "mutual_information");
  }

  readings() {
    const spot = this.place;
    const rows = this.app.slots.filter((slot) => this.data[slot]).map((slot) => {
      const data = this.data[slot];
      const p = (...parts) => element("p", {}, ...parts);
      const name = this.app.slots.length > 1 ? `${this.nameOf(slot)}: ` : "";
      const at = (map) => lookUp(data.x, data.y, map, ...spot);
      const shares = data.probability.map((map) => `${Math.round(100 * at(map))}%`);
      const alone = data.point ? ` One network alone says ${data.point.probability.map((map) => `${Math.round(100 * at(map))}%`).join(", ")}.` : "";
      return {
        title: `${name}what is believed at ${say(spot[0], 2)}, ${say(spot[1], 2)}`,
        tone: "violet",
        content: [p(element("strong", {}, shares.join(" · ")), ` for class ${shares.map((_, k) => k).join(" · ")}`), p(`Expected entropy ${say(at(data.expected_entropy), 2)}, mutual information ${say(at(data.mutual_information), 2)} nats.${alone}`)],
      };
    });
    return rows;
  }
}

/** Where the most probable class changes. */
function borders(data, maps) {
  if (maps.length === 2) return contour(data.x, data.y, maps[1], HALF);
  return maps.flatMap((map, k) => {
    const lead = map.map((row, j) => row.map((value, i) => value - Math.max(...maps.filter((_, c) => c !== k).map((other) => other[j][i]))));
    return contour(data.x, data.y, lead, 0);
  });
}
