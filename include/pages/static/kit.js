// Elements and formats that all pages share. Data becomes text nodes only; no string is ever parsed as HTML.

const SVG = "http://www.w3.org/2000/svg";
// Control characters, and characters that reverse the direction of text. A reader must see that they are present.
// deno-lint-ignore no-control-regex
const INVISIBLE = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

export function h(tag, properties = {}, ...children) {
  return filled(document.createElement(tag), properties, children);
}

export function s(tag, properties = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), properties, children);
}

function filled(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (typeof value === "function") listen(element, name, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false));
  return element;
}

// The handlers of each element, by event type. An element that stays on the page takes the handlers of its newest
// drawing.
const handlers = new WeakMap();

function listen(element, type, handler) {
  if (!handlers.has(element)) handlers.set(element, new Map());
  const known = handlers.get(element);
  if (!known.has(type)) element.addEventListener(type, (event) => known.get(type)?.(event));
  known.set(type, handler);
}

export function adopt(element, newest) {
  const wanted = handlers.get(newest) ?? new Map();
  for (const type of handlers.get(element)?.keys() ?? []) if (!wanted.has(type)) handlers.get(element).set(type, null);
  for (const [type, handler] of wanted) listen(element, type, handler);
}

export function link(page, parameters, text, properties = {}) {
  const query = new URLSearchParams(parameters).toString();
  return h("a", { href: query ? `${page}?${query}` : page, ...properties }, text);
}

// A link to one of Airflow's own pages, relative to Airflow's root. The frame may navigate only itself, so the click
// happens on a link in the parent document.
export function outward(path, text) {
  return h("a", { href: `../${path}`, click: leaveFrame }, text);
}

export function leaveFrame(event) {
  if (window.parent === window) return;
  event.preventDefault();
  const anchor = window.parent.document.createElement("a");
  anchor.href = new URL(event.currentTarget.getAttribute("href"), location.href).href;
  anchor.click();
}

// A value from the database. NULL differs from the text NULL, and empty strings and invisible characters are visible.
export function value(given) {
  if (given === null || given === undefined) return h("span", { class: "null" }, "NULL");
  const text = typeof given === "object" ? JSON.stringify(given) : String(given);
  if (text === "") return h("span", { class: "null" }, "(empty string)");
  return h("span", { class: "value" }, seen(text));
}

// A row of a view as one text, with the values that it has as texts.
export function wholeRow(row) {
  if (row === null) return value(null);
  return Object.entries(row).map(([name, each], i) => [i ? ", " : "", `${name}=`, value(each)]);
}

export function seen(text) {
  return text.replace(INVISIBLE, (c) => `⟨${c.codePointAt(0).toString(16).toUpperCase().padStart(2, "0")}⟩`);
}

// A text whose lines stay lines.
export function seenLines(text) {
  return text.split("\n").map(seen).join("\n");
}

// The paragraphs of a docstring, with its line breaks removed.
export function paragraphs(text) {
  return text.split(/\n\s*\n/).map((each) => seen(each.replace(/\s*\n\s*/g, " ")));
}

// The Markdown that our own documents use: `code`, **bold**, *emphasis* and a heading. Everything else is text.
export function marked(text) {
  return text.split(/(`[^`]+`|\*\*[^*]+\*\*|\*[^*\s][^*]*\*|^# .*$)/m).map((part) => {
    if (/^`.+`$/.test(part)) return h("code", {}, seen(part.slice(1, -1)));
    if (/^\*\*.+\*\*$/.test(part)) return h("strong", {}, part.slice(2, -2));
    if (/^\*.+\*$/.test(part)) return h("em", {}, part.slice(1, -1));
    return part.startsWith("# ") ? h("strong", {}, part.slice(2).replaceAll("`", "")) : part;
  });
}

export function number(given, digits = 0) {
  if (given === null || given === undefined) return "Unknown";
  return given.toLocaleString("en", { maximumFractionDigits: digits, minimumFractionDigits: digits });
}

// PostgreSQL's estimate of a table's row count, made when PostgreSQL analyzes the table.
export function about(rows) {
  return rows === null ? "Not analyzed yet" : `About ${number(rows)}`;
}

export function bytes(given) {
  if (given === null) return "Unknown";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let n = given, unit = 0;
  while (n >= 1000 && unit < units.length - 1) {
    n /= 1000;
    unit += 1;
  }
  return `${number(n, unit && n < 100 ? 1 : 0)} ${units[unit]}`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "Unknown";
  const of = (n, unit) => `${number(n, n < 10 && unit !== "s" ? 1 : 0)} ${unit}`;
  if (seconds < 10) return `${number(seconds, 1)} s`;
  if (seconds < 120) return of(seconds, "s");
  if (seconds < 7200) return of(seconds / 60, "min");
  if (seconds < 172800) return of(seconds / 3600, "h");
  return of(seconds / 86400, "days");
}

