/**
 * A recording in the place of the server: runs that marginax has computed before, played at the pace of a run.
 *
 * The file is what `python -m marginax.playground.record` writes: `{version, labs, runs: [{lab, settings, messages, code}]}`.
 * @typedef {import("./socket.js").Lab} Lab
 */

const RUN_SECONDS = 4;
const SLOWEST = 400;

const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);

/** How near two values of a setting are, in 0..1. */
function likeness(setting, a, b) {
  if (same(a, b)) return 1;
  if (setting?.kind !== "number" && setting?.kind !== "integer") return 0;
  const along = setting.log && setting.least > 0 ? Math.log : (x) => x;
  return 1 - Math.abs(along(a) - along(b)) / (along(setting.most) - along(setting.least));
}

export class Recorded {
  recorded = true;

  /** @param {string} address of the file, where no script has brought `recording` */
  constructor(address) {
    this.address = address;
    this.timers = {};
  }

  /** @returns {Promise<{version: string, labs: Lab[]}>} with labs of which something was recorded */
  async labs() {
    this.file = globalThis.recording ?? (await this.#fetched());
    const known = new Set(this.file.runs.map((run) => run.lab));
    return { version: this.file.version, labs: this.file.labs.filter((lab) => known.has(lab.name)) };
  }

  async #fetched() {
    const answer = await fetch(this.address);
    if (!answer.ok) throw new Error("There is neither a token in the address of this page nor a recording beside it.");
    return answer.json();
  }

  /** @param {import("./socket.js").Listener} listener */
  open(listener) {
    this.listener = listener;
    listener.connection("ready");
    listener.message({ type: "ready", version: this.file.version });
  }

  /** What was recorded of a lab: settings in full. */
  settingsOf(lab) {
    return this.file.runs.filter((run) => run.lab === lab).map((run) => run.messages[0].settings);
  }

  /**
   * Recorded settings that may stand beside others: of the same problem, by another method.
   * @param {string} lab @param {Object} settings @param {string} key the setting they differ in @param {string[]} tied what belongs to it
   */
  beside(lab, settings, key, tied) {
    const described = this.file.labs.find((each) => each.name === lab).settings;
    const firm = described.filter((each) => each.kind !== "number" && each.kind !== "integer" && each.name !== key && !tied.includes(each.name));
    return this.settingsOf(lab).filter((other) => other[key] !== settings[key] && firm.every(({ name }) => same(other[name], settings[name])));
  }

  /**
   * The recorded settings nearest to those wished for; what has just been changed weighs most.
   * @param {string} lab
   * @param {Object} wish
   * @param {string[]} changed
   */
  nearest(lab, wish, changed = [], among = this.settingsOf(lab)) {
    const described = Object.fromEntries(this.file.labs.find((each) => each.name === lab).settings.map((each) => [each.name, each]));
    const weight = (name) => (changed.includes(name) ? 1000 : 1) * (["choice", "flag"].includes(described[name]?.kind) ? 10 : 1);
    let best = null;
    for (const settings of among) {
      let score = 0;
      for (const name in wish) score += weight(name) * likeness(described[name], wish[name], settings[name]);
      if (best === null || score > best.score) best = { score, settings };
    }
    return best?.settings ?? null;
  }

  send(message) {
    if (message.type === "cancel") this.#cancel(message.slot);
    else if (message.type === "run") this.#play(message);
    else {
      const run = this.#find(message);
      if (run) this.#soon(() => this.listener.message({ type: "python", id: message.id, code: run.code }));
    }
    return true;
  }

  #find({ lab, settings }) {
    const wanted = this.nearest(lab, settings);
    return this.file.runs.find((run) => run.lab === lab && run.messages[0].settings === wanted);
  }

  #soon(act) {
    setTimeout(act, 0);
  }

  #cancel(slot) {
    const playing = this.timers[slot];
    if (!playing) return;
    clearTimeout(playing.timer);
    delete this.timers[slot];
    this.#soon(() => this.listener.message({ type: "cancelled", id: playing.id, slot }));
  }

  #play({ id, slot, lab, settings }) {
    this.#cancel(slot);
    const { messages } = this.#find({ lab, settings });
    const pause = Math.min(SLOWEST, (1000 * RUN_SECONDS) / messages.length);
    const playing = (this.timers[slot] = { id, timer: 0 });
    let next = 0;
    const step = () => {
      if (this.timers[slot] !== playing) return;
      this.listener.message({ ...messages[next++], id, slot });
      if (next < messages.length) playing.timer = setTimeout(step, pause);
      else delete this.timers[slot];
    };
    playing.timer = setTimeout(step, 0);
  }
}
