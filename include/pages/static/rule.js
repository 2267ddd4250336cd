// One pattern rule or stored search: what it says, its versions, what it has found over time, and the newest rows.
import { keepInAddress } from "./address.js";
import { chart } from "./chart.js";
import { ask, live } from "./live.js";
import { h, moment, number, seen, table } from "./kit.js";
import { inForce, notificationTable, outcomes } from "./rules.js";
import { asked, timeRange } from "./time-range.js";

const SPANS = [[1, "1 hour"], [6, "6 hours"], [24, "1 day"], [168, "7 days"], [744, "31 days"]];

// `about` has the kind of the rule, the word for what it finds, the heads and cells of its rows, and the time that a
// chart counts by.
export function showRule(about, given, { shown, form }) {
  const query = { name: given.get("name") ?? "", hours: given.get("hours") ?? "24", until: given.get("until") ?? "" };
  const change = (changes) => {
    Object.assign(query, changes);
    keepInAddress(query);
    again();
  };
  form.append(...timeRange(query, SPANS, change));
  const again = live(
    shown,
    () => ask(`data/${about.kind}`, { ...asked(query), name: query.name }),
    30,
    (found) => drawn(about, found),
  );
}

function drawn(about, { name, text, versions, course, found, notifications, as_of: now }) {
  const series = Object.entries(course.found).map(([outcome, values]) => ({ name: outcome, values }));
  return [
    h("h1", {}, seen(name)),
    h("pre", { class: "value" }, text.split("\n").map((line) => `${seen(line)}\n`)),
    series.length
      ? chart({ title: about.counted, unit: "", at: course.at, series })
      : h("p", { class: "quiet" }, "Nothing was found in this time range."),
    h("h2", {}, about.newest),
    table(about.heads, found.map(about.cells), "Nothing was found yet.", { keys: found.map(about.key) }),
    h("h2", {}, "Versions"),
    table(
      [{ title: "Version", number: true }, "In force", { title: "Found", number: true }],
      versions.toReversed().map((each) => [
        number(each.version),
        h("span", {}, inForce(each, now), each.ended ? h("small", {}, ` (from ${moment(each.begins)})`) : null),
        outcomes(each.outcomes ?? { found: each.hits }),
      ]),
      "",
      { keys: versions.map((each) => each.version).toReversed() },
    ),
    h("h2", {}, "Notifications"),
    notificationTable(notifications),
  ];
}
