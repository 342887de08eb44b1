/** Controls, made from what the server says of the settings of a lab. */
import { SERIES } from "./colours.js";
import { say } from "./numbers.js";
import { element } from "./plot.js";
import { readTable } from "./points.js";

const SLIDER_STEPS = 200;
const WIDE = 1e4;
const MOST_ROWS_BYTES = 200_000;

/** @typedef {import("./socket.js").Setting} Setting */

/** Whether all that a setting waits for holds. @param {Setting} setting @param {Object} settings */
export function matters(setting, settings) {
  return Object.entries(setting.when).every(([name, values]) => values.includes(settings[name]));
}

const OWN = "own";

/** Points are always there to be edited: the first edit makes them one's own. */
function visible(setting, settings) {
  if (setting.kind !== "points") return matters(setting, settings);
  return Object.entries(setting.when).every(([name, values]) => values.includes(OWN) || values.includes(settings[name]));
}

/** The setting that two runs side by side differ in. @param {import("./socket.js").Lab} lab */
export function comparable(lab) {
  if (lab.name === "active" || lab.name === "latent") return undefined;
  return lab.settings.find((setting) => setting.name === "method" || setting.name === "sampler");
}

export class Controls {
  /**
   * @param {HTMLElement} place
   * @param {import("./app.js").App} app
   */
  constructor(place, app) {
    this.place = place;
    this.app = app;
    this.rows = [];
    place.replaceChildren(this.#fieldset("Settings", app.lab.settings, "a"));
    const key = comparable(app.lab);
    if (key) place.append(this.#comparison(key));
    if (app.lab.settings.some((setting) => setting.kind === "points")) place.append(keys());
    if (app.lab.name === "latent") place.append(keys(KEYS_OF_DIGITS));
    const own = app.view?.controls?.();
    if (own) place.prepend(own);
    this.refresh();
  }

  /** Values, and what matters now. @param {?string[]} names of settings that have changed; null for all */
  refresh(names = null) {
    const { app } = this;
    for (const row of this.rows) {
      if (names && !names.includes(row.setting.name)) continue;
      const settings = row.slot === "a" ? app.settings : app.settingsOf("b");
      row.node.hidden = !visible(row.setting, settings) || (row.slot === "b" && !app.other);
      row.show(settings[row.setting.name]);
    }
    if (!this.both) return;
    this.both.checked = Boolean(app.other);
    this.both.disabled = app.recorded && app.besides().length === 0;
  }

  #comparison(key) {
    const { app } = this;
    const tied = app.lab.settings.filter((setting) => key.name in setting.when);
    this.both = element("input", {
      type: "checkbox",
      id: "compare",
      disabled: app.recorded && app.besides().length === 0,
      onchange: () => app.compare(this.both.checked ? { [key.name]: this.#another(key) } : null),
    });
    const box = this.#fieldset("Side by side", [key, ...tied], "b");
    box.querySelector("legend").after(
      element("div", { class: "control" }, element("label", { class: "check", for: "compare" }, this.both, "Two, on one seed")),
    );
    return box;
  }

  #another(key) {
    const now = this.app.settings[key.name];
    const values = this.app.choicesOf(key, "b").map((choice) => choice.value);
    const liked = ["NUTS", "HMC", "VI", "Laplace", "MALA", "nuts", "hmc"].find((value) => values.includes(value) && value !== now);
    return liked ?? values.find((value) => value !== now) ?? now;
  }

  #fieldset(title, settings, slot) {
    const box = element("fieldset", {}, element("legend", {}, title));
    for (const setting of settings) {
      const row = this.#row(setting, slot);
      if (!row) continue;
      this.rows.push({ ...row, setting, slot });
      box.append(row.node);
    }
    return box;
  }

  #row(setting, slot) {
    const change = (value, final = true) => this.app.change({ [setting.name]: value }, { final, slot });
    const id = `set-${slot}-${setting.name}`;
    const frozen = !this.app.canChange(setting, slot);
    const help = setting.help ? [element("p", { class: "help", id: `${id}-help` }, sentence(setting.help))] : [];
    const described = setting.help ? `${id}-help` : null;
    const shared = { id, "aria-describedby": described, disabled: frozen };
    if (setting.kind === "choice") return this.#choice(setting, shared, change, help, slot);
    if (setting.kind === "flag") return this.#flag(setting, shared, change, help);
    if (setting.kind === "points") return frozen ? null : this.#points(setting, help);
    if (setting.kind === "numbers") return null;
    return setting.most - setting.least > WIDE || setting.name === "seed"
      ? this.#box(setting, shared, change, help)
      : this.#slider(setting, shared, change, help);
  }

