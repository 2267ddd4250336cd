// Quality: the metrics of each event type by log day, with their bounds and the outcome of the validation.
import { chart } from "./chart.js";
import { confirmAction } from "./dialog.js";
import { act, ask, live } from "./live.js";
import { badge, count, docs, h, link, marked, number, outward, seen, table, word } from "./kit.js";
import { choose } from "./list.js";
import { reasonFor, rightButton } from "./rights.js";

const API = "../api/v2/dags/quality/dagRuns";
const CURES = {
  403: "You may not do this. It requires permission to trigger the quality DAG.",
  404: "Airflow has no quality DAG yet. Check the list of DAGs in Airflow.",
};
const ALL = "All event types";
const MARKS = { PASSED: "●", FAILED: "◆", NOT_CHECKED: "○", NONE: "" };

export function show(given, { shown, form }) {
  const state = { of: given.get("of") ?? "" };
  const again = live(shown, () => ask("data/quality", state), 10, (found) => {
    const { newest, of, days } = found;
    if (!form.hasChildNodes()) begin(found, form, () => again());
    if (!newest.length) return nothingYet();
    return [
      heatMap(found),
      overview(found),
      h("h2", {}, of),
      of === "dead_letter" ? h("p", {}, link("dead-letters", {}, "Dead letters"), " shows their reasons.") : null,
      days.length ? charts([...days].reverse()) : null,
      table(
        ["Log day (UTC)", "Validation", "Problems and metrics", "Run"],
        days.map(day),
        "No log day of this event type has been validated yet. A day is validated once it has ended in the log.",
        { keys: days.map(({ judged }) => judged.id) },
      ),
    ];
  });
}

// The form that validates a day at once. The last ended day is the default.
function begin({ ended, types, may_validate: may }, form, again) {
  if (!ended.length) return;
  const day = choose("Log day", ended.map((each) => [each, whole(each)]), ended[0]);
  const type = choose("Event type", [ALL, ...types], ALL);
  const started = h("p", { role: "status", class: "quiet" });
  form.append(
    h(
      "form",
      {
        "aria-label": "Validate a log day",
        submit: (event) => {
          event.preventDefault();
          validate(day.value, type.value === ALL ? types : [type.value], started, again);
        },
      },
      day,
      type,
      rightButton("validate", may, "Validate now", { type: "submit" }),
      reasonFor("validate", may),
    ),
    started,
  );
}

function validate(day, events, started, again) {
  confirmAction({
    title: `Validate ${count(events.length, "event type")} on ${whole(day)}?`,
    label: "Validate",
    text:
      "The validation computes the metrics of this log day from the archive, and replaces earlier results of it. Airflow records your name.",
    why: (error) => CURES[error.status] ?? error.message,
    act: async () => {
      const conf = { day: `${new Date(day).toISOString().slice(0, 19)}Z`, events };
      const run = await act(API, { logical_date: null, conf });
      return () => {
        const address = `dags/quality/runs/${encodeURIComponent(run.dag_run_id)}`;
        started.replaceChildren("Started: ", outward(address, seen(run.dag_run_id)), ". The result appears here.");
        again();
      };
    },
  });
}

function nothingYet() {
  return h(
    "p",
    { class: "quiet" },
    "No log day has been validated yet. The ",
    outward("dags/quality", "quality DAG"),
    " runs once a day and validates the days that have ended in the log. ",
    marked("*Validate now* validates an ended day at once. As long as no day has ended, there is nothing to choose."),
  );
}

// A log day that does not begin at midnight has a time.
function whole(day) {
  const text = new Date(day).toISOString();
  return text.slice(11, 19) === "00:00:00" ? text.slice(0, 10) : `${text.slice(0, 10)} ${text.slice(11, 19)}`;
}

// Event types by days: what passed, failed or was not checked.
function heatMap({ by_day: all, types }) {
  const days = [...new Set(all.map((each) => each.day))].sort();
  const found = new Map(all.map((each) => [`${each.event} ${each.day}`, each]));
  const known = types.filter((type) => all.some((each) => each.event === type));
  return h(
    "section",
    { class: "days" },
    h(
      "p",
      { class: "legend" },
      ["PASSED", "FAILED", "NOT_CHECKED"].map((state) =>
        h("span", {}, h("span", { class: "cell", "data-state": state }, MARKS[state]), ` ${word(state)}`)
      ),
    ),
    h(
      "div",
      { class: "wide", tabindex: 0, role: "region", "aria-label": "Results by event type and day" },
      h(
        "table",
        { class: "heat" },
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            h("th", { scope: "col" }, "Event type"),
            days.map((each) => h("th", { scope: "col", title: `${whole(each)} UTC` }, brief(each, days))),
          ),
        ),
        h(
          "tbody",
          {},
          known.map((type) =>
            h(
              "tr",
              { "data-key": type },
              h("th", { scope: "row" }, link("quality", { of: type }, type)),
              days.map((each) => cell(found.get(`${type} ${each}`), type, each)),
            )
          ),
        ),
      ),
    ),
  );
}

function cell(result, type, day) {
  const state = result ? stateOf(result) : "NONE";
  const says = `${type}, ${whole(day)}: ${result ? word(state) : "not validated"}`;
  const why = result?.failed.length ? `${says}: ${result.failed.join("; ")}` : says;
  return h("td", { class: "cell", "data-state": state, title: seen(why), "aria-label": says }, MARKS[state]);
}

// Days are shown by their date, or by their time if several begin on one date.
function brief(day, days) {
  const short = days.some((each) => each !== day && each.slice(0, 10) === day.slice(0, 10));
  return new Date(day).toISOString().slice(short ? 11 : 5, short ? 16 : 10);
}

function overview({ newest, unchecked }) {
  return table(
    ["Event type", "Newest log day (UTC)", "Validation", "Problems"],
    newest.map((each) => [
      link("quality", { of: each.event }, each.event),
      whole(each.day),
      verdict(each),
      [wrong(each), unchecked[each.event] ? h("small", {}, seen(unchecked[each.event])) : null],
    ]),
    "",
    { keys: newest.map((each) => each.event) },
  );
}

function day({ judged, figures }) {
  return [
    whole(judged.day),
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

function stateOf({ success }) {
  return success === null ? "NOT_CHECKED" : success ? "PASSED" : "FAILED";
}

function verdict(judged) {
  return badge(stateOf(judged));
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
