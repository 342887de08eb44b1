/** The page: labs, settings, runs, links. What a lab looks like is said in its view (`functions.js` and so on). */
import { ActiveView } from "./active.js";
import { BoundariesView } from "./boundaries.js";
import { colour, forgetColours } from "./colours.js";
import { Controls, comparable } from "./controls.js";
import { FunctionsView } from "./functions.js";
import { LatentView } from "./latent.js";
import { fromLink, toLink } from "./link.js";
import { say } from "./numbers.js";
import { drawAll, element, photograph } from "./plot.js";
import { Recorded } from "./recorded.js";
import { SamplersView } from "./samplers.js";
import { Live } from "./socket.js";
import { Timeline } from "./timeline.js";
import { VariationalView } from "./variational.js";

const VIEWS = {
  functions: FunctionsView,
  boundaries: BoundariesView,
  samplers: SamplersView,
  variational: VariationalView,
  latent: LatentView,
  active: ActiveView,
};
const PAUSE = { slide: 160, change: 30, link: 300 };
const MOST_FRAMES = 160;
/** Of each lab, a page of the documentation and its title. */
const DOCS = {
  functions: ["tutorial", "Tutorial"],
  boundaries: ["judging", "Judge and decide"],
  samplers: ["course/04-hmc", "Course, 4. Hamiltonian Monte Carlo"],
  variational: ["course/05-variational", "Course, 5. Variational inference"],
  latent: ["vae", "Variational autoencoders"],
  active: ["course/10-active-learning", "Course, 10. Active learning"],
};

/** @param {string} id @returns {HTMLElement} */
const at = (id) => document.getElementById(id);

/**
 * What is known of the newest run of a slot.
 * @typedef {{id: number, running: boolean, quiet: boolean, frames: Object[], held: ?Object, numbers: ?Object, settings: ?Object, seconds: number}} Run
 */

export class App {
  /** @param {Live|Recorded} line */
  constructor(line) {
    this.line = line;
    this.recorded = line.recorded;
    this.count = 0;
    /** @type {Object<string, Run>} */
    this.runs = {};
    this.kept = {};
    this.newClass = 0;
    this.timer = 0;
    this.connected = false;
  }