export function moment(given) {
  if (!given) return "Never";
  const text = new Date(given).toISOString();
  return text.slice(0, 10) === new Date().toISOString().slice(0, 10)
    ? text.slice(11, 19)
    : `${text.slice(0, 10)} ${text.slice(11, 19)}`;
}

export function since(given, until) {
  return given ? duration(Math.max(0, (new Date(until) - new Date(given)) / 1000)) : "Unknown";
}

export function ago(given, until) {
  return given
    ? h("time", { datetime: given, title: `${new Date(given).toISOString()}` }, `${since(given, until)} ago`)
    : h("span", { class: "quiet" }, "Never");
}

const GOOD = ["RUNNING", "UP_TO_DATE", "BATCH_ONLY", "OK", "EQUAL", "PASSED"];
const IDLE = ["UNUSED"]; // without work, which is normal
const BAD = [
  "DOWN",
  "BROKEN",
  "RESTING",
  "HUNG",
  "STALLED",
  "STALL",
  "STOP",
  "REWIND",
  "FALLING_OFF",
  "DIFFERENT",
  "FAILED",
  "CRITICAL",
];

const LABELS = {
  OK: "OK",
  CHANGED: "Outdated code",
  WARN: "Behind",
  STALL: "Stalled",
  STOP: "Stopped",
  REWIND: "Rewound",
  FALLING_OFF: "Retention risk",
};

export function word(state) {
  return LABELS[state] ?? sentence(state.toLowerCase().replaceAll("_", " "));
}

export function isBad(state) {
  return BAD.includes(state);
}

export function badge(state, label = word(state)) {
  const kind = GOOD.includes(state) ? "good" : isBad(state) ? "bad" : IDLE.includes(state) ? "idle" : "fair";
  return h("span", { class: `badge ${kind}` }, label);
}

export function sentence(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

export function count(n, noun, plural = `${noun}s`) {
  return `${number(n)} ${n === 1 ? noun : plural}`;
}

// Why an application was started.
const START_REASONS = {
  down: "was down",
  hung: "was hung",
  changed: "new code",
  restart_pending: "restart requested",
  "by hand": "by hand",
};

export function startReason(reason) {
  return START_REASONS[reason] ?? seen(reason);
}

// The layer that serves a view to readers, if that layer is not the stream or if the stream has a problem.
export function layerOf(answer) {
  if (!answer || !answer.reason) return null;
  const age = answer.age === null ? "" : `, ${duration(answer.age)} old`;
  return h(
    "span",
    { class: "layer" },
    badge(answer.layer.toUpperCase()),
    h("small", {}, ` layer serves this view${age}: ${seen(answer.reason)}`),
  );
}

// The page that Great Expectations rendered for a validation.
export function docs(id) {
  return h("a", { href: `data-docs/${id}` }, "Data Docs");
}

// A heading's text, which a phone shows beside each cell.
function name({ title }) {
  return typeof title === "string" ? title : title.firstChild.textContent;
}

// `keys` has one key for each row, so that a row stays the same element while rows come and go.
export function table(heads, rows, empty = "No data yet.", { caption = null, keys = [] } = {}) {
  if (!rows.length) return h("p", { class: "quiet" }, empty);
  const head = heads.map((each) => (typeof each === "string" ? { title: each } : each));
  const scrollable = caption ? { tabindex: 0, role: "region", "aria-label": caption } : {};
  return h(
    "div",
    { class: "wide", ...scrollable },
    h(
      "table",
      {},
      caption ? h("caption", {}, caption) : null,
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          head.map((each) =>
            h(
              "th",
              { class: each.number ? "number" : null, scope: "col", title: each.hint, "aria-sort": each.sort },
              each.title,
            )
          ),
        ),
      ),
      h(
        "tbody",
        {},
        rows.map((cells, n) =>
          h(
            "tr",
            { "data-key": keys[n] },
            cells.map((cell, i) =>
              h("td", { class: head[i].number ? "number" : null, "data-head": name(head[i]) }, cell)
            ),
          )
        ),
      ),
    ),
  );
}

export function positions(at) {
  const topics = Object.entries(at);
  if (!topics.length) return h("span", { class: "quiet" }, "No position yet");
  return h(
    "span",
    { class: "positions" },
    topics.map(([topic, by]) =>
      h("span", {}, `${topic} ${Object.entries(by).map(([p, offset]) => `${p}:${offset}`).join(" ")}`)
    ),
  );
}
