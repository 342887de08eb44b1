/** Arithmetic of pictures. */

const MINUS = "\u2212";

/** A number for people. @param {?number} x @param {number} digits */
export function say(x, digits = 3) {
  if (x === null || x === undefined || !Number.isFinite(x)) return "none yet";
  const size = Math.abs(x);
  let text;
  if (size !== 0 && (size >= 1e6 || size < 1e-4)) text = x.toExponential(Math.max(digits - 1, 0)).replace("e+", "e");
  else text = String(Number(x.toPrecision(Math.max(digits, Math.ceil(Math.log10(size + 1))))));
  return text.replaceAll("-", MINUS);
}

/** Round numbers between two ends, about `count` of them. */
export function ticks(least, most, count) {
  const rough = (most - least) / Math.max(count, 1);
  if (!(rough > 0)) return [least];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((k) => k * power).find((s) => s >= rough * 0.999);
  const marks = [];
  for (let k = Math.ceil(least / step - 1e-9); k * step <= most + step * 1e-9; k++) marks.push(Number((k * step).toPrecision(12)));
  return marks;
}

/** Ends of what is finite. @param {Iterable<Iterable<?number>>} rows */
export function extent(rows) {
  let least = Infinity;
  let most = -Infinity;
  for (const row of rows) {
    for (const x of row) {
      if (x === null || !Number.isFinite(x)) continue;
      if (x < least) least = x;
      if (x > most) most = x;
    }
  }
  return least <= most ? [least, most] : [0, 1];
}

/** @param {number[]} ends @param {number} share of room at each */
export function padded([least, most], share = 0.05) {
  const room = (most - least || Math.abs(most) || 1) * share;
  return [least - room, most + room];
}

/** Linear interpolation of ys at x; xs ascend. */
export function interpolate(xs, ys, x) {
  const last = xs.length - 1;
  if (x <= xs[0]) return ys[0];
  if (x >= xs[last]) return ys[last];
  let low = 0;
  let high = last;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (xs[middle] <= x) low = middle;
    else high = middle;
  }
  const t = (x - xs[low]) / (xs[high] - xs[low] || 1);
  return ys[low] + (ys[high] - ys[low]) * t;
}

/** The value of a map, whose rows are along y, nearest to a place. */
export function lookUp(xs, ys, map, x, y) {
  const near = (grid, at) => Math.min(grid.length - 1, Math.max(0, Math.round(((at - grid[0]) / (grid.at(-1) - grid[0])) * (grid.length - 1))));
  return map[near(ys, y)][near(xs, x)];
}

/** Mean and points of an ellipse of `radius` standard deviations. @param {number[]} mean @param {number[][]} cov */
export function ellipse(mean, cov, radius, count = 72) {
  const a = Math.sqrt(Math.max(cov[0][0], 0));
  const b = a > 0 ? cov[0][1] / a : 0;
  const c = Math.sqrt(Math.max(cov[1][1] - b * b, 0));
  return Array.from({ length: count + 1 }, (_, k) => {
    const t = (2 * Math.PI * k) / count;
    return [mean[0] + radius * a * Math.cos(t), mean[1] + radius * (b * Math.cos(t) + c * Math.sin(t))];
  });
}

/**
 * Lines of equal height by marching squares.
 * @returns {number[][]} segments [x0, y0, x1, y1]
 */
export function contour(xs, ys, map, level) {
  const segments = [];
  const cut = (a, b, p, q) => a + ((b - a) * (level - p)) / (q - p);
  for (let j = 0; j + 1 < ys.length; j++) {
    for (let i = 0; i + 1 < xs.length; i++) {
      const [p, q, r, s] = [map[j][i], map[j][i + 1], map[j + 1][i + 1], map[j + 1][i]];
      if (p === null || q === null || r === null || s === null) continue;
      const found = [];
      if (p >= level !== q >= level) found.push([cut(xs[i], xs[i + 1], p, q), ys[j]]);
      if (q >= level !== r >= level) found.push([xs[i + 1], cut(ys[j], ys[j + 1], q, r)]);
      if (s >= level !== r >= level) found.push([cut(xs[i], xs[i + 1], s, r), ys[j + 1]]);
      if (p >= level !== s >= level) found.push([xs[i], cut(ys[j], ys[j + 1], p, s)]);
      for (let k = 0; k + 1 < found.length; k += 2) segments.push([...found[k], ...found[k + 1]]);
    }
  }
  return segments;
}