  async begin() {
    const { labs, version } = await this.line.labs();
    this.labs = labs.filter((lab) => lab.name in VIEWS);
    this.version = version;
    this.#buttons();
    this.timeline = new Timeline(at("timeline"), (share) => this.#scrub(share));
    window.addEventListener("hashchange", () => this.#follow());
    this.#follow();
    this.line.open({ message: (message) => this.#hear(message), connection: (state) => this.#connection(state) });
  }

  // What views ask.

  /** Settings of a slot in full. */
  settingsOf(slot) {
    return slot === "b" ? { ...this.settings, ...this.other } : this.settings;
  }

  get slots() {
    return this.other ? ["a", "b"] : ["a"];
  }

  /** @param {string} name */
  setting(name) {
    return this.lab.settings.find((each) => each.name === name);
  }

  /** How the value of a choice is called. */
  labelOf(name, slot = "a") {
    const value = this.settingsOf(slot)[name];
    return this.setting(name)?.choices.find((choice) => choice.value === value)?.label ?? String(value);
  }

  choicesOf(setting, slot = "a") {
    if (!this.recorded) return setting.choices;
    const runs = slot === "b" ? this.besides() : this.line.settingsOf(this.lab.name);
    const known = new Set(runs.map((settings) => settings[setting.name]));
    return setting.choices.filter((choice) => known.has(choice.value));
  }

  /** In a recording only what was recorded in more than one way can be changed. */
  canChange(setting, slot = "a") {
    if (!this.recorded || setting.name === "ask") return true;
    if (slot === "b") return setting.kind === "choice";
    return new Set(this.line.settingsOf(this.lab.name).map((settings) => JSON.stringify(settings[setting.name]))).size > 1;
  }

  /** In a recording: settings of what may stand beside what is shown. */
  besides() {
    const key = comparable(this.lab);
    const tied = this.lab.settings.filter((each) => key.name in each.when).map((each) => each.name);
    return this.line.beside(this.lab.name, this.settings, key.name, tied);
  }

  announce(text) {
    at("announce").textContent = text;
  }

  fail(message) {
    const text = message.replace(/^settings: /, "");
    at("error").textContent = text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");
    at("error").hidden = false;
  }

  /**
   * New values of settings; the run follows.
   * @param {Object} patch @param {{final?: boolean, slot?: string, run?: boolean}} options
   */
  change(patch, { final = true, slot = "a", run = true } = {}) {
    at("error").hidden = true;
    if (slot === "b") this.other = { ...this.other, ...patch };
    else this.settings = this.#possible({ ...this.settings, ...patch }, Object.keys(patch));
    if (this.recorded && this.other) {
      this.other = this.#possibleOther(Object.keys(patch));
      if (!("ask" in patch)) return this.compare(this.other, true);
    }
    this.controls?.refresh(final ? null : Object.keys(patch));
    this.view?.settingsChanged?.();
    this.#rememberSoon(final ? 0 : PAUSE.link);
    if (run) this.#soon(final ? PAUSE.change : PAUSE.slide);
  }

  #possible(wish, changed) {
    if (!this.recorded) return wish;
    const found = { ...this.line.nearest(this.lab.name, wish, changed) };
    if ("ask" in wish) found.ask = wish.ask;
    return found;
  }

  /** What is recorded to stand beside, as differences; null where nothing is. */
  #possibleOther(changed) {
    const found = this.line.nearest(this.lab.name, this.settingsOf("b"), changed, this.besides());
    if (!found) return null;
    return Object.fromEntries(Object.entries(found).filter(([name, value]) => name !== "ask" && JSON.stringify(value) !== JSON.stringify(this.settings[name])));
  }

  /** Points of one's own, wherever they came from. @param {number[][]} points @param {boolean} final */
  editPoints(points, final) {
    const setting = this.lab.settings.find((each) => each.kind === "points");
    const patch = { [setting.name]: points };
    this.edited = true;
    for (const [name, values] of Object.entries(setting.when)) {
      if (!values.includes(this.settings[name])) patch[name] = values[0];
    }
    this.change(patch, { final, run: final });
  }

  /** @param {?Object} other what the second run has instead @param {boolean} all whether the first runs again too */
  compare(other, all = false) {
    this.other = other;
    if (other && this.recorded) this.other = this.#possibleOther(Object.keys(other));
    if (!this.other) {
      this.#cancel("b");
      delete this.runs.b;
    }
    this.#build(true);
    this.#remember();
    const anew = all || !this.view.timeline ? this.slots : this.other ? ["b"] : [];
    this.#soon(0, anew);
  }

  // Runs.

  #soon(pause, slots = this.slots) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => slots.forEach((slot) => this.run(slot)), pause);
  }

  run(slot) {
    const settings = this.settingsOf(slot);
    const before = this.runs[slot];
    const quiet = Boolean(before?.numbers) && !before.running && onlyAsk(before.settings, settings);
    const id = ++this.count;
    const frames = quiet ? before.frames : [];
    this.runs[slot] = { id, running: true, quiet, frames, held: null, numbers: null, settings, seconds: 0 };
    const wanted = Object.fromEntries(this.lab.settings.map((setting) => [setting.name, settings[setting.name]]));
    const sent = this.line.send({ type: "run", id, slot, lab: this.lab.name, settings: wanted });
    if (!sent) this.runs[slot].running = false;
    document.body.dataset.asked = String(id);
    at("status").textContent = "";
    if (!quiet) this.view.begin?.(slot);
    this.#progress();
  }

  #cancel(slot) {
    if (this.runs[slot]?.running) this.line.send({ type: "cancel", slot });
  }

