/** Ask for labels: you or BALD choose which point of the pool is labelled next. */
import { probabilityPicture } from "./boundaries.js";
import { SERIES, colour, ramp } from "./colours.js";
import { contour, extent, say } from "./numbers.js";
import { Plot, element, heat, legend } from "./plot.js";

const REACH = 16;
const AUTOMATIC_PAUSE = 500;
const NOTHING = 1e-6; // nats

export class ActiveView {
  timeline = false;

  constructor(place, app) {
    this.app = app;
    this.data = null;
    this.chosen = -1;
    this.history = [];
    this.belief = new Plot({ title: "What is believed so far", note: "click a grey point to ask for its label", aspect: 1.2, least: 250, xLabel: "first input", yLabel: "second input", paint: (p) => this.#paint(p, "probability") });
    this.doubt = new Plot({ title: "Mutual information", note: "what BALD looks at: where networks disagree", aspect: 1.2, least: 250, xLabel: "first input", yLabel: "second input", paint: (p) => this.#paint(p, "mutual_information") });
    this.learning = new Plot({ title: "Accuracy, label by label", height: 150, xLabel: "labels known", yLabel: "accuracy", paint: (p) => this.#paintLearning(p) });
    this.learning.note.replaceWith(legend([["green", "dot", "chosen by you"], ["violet", "dot", "chosen by BALD"]]));
    this.plots = [this.belief, this.doubt, this.learning];
    const row = element("div", { class: "row" }, this.belief.figure, this.doubt.figure);
    row.style.setProperty("--columns", 2);
    place.replaceChildren(row, this.learning.figure);
    for (const plot of [this.belief, this.doubt]) this.#listen(plot);
  }

  close() {
    clearTimeout(this.timer);
    for (const plot of this.plots) plot.close();
  }

  controls() {
    if (this.app.recorded) return null;
    const bald = element("button", { type: "button", class: "primary", onclick: () => this.#ask(this.data?.suggested, "bald") }, "Let BALD choose");
    this.ten = element("button", { type: "button", onclick: () => this.#automatic(10) }, "Ten by BALD");
    const back = element("button", { type: "button", onclick: () => this.app.change({ chosen: this.app.settings.chosen.slice(0, -1) }) }, "Take back");
    const anew = element("button", { type: "button", onclick: () => this.#anew() }, "Begin again");
    return element("div", { class: "control" }, element("span", { class: "label" }, "Whose turn? Click a point, or"), element("div", { class: "pads" }, bald, this.ten, back, anew));
  }

  #anew() {
    this.history = [];
    this.who = "nobody";
    this.#stop();
    this.app.change({ chosen: [] });
  }

  /** No more questions by itself. */
  #stop() {
    clearTimeout(this.timer);
    this.left = 0;
  }

  #automatic(count) {
    this.left = count;
    this.#ask(this.data?.suggested, "bald");
  }

  #mine(index) {
    this.#stop();
    this.#ask(index, "you");
  }

  #ask(index, who) {
    const { chosen } = this.app.settings;
    if (index === undefined || index === null || this.#taken.has(index)) return;
    if (chosen.length >= this.app.setting("chosen").max_length) return this.app.announce("There are no more labels to be had.");
    this.who = who;
    this.app.change({ chosen: [...chosen, index] });
    this.app.announce(`Asked for the label of point ${index + 1} at ${this.data.pool[index].map((x) => say(x, 2)).join(", ")}.`);
  }

  #listen(plot) {
    const { canvas } = plot;
    canvas.tabIndex = 0;
    canvas.setAttribute("role", "application");
    canvas.setAttribute("aria-label", `${canvas.getAttribute("aria-label")}. N and P choose a point of the pool, Enter asks for its label.`);
    const nearest = (event) => {
      const box = canvas.getBoundingClientRect();
      return this.#nearest(plot, event.clientX - box.left, event.clientY - box.top);
    };
    canvas.addEventListener("pointermove", (event) => {
      const near = nearest(event);
      canvas.style.cursor = near >= 0 ? "pointer" : "default";
      if (near !== this.chosen) {
        this.chosen = near;
        this.draw();
      }
    });
    canvas.addEventListener("click", (event) => !this.app.recorded && this.#mine(at(nearest(event))));
    canvas.addEventListener("keydown", (event) => this.#key(event));
  }

  #key(event) {
    if (!this.data) return;
    const free = this.data.pool.map((_, k) => k).filter((k) => !this.#taken.has(k));
    const name = event.key.toLowerCase();
    if (name === "n" || name === "p") {
      const place = free.indexOf(this.chosen) + (name === "n" ? 1 : -1);
      this.chosen = free[(place + free.length) % free.length];
      const [x, y] = this.data.pool[this.chosen];
      this.app.announce(`Point ${this.chosen + 1} at ${say(x, 2)}, ${say(y, 2)}; mutual information ${say(this.data.scores[this.chosen], 2)} nats.`);
    } else if (event.key === "Enter" && !this.app.recorded) this.#mine(at(this.chosen));
    else return;
    event.preventDefault();
    this.draw();
  }

  /** Points whose labels are known, or asked for. */
  get #taken() {
    return new Set([...(this.data?.chosen ?? []), ...this.app.settings.chosen]);
  }

  #nearest(plot, px, py) {
    let best = -1;
    let least = REACH;
    this.data?.pool.forEach(([x, y], k) => {
      const away = Math.hypot(plot.px(x) - px, plot.py(y) - py);
      if (away < least && !this.#taken.has(k)) [best, least] = [k, away];
    });
    return best;
  }

  settingsChanged() {
    this.draw();
  }

  recolour() {
    this.pictures = {};
  }

  draw() {
    for (const plot of this.plots) plot.draw();
  }

  show(slot, message) {
    this.data = message.data;
    this.pictures = {};
    this.most = Math.max(extent(this.data.mutual_information)[1], NOTHING);
    this.doubt.note.textContent = this.most > NOTHING ? `what BALD looks at; strongest is ${say(this.most, 2)} nats` : "all networks say the same: BALD sees no reason to ask";
    const { x, y } = this.data;
    for (const plot of [this.belief, this.doubt]) plot.view([x[0], x.at(-1)], [y[0], y.at(-1)], true);
    for (const plot of this.plots) plot.say(this.words());
    this.learning.view([0, Math.max(10, this.data.chosen.length + 1)], [0.4, 1.02]);
  }

  done() {
    const count = this.data.chosen.length;
    const game = JSON.stringify({ ...this.app.settings, chosen: null });
    if (game !== this.game) this.history = [];  // another pool, method or seed
    this.game = game;
    this.history = this.history.filter((row) => row.count < count);
    this.history.push({ count, accuracy: this.data.accuracy, who: this.who ?? "nobody" });
    this.draw();
    if (--this.left > 0) this.timer = setTimeout(() => this.#ask(this.data.suggested, "bald"), AUTOMATIC_PAUSE);
  }

  #paint(plot, kind) {
    const { data } = this;
    if (!data) return plot.text("Computing …", (plot.box.left + plot.box.right) / 2, plot.box.bottom / 2, colour("soft"), "center", 14);
    const tint = ramp("violet");
    this.pictures[kind] ??= kind === "probability" ? probabilityPicture(data.probability) : heat(data[kind], (value) => tint((0.75 * value) / this.most));
    plot.image(this.pictures[kind], data.x, data.y);
    plot.segments(contour(data.x, data.y, data.probability[1], 0.5), colour("ink"), 1.4);
    const asked = new Set(data.chosen);
    data.pool.forEach(([x, y], k) => asked.has(k) || plot.mark(x, y, colour("faint"), 3.4));
    (data.points ?? []).forEach(([x, y, k]) => plot.mark(x, y, colour(SERIES[k]), 5, k));
    data.chosen.forEach((index, n) => plot.mark(...data.pool[index], colour(SERIES[data.labels[n]]), 6, data.labels[n]));
    this.#ring(plot, data.suggested, "violet");
    this.#ring(plot, this.chosen, "ink");
  }

  #ring(plot, index, name) {
    const point = this.data.pool[index];
    if (!point) return;
    const ink = plot.context;
    for (const [style, width] of [[colour("card"), 6], [colour(name), 2.4]]) {
      ink.strokeStyle = style;
      ink.lineWidth = width;
      ink.beginPath();
      ink.arc(plot.px(point[0]), plot.py(point[1]), 9, 0, 2 * Math.PI);
      ink.stroke();
    }
  }

  #paintLearning(plot) {
    const rows = this.history;
    plot.curve(rows.map((row) => row.count), rows.map((row) => row.accuracy), colour("ink"), 1.6);
    for (const row of rows) plot.mark(row.count, row.accuracy, colour({ bald: "violet", you: "green", nobody: "faint" }[row.who]), 5, row.who === "bald" ? 1 : 0);
  }

  words() {
    const { data } = this;
    if (!data) return "";
    return `${data.chosen.length} labels known, accuracy ${say(100 * data.accuracy)}%. BALD would ask for point ${data.suggested + 1} at ${data.pool[data.suggested].map((x) => say(x, 2)).join(", ")}.`;
  }

  readings() {
    const { data } = this;
    if (!data) return [];
    const p = (...parts) => element("p", {}, ...parts);
    return [
      { title: "Accuracy", tone: "green", content: [p(element("strong", {}, `${say(100 * data.accuracy)}%`)), p(`of new points, with ${data.chosen.length} labels known.`)] },
      { title: "What BALD would ask", tone: "violet", content: [p(element("strong", {}, `point ${data.suggested + 1}`), ` (ringed), ${say(data.scores[data.suggested], 2)} nats`), p(`The most that any label of the pool promises; the median promises ${say(median(data.scores), 2)}.`)] },
    ];
  }
}

const at = (index) => (index >= 0 ? index : undefined);
const median = (values) => [...values].sort((a, b) => a - b)[values.length >> 1];
