// Lag: how far behind the log one reader was, over time and by partition; and what its verdict is now.
import { chart } from "./chart.js";
import { ask, live } from "./live.js";
import { badge, duration, h, number, seen, table } from "./kit.js";

const SPANS = [[0.25, "15 minutes"], [1, "1 hour"], [6, "6 hours"], [24, "1 day"], [72, "3 days"]];

export function show(given, { shown, form }) {
  const asked = { reader: given.get("reader") ?? "", hours: given.get("hours") ?? "1" };
  const readers = h("select", { "aria-label": "reader", change: () => { asked.reader = readers.value; again(); } });
  const spans = h("select", { "aria-label": "span", change: () => { asked.hours = spans.value; again(); } },
    SPANS.map(([hours, text]) => h("option", { value: hours, selected: String(hours) === asked.hours }, text)));
  form.append(readers, spans);
  const again = live(shown, () => ask("data/lag", asked), 10, (found) => {
    if (!readers.length) readers.append(...found.readers.map((each) => h("option", { selected: each === found.reader }, each)));
    return drawn(found);
  });
}

function drawn({ reader, course, rows }) {
  const series = (name) => course.series.map((each) => ({ name: `${each.topic} ${each.partition}`, values: each[name] }));
  const seenAny = course.series.length > 0;
  return [
    seenAny ? chart({ title: "events behind", at: course.at, series: series("events") }) : h("p", { class: "quiet" }, `Nothing was seen of ${reader} in this time: is the service lag READY?`),
    seenAny ? chart({ title: "seconds behind", at: course.at, series: series("seconds"), write: duration }) : null,
    table(["topic", { title: "partition", number: true }, { title: "position", number: true }, { title: "log begins", number: true },
      { title: "log ends", number: true }, { title: "events behind", number: true }, { title: "seconds behind", number: true },
      { title: "in/s", number: true }, { title: "out/s", number: true }, { title: "caught up in", number: true }, "verdict"],
    rows.map((each) => [
      each.topic ?? "", each.partition ?? "", number(each.position), number(each.earliest), number(each.end),
      number(each.lag_events), duration(each.lag_seconds), number(each.rate_in, 1), number(each.rate_counted, 1),
      each.caught_up_in === null ? "" : duration(each.caught_up_in),
      h("span", {}, badge(each.verdict), each.verdict === "OK" ? null : h("small", {}, ` ${seen(each.reason)}`)),
    ])),
    h("p", { class: "quiet" }, `Each point is the worst of ${duration(course.step)}.`),
  ];
}