  #choice(setting, shared, change, help, slot) {
    const allowed = new Set(this.app.choicesOf(setting, slot).map((choice) => choice.value));
    const options = setting.choices.map(({ value, label }) => element("option", { value, disabled: !allowed.has(value) }, label));
    const input = element("select", { ...shared, onchange: () => change(input.value) }, ...options);
    const node = element("div", { class: "control" }, element("label", { for: shared.id }, setting.label), input, ...help);
    return { node, show: (value) => (input.value = value) };
  }

  #flag(setting, shared, change, help) {
    const input = element("input", { ...shared, type: "checkbox", onchange: () => change(input.checked) });
    const node = element("div", { class: "control" }, element("label", { class: "check", for: shared.id }, input, setting.label), ...help);
    return { node, show: (value) => (input.checked = value) };
  }

  #box(setting, shared, change, help) {
    const whole = setting.kind === "integer";
    const input = element("input", {
      ...shared,
      type: "number",
      min: setting.least,
      max: setting.most,
      step: whole ? 1 : "any",
      onchange: () => {
        const value = input.valueAsNumber;
        const good = Number.isFinite(value) && value >= setting.least && value <= setting.most && (!whole || Number.isInteger(value));
        if (good) return change(value);
        this.app.fail(`${setting.label} must be a ${whole ? "whole " : ""}number from ${say(setting.least)} to ${say(setting.most)}.`);
        this.refresh();
      },
    });
    const dice = () => change(Math.floor(Math.random() * (setting.most + 1)));
    const beside = setting.name === "seed" && !shared.disabled ? [element("button", { type: "button", onclick: dice }, "Another")] : [];
    const node = element(
      "div",
      { class: "control" },
      element("label", { for: shared.id }, setting.label),
      element("div", { class: "with" }, input, ...beside),
      ...help,
    );
    return { node, show: (value) => document.activeElement !== input || input.valueAsNumber !== value ? (input.value = rounded(value)) : null };
  }

  #slider(setting, shared, change, help) {
    const whole = setting.kind === "integer";
    const { least, most, log } = setting;
    const steps = whole && !log ? most - least : SLIDER_STEPS;
    const toValue = (at) => {
      const t = at / steps;
      const value = log ? least * (most / least) ** t : least + (most - least) * t;
      return whole ? Math.round(value) : Number(Math.min(Math.max(value, least), most).toPrecision(3));
    };
    const toPlace = (value) => Math.round(steps * (log ? Math.log(value / least) / Math.log(most / least) : (value - least) / (most - least)));
    const output = element("output", { for: shared.id });
    const written = (value) => {
      output.textContent = say(value);
      input.setAttribute("aria-valuetext", say(value));
    };
    const input = element("input", { ...shared, type: "range", min: 0, max: steps, step: 1 });
    input.addEventListener("input", () => {
      const value = toValue(Number(input.value));
      written(value);
      change(value, false);
    });
    input.addEventListener("change", () => change(toValue(Number(input.value))));
    const node = element("div", { class: "control" }, element("label", { for: shared.id }, element("span", {}, setting.label), output), input, ...help);
    const show = (value) => {
      if (toValue(Number(input.value)) !== value) input.value = toPlace(value);
      written(value);
    };
    return { node, show };
  }

  #points(setting, help) {
    const { app } = this;
    const file = element("input", { type: "file", accept: ".csv,.txt,text/csv,text/plain", class: "unseen", id: "csv", tabindex: -1, "aria-label": "CSV file" });
    file.addEventListener("change", () => {
      if (file.files[0]) this.#upload(file.files[0], setting);
      file.value = "";
    });
    const load = element("button", { type: "button", onclick: () => file.click() }, "Load a CSV");
    const clear = element("button", { type: "button", onclick: () => app.editPoints([], true) }, "Remove all");
    const one = element("button", { type: "button", onclick: () => app.view.removePoint?.() }, "Remove chosen");
    const count = element("output", {});
    const classes = setting.columns === 3 ? [this.#classes()] : [];
    const node = element(
      "div",
      { class: "control" },
      element("span", { class: "label" }, element("span", {}, setting.label), count),
      ...classes,
      element("div", { class: "pads" }, load, one, clear, file),
      element("p", { class: "help" }, "Click in the picture to add a point, drag to move it, double-click to remove it. A CSV has ", setting.columns === 3 ? "x, y and a class 0, 1 or 2" : "x and y", " in a row."),
      ...help,
    );
    return { node, show: (value) => (count.textContent = String((app.view?.points?.() ?? value).length)) };
  }

  #classes() {
    const { app } = this;
    const buttons = ["circles", "squares", "triangles"].map((shape, k) => {
      const swatch = element("i", { class: "swatch", "aria-hidden": "true" });
      swatch.style.color = `var(--${SERIES[k]})`;
      const pick = () => {
        app.newClass = k;
        buttons.forEach((other, j) => other.setAttribute("aria-pressed", String(j === k)));
      };
      return element("button", { type: "button", "aria-pressed": String((app.newClass ?? 0) === k), onclick: pick, title: `New points are ${shape}` }, swatch, `Class ${k}`);
    });
    return element("div", { class: "pads", role: "group", "aria-label": "Class of new points" }, ...buttons);
  }

  async #upload(file, setting) {
    try {
      if (file.size > MOST_ROWS_BYTES) throw new Error("The file is larger than 200 kB: take fewer rows.");
      const points = readTable(await file.text(), setting.columns);
      if (points.length > setting.max_length) throw new Error(`The file has ${points.length} rows; there is room for ${setting.max_length}.`);
      const wrong = points.findIndex((point) => point.some((x) => x < setting.least || x > setting.most));
      if (wrong >= 0) throw new Error(`Row ${wrong + 1} of the numbers is outside of ${say(setting.least)} to ${say(setting.most)}.`);
      this.app.editPoints(points, true);
      this.app.announce(`Read ${points.length} points from ${file.name}.`);
    } catch (error) {
      this.app.fail(error.message);
    }
  }
}

const key = (name) => element("kbd", {}, name);
const KEYS_OF_POINTS = () => [key("arrows"), " move the cross, or the chosen point; ", key("Shift"), " makes steps longer; ", key("Enter"), " adds a point; ", key("N"), " and ", key("P"), " choose the next and the one before; ", key("Delete"), " removes it; ", key("Esc"), " lets it go."];
const KEYS_OF_DIGITS = () => [key("N"), " takes the dot and ", key("arrows"), " move it. In your digit ", key("arrows"), " move the brush, ", key("Shift"), " with them draws, ", key("Space"), " draws and asks."];

function keys(words = KEYS_OF_POINTS) {
  return element("details", { class: "keys" }, element("summary", {}, "With the keyboard"), element("p", {}, "Tab to the picture. ", ...words()));
}

const rounded = (value) => Number(Number(value).toPrecision(6));

/** With a capital letter and a full stop. */
export function sentence(text) {
  const whole = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(whole) ? whole : `${whole}.`;
}
