/** A run, state by state: backwards, forwards, or as it comes. */
import { calm, element } from "./plot.js";

const FRAME_MILLISECONDS = 250;

export class Timeline {
  /** @param {HTMLElement} place @param {function(number): void} scrub is told a share in 0..1 */
  constructor(place, scrub) {
    this.place = place;
    this.scrub = scrub;
    this.following = true;
    this.frames = [];
    this.range = element("input", { type: "range", min: 0, max: 0, step: 1, "aria-label": "State of the run" });
    this.range.addEventListener("input", () => this.#go(Number(this.range.value)));
    this.words = element("output", {});
    const button = (label, sign, act) => element("button", { type: "button", "aria-label": label, title: label, onclick: act }, sign);
    this.playing = button("Play from the beginning", "▶", () => this.#play());
    place.replaceChildren(
      this.playing,
      button("One state back", "‹", () => this.#go(Number(this.range.value) - 1)),
      this.range,
      button("One state on", "›", () => this.#go(Number(this.range.value) + 1)),
      this.words,
    );
  }

  /** Newest states are shown as they come. */
  follow() {
    this.following = true;
    this.#pause();
  }

  /** @param {boolean} wanted @param {Object[]} frames */
  show(wanted, frames) {
    this.place.hidden = !wanted;
    if (!frames.length || frames.length < this.frames.length) this.follow();
    this.frames = frames;
    this.range.max = String(Math.max(frames.length - 1, 0));
    if (this.following) this.range.value = this.range.max;
    this.#say();
  }

  #say() {
    const frame = this.frames[Number(this.range.value)];
    this.words.textContent = frame ? `${frame.phase} ${frame.step} / ${frame.of}` : "";
    this.range.setAttribute("aria-valuetext", this.words.textContent);
  }

  #go(index, keepPlaying = false) {
    if (!keepPlaying) this.#pause();
    const last = this.frames.length - 1;
    const bounded = Math.min(Math.max(index, 0), last);
    this.range.value = String(bounded);
    this.following = bounded === last;
    this.#say();
    this.scrub(last ? bounded / last : 1);
  }

  #play() {
    if (this.clock) return this.#pause();
    const pause = calm.matches ? 2 * FRAME_MILLISECONDS : Math.max(FRAME_MILLISECONDS / 3, Math.min(FRAME_MILLISECONDS, 8000 / this.frames.length));
    let next = Number(this.range.value) >= this.frames.length - 1 ? 0 : Number(this.range.value) + 1;
    this.playing.textContent = "❚❚";
    this.playing.setAttribute("aria-label", "Pause");
    this.clock = setInterval(() => {
      this.#go(next++, true);
      if (next >= this.frames.length) this.#pause();
    }, pause);
  }

  #pause() {
    clearInterval(this.clock);
    this.clock = 0;
    this.playing.textContent = "▶";
    this.playing.setAttribute("aria-label", "Play from the beginning");
  }
}
