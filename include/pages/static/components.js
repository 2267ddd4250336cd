// Components: a static example of every element in kit.js and chart.js, for contributors and for the visual test.
import { chart } from "./chart.js";
import {
  about,
  ago,
  badge,
  bytes,
  count,
  docs,
  duration,
  h,
  layerOf,
  link,
  marked,
  moment,
  number,
  positions,
  seen,
  table,
  value,
} from "./kit.js";
import { withHeading } from "./theme.js";

const NOW = "2026-01-01T12:00:00Z";
const STATES = [
  "RUNNING",
  "UP_TO_DATE",
  "OK",
  "EQUAL",
  "PASSED",
  "DOWN",
  "RESTING",
  "HUNG",
  "STALLED",
  "DIFFERENT",
  "CRITICAL",
  "STARTING",
  "STOPPED",
  "NO_INPUT",
  "CHANGED",
  "WARN",
  "UNKNOWN",
  "UNUSED",
];
const AT = Array.from({ length: 60 }, (_, n) => 1767268800 + 60 * n);
const wave = (size, gap) =>
  AT.map((_, n) => (n > gap && n < gap + 5 ? null : Math.round(size * (1 + Math.sin(n / 6)))));

export function show(_, { shown, form }) {
  form.append(
    h("select", { "aria-label": "Choice" }, h("option", {}, "A choice")),
    h("input", { "aria-label": "Text", placeholder: "Text" }),
    h("button", { type: "button" }, "Button"),
    h("button", { type: "button", disabled: true }, "Disabled"),
    h("button", { type: "button", class: "yes" }, "Confirm"),
  );
  const drawn = h(
    "div",
    {},
    h(
      "div",
      { class: "components" },
      Object.entries(EXAMPLES).map(([name, example]) =>
        h("section", { "data-component": name }, h("h2", {}, name), example())
      ),
    ),
  );
  shown.replaceChildren(...withHeading(drawn).childNodes);
  shown.setAttribute("aria-busy", "false");
  document.getElementById("as-of").replaceChildren("As of 12:00:00 UTC");
}

const EXAMPLES = {
  badge: () => h("p", {}, STATES.map((state) => [badge(state), " "])),
  "number, about, bytes, count": () =>
    h(
      "p",
      {},
      [
        number(1234.5, 1),
        number(null),
        about(1200),
        about(null),
        bytes(512),
        bytes(73_400_000),
        count(1, "row"),
        count(2, "row"),
      ].map((text) => [text, " · "]),
    ),
  "duration, moment, ago": () =>
    h(
      "p",
      {},
      [
        duration(0.4),
        duration(90),
        duration(5400),
        duration(90_000),
        duration(400_000),
        moment("2026-01-01T10:00:00Z"),
        ago("2026-01-01T11:00:00Z", NOW),
        ago(null, NOW),
      ].map((text) => [text, " · "]),
    ),
  value: () =>
    h("p", {}, [value(null), " ", value(""), " ", value("text"), " ", value({ a: 1 }), " ", value("bell\u0007")]),
  "marked, seen": () =>
    h("p", {}, marked("Run `truelog status`, **then** open *Streams*."), " ", seen("right to left \u202e")),
  "link, docs": () => h("p", {}, link("streams", {}, "A link"), " ", docs(1)),
  layerOf: () => layerOf({ layer: "batch", age: 240, reason: "its stream is stalled" }),
  positions: () => positions({ page_view: { 0: 120, 1: 140 }, click: { 0: 7 } }),
  table: () =>
    table(
      ["Name", { title: "Rows", number: true }, { title: "Time (UTC)", sort: "descending" }],
      [["page_views", "37,412", "12:00:00"], ["cart", "12", "11:59:00"]],
      "",
      { caption: "A caption" },
    ),
  "table without rows": () => table(["Name"], []),
  article: () =>
    h(
      "article",
      {},
      h(
        "header",
        {},
        h("h2", {}, "An incident ", badge("CRITICAL")),
        h("p", { class: "buttons" }, h("button", { type: "button" }, "Act")),
      ),
      h("p", { class: "means" }, "What the state means."),
      h("details", {}, h("summary", {}, "Details"), "Hidden text"),
    ),
  chart: () =>
    h(
      "div",
      {},
      chart({
        title: "Lag",
        unit: "events",
        at: AT,
        series: [{ name: "Total", values: wave(400, 20) }, { name: "page_view 0", values: wave(150, 40) }],
      }),
      chart({ title: "Freshness", unit: "time", at: AT, series: [{ name: "Latest partition", values: wave(90, 30) }] }),
    ),
};
