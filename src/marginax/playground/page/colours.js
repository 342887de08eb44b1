/** Colours as the style sheet names them, for canvases; and ramps of one hue from the paper to the ink. */

/** @type {Object<string, string>} */
let cache = {};

/** Forget them: the theme has changed. */
export function forgetColours() {
  cache = {};
}

/** @param {string} name of a custom property, without its dashes */
export function colour(name) {
  return (cache[name] ??= getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim());
}

/** @param {string} name @param {number} alpha */
export function faded(name, alpha) {
  const [r, g, b] = rgb(name);
  return `rgb(${r} ${g} ${b} / ${alpha})`;
}

const parsed = new Map();

/** @param {string} name @returns {number[]} of 0..255 */
export function rgb(name) {
  const hex = colour(name);
  if (!parsed.has(hex)) parsed.set(hex, [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)));
  return parsed.get(hex);
}

/** Of classes, chains and components; the first eight are told apart by everybody. */
export const SERIES = ["blue", "orange", "green", "pink", "violet", "sky", "red", "faint"];

/** @param {number[]} a @param {number[]} b @param {number} t in 0..1 */
export const mixed = (a, b, t) => a.map((x, i) => x + (b[i] - x) * t);

/** @param {string} name @returns {function(number): number[]} from the card to this colour and on to the ink */
export function ramp(name) {
  const stops = [rgb("card"), mixed(rgb("card"), rgb(name), 0.55), rgb(name), mixed(rgb(name), rgb("ink"), 0.65)];
  return (t) => {
    const place = Math.min(Math.max(t, 0), 1) * (stops.length - 1);
    const at = Math.min(Math.floor(place), stops.length - 2);
    return mixed(stops[at], stops[at + 1], place - at);
  };
}

/** @param {number[]} shares of the classes @returns {number[]} where nothing is sure it is the card */
export function classMixture(shares) {
  const card = rgb("card");
  const even = 1 / shares.length;
  const sure = Math.max(0, (Math.max(...shares) - even) / (1 - even));
  const own = [0, 0, 0];
  shares.forEach((share, k) => rgb(SERIES[k]).forEach((x, i) => (own[i] += share * x)));
  return mixed(card, own, 0.12 + 0.66 * sure);
}
