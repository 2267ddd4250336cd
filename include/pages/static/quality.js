// Quality: what came of each event type, log day by log day, beside what it should be.
import { chart } from "./chart.js";
import { ask, live } from "./live.js";
import { badge, docs, h, link, moment, number, seen, table } from "./kit.js";

export function show(given, { shown }) {
  live(shown, () => ask("data/quality", { of: given.get("of") ?? "" }), 30, ({ newest, of, days }) => [
    overview(newest),
    h("h1", {}, of),
    days.length ? charts([...days].reverse()) : null,
    table(["log day (UTC)", "verdict", "what is wrong, and every figure", "judged by"], days.map(day),
      "No log day of it was judged yet: the DAG quality does so once a day."),
  ]);
}

function overview(newest) {
  return table(["event type", "newest log day (UTC)", "verdict", "what is wrong"], newest.map((each) => [
    link("quality", { of: each.event }, each.event), moment(each.day), verdict(each), wrong(each),
  ]), "No event type was judged yet: the DAG quality does so once a day.");
}

function day({ judged, figures }) {
  return [
    moment(judged.day), h("span", {}, verdict(judged), " ", docs(judged.id)),
    [wrong(judged), h("details", { id: `figures-${judged.id}` }, h("summary", {}, `${figures.length} figures`),
      table(["figure", ...["value", "usually", "at least", "at most"].map((title) => ({ title, number: true })), "not judged, since"],
        figures.map((each) => [each.name, ...[each.value, each.usual, each.least, each.most].map((n) => written(each.name, n)), each.unjudged])))],
    seen(judged.run),
  ];
}

function verdict({ success }) {
  return badge(success === null ? "NOT JUDGED" : success ? "HOLDS" : "FAILS");
}

function wrong({ failed }) {
  return failed.length ? h("p", { class: "means" }, seen(failed.join("; "))) : null;
}

function charts(days) {
  const at = days.map(({ judged }) => new Date(judged.day).getTime() / 1000);
  const of = (name, part) => days.map(({ figures }) => figures.find((each) => each.name === name)?.[part] ?? null);
  const names = [...new Set(days.flatMap(({ figures }) => figures.map((each) => each.name)))];
  const shares = names.filter(isShare);
  return [
    chart({ title: "Events of each log day", at, series: [["events", "value"], ["usually", "usual"], ["at least", "least"], ["at most", "most"]]
      .map(([name, part]) => ({ name, values: of("events", part) })) }),
    chart({ title: "Shares", at, write: percent, series: shares.map((name) => ({ name, values: of(name, "value") })) }),
  ];
}

function isShare(name) {
  return name !== "events" && name !== "keys";
}

function percent(share) {
  return `${number(100 * share, 1)} %`;
}

function written(name, n) {
  if (n === null) return "";
  return isShare(name) ? percent(n) : number(n);
}
