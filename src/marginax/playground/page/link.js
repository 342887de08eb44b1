/**
 * Every state has a link: `#functions?method=HMC&points=1.1,3.4;2,5&b.method=VI`. Settings that have their default are
 * left out, and what cannot be meant is passed over.
 * @typedef {import("./socket.js").Setting} Setting
 */

const number = (text) => (text.trim() === "" ? NaN : Number(text));

/**
 * @param {Setting} setting
 * @param {*} value
 */
function written(setting, value) {
  if (setting.kind === "points") return value.map((point) => point.map(short).join(",")).join(";");
  if (setting.kind === "numbers") return value.map(short).join(",");
  return String(value);
}

const short = (value) => String(Number(value.toPrecision(6)));

/**
 * @param {Setting} setting
 * @param {string} text
 * @returns {*} undefined where it cannot be meant
 */
function read(setting, text) {
  const inside = (x) => Number.isFinite(x) && x >= setting.least && x <= setting.most;
  if (setting.kind === "choice") return setting.choices.some((choice) => choice.value === text) ? text : undefined;
  if (setting.kind === "flag") return text === "true" || (text === "false" ? false : undefined);
  if (setting.kind === "number" || setting.kind === "integer") {
    const value = number(text);
    return inside(value) && (setting.kind === "number" || Number.isInteger(value)) ? value : undefined;
  }
  if (text === "") return [];
  if (setting.kind === "numbers") {
    const values = text.split(",").map(number);
    return values.length <= setting.max_length && values.every(inside) ? values : undefined;
  }
  const points = text.split(";").map((point) => point.split(",").map(number));
  const good = points.length <= setting.max_length && points.every((p) => p.length === setting.columns && p.every(inside));
  return good ? points : undefined;
}

const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);

/**
 * @param {import("./socket.js").Lab} lab
 * @param {Object} settings of slot a
 * @param {?Object} other what slot b has instead, or null where there is none
 */
export function toLink(lab, settings, other) {
  const parts = [];
  const add = (prefix, setting, value) => parts.push(`${prefix}${setting.name}=${encode(written(setting, value))}`);
  for (const setting of lab.settings) {
    const value = settings[setting.name];
    if (value !== undefined && !same(value, setting.default)) add("", setting, value);
  }
  for (const setting of lab.settings) if (other && setting.name in other) add("b.", setting, other[setting.name]);
  return `#${lab.name}${parts.length ? "?" + parts.join("&") : ""}`;
}

const encode = (text) => encodeURIComponent(text).replaceAll("%2C", ",").replaceAll("%3B", ";");

/**
 * @param {string} fragment of an address
 * @param {import("./socket.js").Lab[]} labs
 * @returns {{lab: import("./socket.js").Lab, settings: Object, other: ?Object, given: string[]}} `given`: names in the link
 */
export function fromLink(fragment, labs) {
  const [name, query = ""] = fragment.replace(/^#/, "").split("?");
  const lab = labs.find((each) => each.name === name) ?? labs[0];
  const settings = {};
  let other = null;
  const given = [];
  for (const setting of lab.settings) settings[setting.name] = setting.default;
  if (lab.name !== name) return { lab, settings, other, given };
  for (const part of query.split("&").filter(Boolean)) {
    const [key, text = ""] = part.split("=");
    const forOther = key.startsWith("b.");
    const setting = lab.settings.find((each) => each.name === (forOther ? key.slice(2) : key));
    const value = setting && read(setting, decoded(text));
    if (value === undefined) continue;
    if (forOther) other = { ...other, [setting.name]: value };
    else {
      settings[setting.name] = value;
      given.push(setting.name);
    }
  }
  return { lab, settings, other, given };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return "";
  }
}
