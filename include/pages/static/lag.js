// Lag: how far one reader was behind the log, over time and by partition, and the reader's current verdict.
import { chart } from "./chart.js";
import { ask, live } from "./live.js";
import { badge, duration, h, marked, number, seen, table } from "./kit.js";

const SPANS = [[0.25, "15 minutes"], [1, "1 hour"], [6, "6 hours"], [24, "1 day"], [72, "3 days"]];

export function show(given, { shown, form }) {
  const query = { reader: given.get("reader") ?? "", hours: given.get("hours") ?? "1" };
  const readers = h("select", { "aria-label": "Reader", change: () => { query.reader = readers.value; again(); } });
  const spans = h("select", { "aria-label": "Time range", change: () => { query.hours = spans.value; again(); } },
    SPANS.map(([hours, text]) => h("option", { value: hours, selected: String(hours) === query.hours }, text)));
  form.append(readers, spans);
  const again = live(shown, () => ask("data/lag", query), 10, (found) => {
    if (!readers.length) readers.append(...found.readers.map((each) => h("option", { selected: each === found.reader }, each)));
    return drawn(found);
  });
}

function drawn({ reader, course, rows }) {
  const series = (name) => course.series.map((each) => ({ name: `${each.topic} ${each.partition}`, values: each[name] }));
  const hasSamples = course.series.length > 0;
  return [
    hasSamples ? chart({ title: "Lag in events", at: course.at, series: series("events") }) : h("p", { class: "quiet" }, marked(`No samples of ${reader} in this time range. Check with \`truelog status\` that the \`lag\` service is READY.`)),
    hasSamples ? chart({ title: "Lag in time", at: course.at, series: series("seconds"), write: duration }) : null,
    table(["Topic", { title: "Partition", number: true }, { title: "Position", number: true }, { title: "Log start", number: true },
      { title: "Log end", number: true }, { title: "Lag (events)", number: true }, { title: "Lag (time)", number: true },
      { title: "In/s", number: true, hint: "Records that arrive per second" }, { title: "Out/s", number: true, hint: "Records that the reader processes per second" },
      { title: "Time to catch up", number: true }, "Verdict"],
    rows.map((each) => [
      each.topic ?? "", each.partition ?? "", number(each.position), number(each.earliest), number(each.end),
      number(each.lag_events), duration(each.lag_seconds), number(each.rate_in, 1), number(each.rate_counted, 1),
      each.caught_up_in === null ? "" : duration(each.caught_up_in),
      h("span", {}, badge(each.verdict), each.verdict === "OK" ? null : h("small", {}, ` ${seen(each.reason)}`)),
    ])),
    h("p", { class: "quiet" }, hasSamples ? `Each point is the highest lag within ${duration(course.step)}. ` : null, sampled(rows)),
  ];
}

function sampled(rows) {
  const ages = rows.map((each) => each.sample_age).filter((age) => age !== null);
  return ages.length ? `Last sample: ${duration(Math.max(...ages))} ago.` : "The lag service has no sample.";
}