  #hear(message) {
    if (message.type === "ready") return;
    if (message.type === "python") return this.#gotPython(message);
    const run = this.runs[message.slot];
    if (message.type === "error") {
      if (message.id === this.asked) this.#closePython();
      else if (message.slot && message.id !== run?.id) return;
      if (run && message.id === run.id) run.running = false;
      if (!Object.values(this.runs).some((each) => each.running)) at("status").textContent = "";
      this.fail(message.message);
      return this.#progress();
    }
    if (!run || message.id !== run.id) return;
    if (message.type === "started") run.settings = { ...message.settings };
    else if (message.type === "state") this.#state(run, message);
    else {
      run.running = false;
      if (message.type === "done") this.#done(run, message);
      else at("status").textContent = "Cancelled; what was computed so far is shown.";
    }
    this.#progress();
  }

  #state(run, message) {
    const first = !run.at;
    run.at = message;
    if (run.quiet) {
      run.held = message;
      return;
    }
    this.#keep(run, message);
    if (this.timeline.following || !this.view.timeline) this.view.show(message.slot, message);
    this.view.receive?.(message.slot, message);
    if (first) this.controls.refresh();
    this.#timeline();
    this.#read();
  }

  #keep(run, message) {
    if (!this.view.timeline) run.frames = [message];
    else run.frames.push(message);
    if (run.frames.length > MOST_FRAMES) run.frames = run.frames.filter((_, k) => k % 2 === 1 || k > MOST_FRAMES - 40);
  }

  #done(run, message) {
    if (run.held) {
      run.frames = [...run.frames.slice(0, -1), run.held];
      this.view.show(message.slot, run.held);
    }
    run.numbers = message.numbers;
    run.seconds = message.seconds;
    this.#read();
    this.#table();
    this.view.done?.(message.slot, message);
    if (!Object.values(this.runs).some((each) => each.running)) {
      this.announce(`Done. ${this.view.words?.() ?? ""}`);
    }
  }

  #progress() {
    const runs = Object.entries(this.runs).filter(([slot]) => this.slots.includes(slot));
    const active = runs.filter(([, run]) => run.running);
    at("cancel").disabled = active.length === 0;
    const bar = at("progress");
    const known = active.filter(([, run]) => run.at);
    bar.classList.toggle("unknown", active.length > 0 && known.length < active.length);
    let share = active.length ? 0 : runs.some(([, run]) => run.numbers) ? 1 : 0;
    if (known.length) share = Math.min(...known.map(([, run]) => (run.at.of ? run.at.step / run.at.of : 0)));
    bar.firstElementChild.style.transform = bar.classList.contains("unknown") ? "" : `scaleX(${share})`;
    bar.setAttribute("aria-valuenow", String(Math.round(100 * share)));
    bar.setAttribute("aria-valuetext", active.length ? `running, ${Math.round(100 * share)}%` : "at rest");
    this.#status(runs, active);
  }

  #status(runs, active) {
    const parts = runs.map(([slot, run]) => {
      const name = this.slots.length > 1 ? `${this.view.nameOf?.(slot) ?? slot}: ` : "";
      if (run.running && !run.at) return `${name}starting …`;
      if (run.running) return `${name}${run.at.phase}, step ${run.at.step} of ${run.at.of}`;
      if (!run.numbers) return "";
      return this.recorded ? `${name}recorded` : `${name}done in ${say(run.seconds, 2)} s`;
    });
    if (active.length || runs.some(([, run]) => run.numbers)) at("status").textContent = parts.filter(Boolean).join("  ·  ");
    document.body.dataset.running = String(active.length);
  }

  #timeline() {
    const frames = this.runs.a?.frames ?? [];
    this.timeline.show(Boolean(this.view.timeline) && frames.length > 1, frames);
  }

  #scrub(share) {
    for (const slot of this.slots) {
      const frames = this.runs[slot]?.frames ?? [];
      if (frames.length) this.view.show(slot, frames[Math.round(share * (frames.length - 1))]);
    }
    this.#read();
  }

  /** Read again what the picture says: something has been moved. */
  reread() {
    this.rereading ||= requestAnimationFrame(() => {
      this.rereading = 0;
      this.#read();
    });
  }

  #read() {
    const rows = this.view.readings?.() ?? [];
    const place = at("reading");
    place.replaceChildren(
      ...rows.map(({ title, tone, content }) => {
        const box = element("div", {}, element("h2", {}, title), ...[content].flat());
        if (tone) box.style.setProperty("--tone", `var(--${tone})`);
        return box;
      }),
    );
  }

  #table() {
    const runs = this.slots.map((slot) => [slot, this.runs[slot]]).filter(([, run]) => run?.numbers);
    const names = [...new Set(runs.flatMap(([, run]) => Object.keys(run.numbers)))];
    const cell = (value) => {
      const values = [value].flat(2);
      const shown = values.slice(0, 8).map((x) => (typeof x === "number" ? say(x, 5) : String(x))).join(", ");
      return element("td", { "data-value": JSON.stringify(value) }, values.length > 8 ? `${shown}, … (${values.length})` : shown);
    };
    const head = element("tr", {}, element("th", { scope: "col" }, "name"), ...runs.map(([slot]) => element("th", { scope: "col" }, this.view.nameOf?.(slot) ?? "value")));
    const body = names.map((name) => element("tr", {}, element("th", { scope: "row" }, name.replaceAll("_", " ")), ...runs.map(([, run]) => (name in run.numbers ? cell(run.numbers[name]) : element("td", {})))));
    at("numbers").lastElementChild.replaceChildren(
      element("p", {}, "“Copy as Python” gives these numbers."),
      element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Numbers" }, element("table", {}, element("thead", {}, head), element("tbody", {}, ...body))),
    );
  }

  // Labs and links.

  #follow() {
    const { lab, settings, other, given } = fromLink(location.hash, this.labs);
    if (this.lab && location.hash === "#stage") {
      at("stage").focus();
      return this.#remember();
    }
    for (const slot of ["a", "b"]) this.#cancel(slot);
    clearTimeout(this.timer);
    const moved = this.lab && this.lab !== lab;
    this.runs = {};
    this.lab = lab;
    this.settings = settings;
    this.other = other;
    if (this.recorded) {
      this.settings = this.#possible(settings, given);
      if (other) this.other = this.#possibleOther(Object.keys(other));
    }
    this.#build(false);
    this.#remember();
    if (moved) at("stage").focus({ preventScroll: true });
    if (this.connected) this.#soon(0);
  }

  #build(keep) {
    this.view?.close();
    at("error").hidden = true;
    at("title").textContent = this.lab.title;
    at("about").replaceChildren(this.lab.about + " ", this.#docs());
    document.title = `${this.lab.title} · marginax playground`;
    this.view = new VIEWS[this.lab.name](at("picture"), this);
    this.controls = new Controls(at("controls"), this);
    this.timeline.follow();
    at("numbers").lastElementChild.replaceChildren(element("p", {}, "Nothing has been computed yet."));
    for (const slot of this.slots) {
      const frames = keep ? (this.runs[slot]?.frames ?? []) : [];
      if (frames.length) {
        this.view.show(slot, frames.at(-1));
        this.view.receive?.(slot, frames.at(-1));
      }
    }
    this.#timeline();
    this.#read();
    this.#table();
    this.#progress();
    if (!keep) at("status").textContent = "";
  }

  #docs() {
    const [page, title] = DOCS[this.lab.name];
    const base = document.querySelector("meta[name=documentation]")?.content;
    return base ? element("a", { href: `${base}${page}/index.html` }, `More: ${title}.`) : element("span", { class: "more" }, `More in the documentation: ${title}.`);
  }

  /** Browsers bear a new address now and then, not in every frame. */
  #rememberSoon(pause) {
    clearTimeout(this.remembering);
    if (pause) this.remembering = setTimeout(() => this.#remember(), pause);
    else this.#remember();
  }

  #remember() {
    clearTimeout(this.remembering);
    const link = toLink(this.lab, this.settings, this.other);
    this.kept[this.lab.name] = link;
    if (location.hash !== link) history.replaceState(null, "", link);
    this.tabs ??= this.labs.map((lab) => element("a", {}, lab.title));
    const room = at("tabs");
    if (!room.children.length) room.append(...this.tabs);
    this.tabs.forEach((tab, k) => {
      const lab = this.labs[k];
      tab.setAttribute("href", this.kept[lab.name] ?? `#${lab.name}`);
      if ((tab.getAttribute("aria-current") === "page") === (lab === this.lab)) return;
      if (lab !== this.lab) return tab.removeAttribute("aria-current");
      tab.setAttribute("aria-current", "page");
      room.scrollLeft = tab.offsetLeft - room.offsetLeft - (room.clientWidth - tab.offsetWidth) / 2;
    });
  }

  #connection(state) {
    const sign = at("connection");
    sign.dataset.state = state;
    const words = { opening: "connecting", ready: this.recorded ? "a recording" : "live", lost: "no connection" }[state];
    sign.replaceChildren(element("span", {}, words));
    const banner = at("banner");
    if (this.recorded) {
      banner.textContent = "A recording: marginax computed these runs before. For your own points and settings: pip install 'marginax[playground]', then marginax playground.";
      banner.hidden = false;
    } else if (state === "lost") {
      banner.textContent = "The connection to the server is lost; the page tries again. If you ended marginax playground, start it again and open its new address.";
      banner.hidden = false;
    } else if (state === "ready") banner.hidden = true;
    this.connected = state === "ready";
    if (state === "lost") {
      for (const run of Object.values(this.runs)) run.running = false;
      this.#progress();
    }
    if (state === "ready") this.#soon(0);
  }

  // Buttons.

  #buttons() {
    at("run").onclick = () => this.slots.forEach((slot) => this.run(slot));
    at("cancel").onclick = () => this.slots.forEach((slot) => this.#cancel(slot));
    at("python").onclick = () => this.#askPython();
    at("link").onclick = () => this.#copy(location.href, "The link is copied.", at("link"));
    at("save").onclick = () => this.#save();
    at("code-copy").onclick = () => this.#copy(at("code-text").textContent, "The text is copied.", at("code-copy"));
    if (this.recorded) at("run").textContent = "Play again";
  }

  #askPython(slot = "a") {
    this.asked = ++this.count;
    const own = this.settingsOf(slot);
    const settings = Object.fromEntries(this.lab.settings.map((setting) => [setting.name, own[setting.name]]));
    const choices = this.other ? this.slots : [];
    at("code-slots").replaceChildren(
      ...choices.map((each) => element("button", { type: "button", "aria-pressed": String(each === slot), onclick: () => this.#askPython(each) }, this.view.nameOf(each))),
    );
    if (!this.line.send({ type: "python", id: this.asked, lab: this.lab.name, settings })) this.fail("There is no connection to the server.");
  }

  #gotPython(message) {
    if (message.id !== this.asked) return;
    at("code-text").textContent = message.code;
    at("code-says").textContent = "Run it: it computes the numbers of this state.";
    if (!at("code").open) at("code").showModal();
    this.#copy(message.code, "Copied. Run it: it computes the numbers of this state.", null);
  }

  #closePython() {
    if (at("code").open) at("code").close();
  }

  async #copy(text, words, button) {
    let done = words;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      done = "The browser does not let this page copy: select the text and copy it.";
    }
    if (!button || button.id === "code-copy") at("code-says").textContent = done;
    else {
      at("status").textContent = done;
      this.announce(done);
    }
  }

  async #save() {
    const blob = await photograph(at("picture"), this.lab.title);
    const address = URL.createObjectURL(blob);
    element("a", { href: address, download: `marginax-${this.lab.name}.png` }).click();
    setTimeout(() => URL.revokeObjectURL(address), 10_000);
    at("status").textContent = "The picture is saved as PNG.";
  }
}

