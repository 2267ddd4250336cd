// Quality: the metrics of each event type by log day, with their bounds and the outcome of the validation.
import { chart } from "./chart.js";
import { ask, live } from "./live.js";
import { badge, count, docs, h, link, moment, number, outward, seen, table } from "./kit.js";

export function show(given, { shown }) {
  live(shown, () => ask("data/quality", { of: given.get("of") ?? "" }), 30, ({ newest, of, days }) => (newest.length
    ? [
      overview(newest),
      h("h2", {}, of),
      of === "dead_letter" ? h("p", {}, link("dead-letters", {}, "Dead letters"), " shows their reasons.") : null,
      days.length ? charts([...days].reverse()) : null,
      table(
        ["Log day (UTC)", "Validation", "Problems and metrics", "Run"],
        days.map(day),
        "No log day of this event type has been validated yet. A day is validated once it has ended in the log.",
        { keys: days.map(({ judged }) => judged.id) },
      ),
    ]
    : nothingYet()));
}

function nothingYet() {
  return h(
    "p",
    { class: "quiet" },
    "No log day has been validated yet. The ",
    outward("dags/quality", "quality DAG"),
    " runs once a day and validates the days that have ended in the log, so a new platform shows its first day tomorrow. A run by hand validates an earlier day.",
  );
}

function overview(newest) {
  return table(
    ["Event type", "Newest log day (UTC)", "Validation", "Problems"],
    newest.map((each) => [
      link("quality", { of: each.event }, each.event),
      moment(each.day),
      verdict(each),
      wrong(each),
    ]),
    "",
    { keys: newest.map((each) => each.event) },
  );
}

function day({ judged, figures }) {
  return [
    moment(judged.day),
    h("span", {}, verdict(judged), " ", docs(judged.id)),
    [
      wrong(judged),
      h(
        "details",
        { id: `figures-${judged.id}` },
        h("summary", {}, count(figures.length, "metric")),
        table(
          [
            "Metric",
            ...["Value", "Usual", "Minimum", "Maximum"].map((title) => ({ title, number: true })),
            "Why not checked",
          ],
          figures.map((
            each,
          ) => [
            each.name,
            ...[each.value, each.usual, each.least, each.most].map((n) => formatted(each.name, n)),
            each.unjudged,
          ]),
        ),
      ),
    ],
    outward(`dags/quality/runs/${encodeURIComponent(judged.run)}`, seen(judged.run)),
  ];
}

function verdict({ success }) {
  return badge(success === null ? "NOT_CHECKED" : success ? "PASSED" : "FAILED");
}

function wrong({ failed }) {
  return failed.length ? h("p", { class: "means" }, seen(failed.join("; "))) : null;
}

function charts(days) {
  const at = days.map(({ judged }) => new Date(judged.day).getTime() / 1000);
  const values = (name, part) => days.map(({ figures }) => figures.find((each) => each.name === name)?.[part] ?? null);
  const names = [...new Set(days.flatMap(({ figures }) => figures.map((each) => each.name)))];
  const shares = names.filter(isShare);
  return [
    chart({
      title: "Events per log day",
      at,
      series: [["events", "value"], ["usual", "usual"], ["minimum", "least"], ["maximum", "most"]]
        .map(([name, part]) => ({ name, values: values("events", part) })),
    }),
    shares.length
      ? chart({
        title: "Shares",
        at,
        write: percent,
        series: shares.map((name) => ({ name, values: values(name, "value") })),
      })
      : null,
  ];
}

function isShare(name) {
  return name !== "events" && name !== "keys";
}

function percent(share) {
  return `${(100 * share).toLocaleString("en", { maximumSignificantDigits: 3 })} %`;
}

function formatted(name, n) {
  if (n === null) return "";
  return isShare(name) ? percent(n) : number(n);
}
