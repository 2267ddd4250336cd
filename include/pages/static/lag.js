// Lag: how far one reader was behind the log, over time, its throughput, and its current verdict by partition.
import { keepInAddress } from "./address.js";
import { chart } from "./chart.js";
import { ask, live } from "./live.js";
import { badge, duration, h, link, marked, number, seen, table } from "./kit.js";
import { toReader } from "./links.js";
import { asked, timeRange } from "./time-range.js";
import { checkService } from "./rights.js";

export const SPANS = [
  [5 / 60, "5 minutes"],
  [0.25, "15 minutes"],
  [1, "1 hour"],
  [6, "6 hours"],
  [24, "1 day"],
  [72, "3 days"],
];

export function show(given, { shown, form }) {
  const query = {
    reader: given.get("reader") ?? "",
    hours: given.get("hours") ?? "1",
    until: given.get("until") ?? "",
    partitions: given.get("partitions") ?? "",
  };
  const change = (changes) => {
    Object.assign(query, changes);
    keepInAddress(query);
    again();
  };
  const readers = h("select", { "aria-label": "Reader", change: () => change({ reader: readers.value }) });
  const partitions = h("input", {
    type: "checkbox",
    checked: query.partitions !== "",
    change: () => {
      change({ partitions: partitions.checked ? "1" : "" });
    },
  });
  form.append(readers, ...timeRange(query, SPANS, change), h("label", {}, partitions, " A line for each partition"));
  const again = live(
    shown,
    () => ask("data/lag", { ...asked(query), reader: query.reader, partitions: query.partitions ? 1 : 0 }),
    10,
    (found) => {
      if (!readers.length) {
        query.reader = found.reader; // another one may be the worst at the next poll
        readers.append(
          ...found.readers.map((each) => h("option", { selected: each === found.reader }, each)),
        );
      }
      return drawn(found);
    },
  );
}

function drawn({ reader, course, rows, changes }) {
  return [
    h("h1", {}, "Lag", h("span", {}, " of ", toReader(reader))),
    h("p", {}, link("freshness", {}, "Compare the freshness of views")),
    ...(course.total.events.length ? charts(reader, course, changes) : [
      h(
        "p",
        { class: "quiet" },
        marked(
          `No samples of ${reader} in this time range. ${checkService("lag")}`,
        ),
      ),
    ]),
    table(
      [
        "Topic",
        { title: "Partition", number: true },
        { title: "Position", number: true },
        { title: "Log start", number: true },
        { title: "Log end", number: true },
        { title: "Lag (events)", number: true },
        { title: "Lag (time)", number: true },
        { title: "In/s", number: true, hint: "Records that arrive per second" },
        { title: "Out/s", number: true, hint: "Records that the reader processes per second" },
        { title: "Time to catch up", number: true },
        "Verdict",
      ],
      rows.map((row) => [
        row.topic ?? "",
        row.partition ?? "",
        number(row.position),
        number(row.earliest),
        number(row.end),
        number(row.lag_events),
        duration(row.lag_seconds),
        number(row.rate_in, 1),
        number(row.rate_counted, 1),
        row.caught_up_in === null ? "" : duration(row.caught_up_in),
        h("span", {}, badge(row.verdict), row.verdict === "OK" ? null : h("small", {}, ` ${seen(row.reason)}`)),
      ]),
      "No sample yet.",
      { caption: "The newest sample of each partition", keys: rows.map((row) => `${row.topic} ${row.partition}`) },
    ),
    h(
      "p",
      { class: "quiet" },
      course.total.events.length ? `Each point is the highest lag within ${duration(course.step)}. ` : null,
      sampled(rows),
    ),
  ];
}

// The archive reads every topic, so its throughput is that of the platform.
function charts(reader, { at, total, partitions }, changes) {
  const lines = (name, title) => [
    { name: title, values: total[name] },
    ...partitions.map((each) => ({ name: `${each.topic} ${each.partition}`, values: each.course[name] })),
  ];
  return [
    chart({ title: "Lag", unit: "events", at, changes, series: lines("events", "Total") }),
    chart({ title: "Freshness", unit: "time", at, changes, series: lines("seconds", "Latest partition") }),
    chart({
      title: reader === "archive" ? "Total throughput of all topics" : "Throughput",
      unit: "events/s",
      at,
      changes,
      series: [{ name: "In", values: total.rate_in }, { name: "Out", values: total.rate_out }],
    }),
  ];
}

function sampled(rows) {
  const ages = rows.map((each) => each.sample_age).filter((age) => age !== null);
  return ages.length ? `Last sample: ${duration(Math.max(...ages))} ago.` : "The lag service has no sample.";
}