/** Whether two settings differ at most in the place of the question. */
function onlyAsk(before, now) {
  return before && "ask" in now && Object.keys(now).every((name) => name === "ask" || JSON.stringify(before[name]) === JSON.stringify(now[name]));
}

function theme() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let chosen = stored();
  const show = () => {
    const name = chosen ?? (dark.matches ? "dark" : "light");
    document.documentElement.dataset.theme = name;
    at("theme").textContent = name === "dark" ? "Light" : "Dark";
    at("theme").setAttribute("aria-label", name === "dark" ? "Switch to light" : "Switch to dark");
    forgetColours();
    colour("ink");
    app.view?.recolour?.();
    drawAll();
  };
  dark.addEventListener("change", show);
  at("theme").onclick = () => {
    chosen = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    try {
      localStorage.setItem("marginax-theme", chosen);
    } catch {
      // a browser that keeps nothing
    }
    show();
  };
  show();
}

function stored() {
  try {
    const kept = localStorage.getItem("marginax-theme");
    return kept === "dark" || kept === "light" ? kept : null;
  } catch {
    return null;
  }
}

const token = new URLSearchParams(location.search).get("token");
const app = new App(token === null ? new Recorded("page/recording.json") : new Live(token));
theme();
app.begin().catch((error) => {
  at("title").textContent = "The playground cannot begin";
  at("about").textContent = error.message;
});
