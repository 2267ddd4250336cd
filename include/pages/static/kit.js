// What every page is made of. Data becomes text nodes and nothing else: no string is ever read as HTML.

const SVG = "http://www.w3.org/2000/svg";
// Control characters and those that turn the direction of text: what cannot be seen must not be hidden either.
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

export function h(tag, properties = {}, ...children) {
  return filled(document.createElement(tag), properties, children);
}

export function s(tag, properties = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), properties, children);
}

function filled(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false));
  return element;
}

export function link(page, parameters, text, properties = {}) {
  const query = new URLSearchParams(parameters).toString();
  return h("a", { href: query ? `${page}?${query}` : page, ...properties }, text);
}

// A page of Airflow's own, told from its root. Its frame lets us navigate nothing but the frame; a link of its document may.
export function outward(path, text) {
  return h("a", { href: `../${path}`, click: (event) => {
    if (window.parent === window) return;
    event.preventDefault();
    const around = window.parent.document.createElement("a");
    around.href = event.currentTarget.href;
    around.click();
  } }, text);
}

// A value as it is: NULL is not the text NULL, empty text is not nothing, and what is unseen has a sign.
export function value(given) {
  if (given === null || given === undefined) return h("span", { class: "null" }, "NULL");
  const text = typeof given === "object" ? JSON.stringify(given) : String(given);
  if (text === "") return h("span", { class: "null" }, "(empty text)");
  return h("span", { class: "value" }, seen(text));
}

export function seen(text) {
  return text.replace(UNSEEN, (c) => `⟨${c.codePointAt(0).toString(16).toUpperCase().padStart(2, "0")}⟩`);
}

// Paragraphs of a docstring; its lines were broken for a file.
export function paragraphs(text) {
  return text.split(/\n\s*\n/).map((each) => seen(each.replace(/\s*\n\s*/g, " ")));
}

// What our own documents mark: `code`, **weight** and a heading. Everything else is text.
export function marked(text) {
  return text.split(/(`[^`]+`|\*\*[^*]+\*\*|^# .*$)/m).map((part) => {
    if (/^`.+`$/.test(part)) return h("code", {}, seen(part.slice(1, -1)));
    if (/^\*\*.+\*\*$/.test(part)) return h("strong", {}, part.slice(2, -2));
    return part.startsWith("# ") ? h("strong", {}, part.slice(2).replaceAll("`", "")) : part;
  });
}

export function number(given, digits = 0) {
  if (given === null || given === undefined) return "?";
  return given.toLocaleString("en", { maximumFractionDigits: digits, minimumFractionDigits: digits });
}

// PostgreSQL estimates how many rows a table has when it analyses it.
export function about(rows) {
  return rows === null ? "not known yet" : `about ${number(rows)}`;
}

export function bytes(given) {
  if (given === null) return "?";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let n = given, unit = 0;
  while (n >= 1000 && unit < units.length - 1) { n /= 1000; unit += 1; }
  return `${number(n, unit && n < 100 ? 1 : 0)} ${units[unit]}`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "?";
  const of = (n, unit) => `${number(n, n < 10 && unit !== "s" ? 1 : 0)} ${unit}`;
  if (seconds < 10) return `${number(seconds, 1)} s`;
  if (seconds < 120) return of(seconds, "s");
  if (seconds < 7200) return of(seconds / 60, "min");
  if (seconds < 172800) return of(seconds / 3600, "h");
  return of(seconds / 86400, "days");
}

export function moment(given) {
  if (!given) return "never";
  const text = new Date(given).toISOString();
  return text.slice(0, 10) === new Date().toISOString().slice(0, 10)
    ? text.slice(11, 19)
    : `${text.slice(0, 10)} ${text.slice(11, 19)}`;
}

export function since(given, until) {
  return given ? duration(Math.max(0, (new Date(until) - new Date(given)) / 1000)) : "?";
}

export function ago(given, until) {
  return given
    ? h("time", { datetime: given, title: `${new Date(given).toISOString()}` }, `${since(given, until)} ago`)
    : h("span", { class: "quiet" }, "never");
}

const GOOD = ["RUNNING", "UP_TO_DATE", "OK", "EQUAL", "HOLDS"];
const BAD = ["DOWN", "HUNG", "STALLED", "STALL", "STOP", "REWIND", "FALLING_OFF", "DIFFERENT", "FAILS"];

export function badge(word) {
  const kind = GOOD.includes(word) ? "good" : BAD.includes(word) ? "bad" : "fair";
  return h("span", { class: `badge ${kind}` }, word);
}

// Which layer gives a view to readers, where that is not its stream or something is the matter with it.
export function layerOf(answer) {
  if (!answer || !answer.reason) return null;
  const old = answer.age === null ? "" : `, ${duration(answer.age)} old`;
  return h("span", { class: "layer" }, badge(answer.layer.toUpperCase()), h("small", {}, ` answers${old}: ${seen(answer.reason)}`));
}

// What Great Expectations' renderer made of a judgement.
export function docs(id) {
  return h("a", { href: `data-docs/${id}` }, "Data Docs");
}

export function table(heads, rows, empty = "Nothing yet.") {
  if (!rows.length) return h("p", { class: "quiet" }, empty);
  const head = heads.map((each) => (typeof each === "string" ? { title: each } : each));
  return h("div", { class: "wide" }, h("table", {},
    h("thead", {}, h("tr", {}, head.map((each) => h("th", { class: each.number ? "number" : null, scope: "col" }, each.title)))),
    h("tbody", {}, rows.map((cells) => h("tr", {}, cells.map((cell, i) => h("td", { class: head[i].number ? "number" : null }, cell))))),
  ));
}

export function positions(at) {
  const topics = Object.entries(at);
  if (!topics.length) return h("span", { class: "quiet" }, "nowhere yet");
  return h("span", { class: "positions" }, topics.map(([topic, by]) =>
    h("span", {}, `${topic} ${Object.entries(by).map(([p, offset]) => `${p}:${offset}`).join(" ")}`)));
}
