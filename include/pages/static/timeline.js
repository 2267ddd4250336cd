// The on-call timeline: deployments, restarts, backfills, repairs, silences and alerts over a time range.
import { keepInAddress } from "./address.js";
import { ask, live } from "./live.js";
import { h, leaveFrame, link, moment, number, s, seen, since, table } from "./kit.js";
import { brief, markAddress, toTarget } from "./links.js";
import { pager, skipWithin } from "./list.js";
import { details, operation } from "./operations.js";
import { chartWidth, roundTimes, tickText } from "./time-axis.js";
import { asked, timeRange } from "./time-range.js";

const SPANS = [
  [5 / 60, "5 minutes"],
  [1, "1 hour"],
  [6, "6 hours"],
  [24, "1 day"],
  [72, "3 days"],
  [168, "7 days"],
  [744, "31 days"],
];
const LANES = {
  Alerts: ["alert"],
  Silences: ["silence", "unsilence", "acknowledge"],
  Deployments: ["release", "rejudge"],
  Starts: ["launch", "restart", "stop", "start"],
  Backfills: ["backfill"],
  Repairs: ["repair"],
  Comparisons: ["compare", "different", "unknown"],
};
const LANE = 26, LEFT = 110, RIGHT = 12;
const PAGE = 100;

export function show(given, { shown, form }) {
  const state = { hours: given.get("hours") ?? "24", until: given.get("until") ?? "" };
  let skip = 0;
  form.append(...timeRange(state, SPANS, (changes) => {
    Object.assign(state, changes);
    skip = 0;
    keepInAddress(state);
    again();
  }));
  const again = live(shown, () => ask("data/timeline", asked(state)), 10, ({ occurrences, more, begins, ends }) => {
    skip = skipWithin(skip, PAGE, occurrences.length); // entries leave the time range
    const entries = occurrences.slice(skip, skip + PAGE);
    return [
      more ? h("p", { class: "means" }, newestOf(occurrences)) : null,
      plot(occurrences, Date.parse(begins), Date.parse(ends)),
      list(entries),
      occurrences.length > PAGE
        ? pager({
          skip,
          limit: PAGE,
          shown: entries.length,
          more: skip + PAGE < occurrences.length,
          total: occurrences.length,
        }, (to) => {
          skip = to;
          again.redraw();
        })
        : null,
    ];
  });
}

function list(entries) {
  return table(
    [{ title: "Time (UTC)", sort: "descending" }, "Event", "Target", "Duration", "By", "Details"],
    entries.map((each) => [
      moment(each.begins),
      name(each.kind),
      toTarget(each.kind, each.subject),
      each.ends === each.begins ? "" : each.ends ? since(each.begins, each.ends) : "Not ended",
      each.by === "airflow" ? "Airflow" : seen(each.by),
      h("span", { class: "value" }, about(each)),
    ]),
    "Nothing happened in this time range.",
    { caption: "Newest first", keys: entries.map((each) => `${each.kind}-${each.subject}-${each.begins}`) },
  );
}

function newestOf({ length }) {
  return `Only the newest ${number(length)} entries are shown. Choose a shorter time range, or an earlier end.`;
}

function name(kind) {
  return { alert: "Alert", different: "View different", unknown: "Comparison inconclusive" }[kind] ?? operation(kind);
}

function about({ kind, about: text }) {
  return ["different", "unknown"].includes(kind)
    ? link("reconciliation", { id: text }, `Reconciliation ${text}`)
    : kind === "launch"
    ? details({ kind, about: text })
    : brief(text);
}

// One lane per group. What lasts is a bar, and a moment is a dot. Each mark is a link to what it shows.
function plot(all, first, last) {
  const width = chartWidth(), { step, times } = roundTimes(first / 1000, last / 1000, width - LEFT - RIGHT);
  const x = (time) =>
    LEFT + ((width - LEFT - RIGHT) * (Math.min(last, Math.max(first, time)) - first)) / Math.max(1, last - first);
  const lanes = Object.entries(LANES),
    height = lanes.length * LANE + 24;
  return h(
    "figure",
    { "data-key": "plot" },
    s(
      "svg",
      {
        viewBox: `0 0 ${width} ${height}`,
        role: "group",
        "aria-label": "Timeline by kind of event; the table below has the same entries",
      },
      lanes.map(([lane, kinds], n) =>
        s(
          "g",
          {},
          s("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: (n + 0.5) * LANE, y2: (n + 0.5) * LANE }),
          s("text", { x: LEFT - 10, y: (n + 0.5) * LANE + 4, "text-anchor": "end" }, lane),
          all.filter((each) => kinds.includes(each.kind)).map((each) => mark(each, (n + 0.5) * LANE, x, last)),
        )
      ),
      times.map((time) =>
        s("text", { x: x(time * 1000), y: height - 6, "text-anchor": "middle" }, tickText(time, step))
      ),
    ),
  );
}

function mark(each, y, x, last) {
  const begins = x(Date.parse(each.begins)),
    ends = each.ends === each.begins ? begins : x(each.ends ? Date.parse(each.ends) : last);
  const title = s("title", {}, `${name(each.kind)} ${seen(each.subject)}: ${moment(each.begins)} UTC`);
  const href = markAddress(each);
  return s(
    "a",
    { class: `mark-of ${each.kind}`, href, click: href.startsWith("../") ? leaveFrame : null },
    title,
    ends - begins < 1
      ? s("circle", { cx: begins, cy: y, r: 4.5 })
      : s("rect", { x: begins, y: y - 5, width: Math.max(3, ends - begins), height: 10, rx: 3 }),
  );
}
