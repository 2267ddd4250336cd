// The history of a view: what its comparisons found in the last 30 days, or since the first of them.
import { chart } from "./chart.js";
import { bytes, h, link, moment, sentence } from "./kit.js";

const STEP = 43200, STEPS = 60; // seconds, and how many steps the answer covers
const FEWEST = 3; // a day

export function viewHistory(view, history, now) {
  if (!history.length) return h("p", { class: "quiet" }, "No comparison in the last 30 days.");
  const last = Math.floor(Date.parse(now) / 1000 / STEP) * STEP;
  const by = new Map(history.map((each) => [Date.parse(each.begins) / 1000, each]));
  const known = (last - Math.min(...by.keys())) / STEP + 1;
  const steps = Math.min(STEPS, Math.max(FEWEST, known));
  const at = Array.from({ length: steps }, (_, n) => last - (steps - 1 - n) * STEP);
  const course = (name) => at.map((time) => by.get(time)?.[name] ?? null);
  return [
    chart({ title: "Rows at comparisons", at, series: [{ name: "Rows", values: course("rows") }] }),
    course("bytes").some((each) => each !== null)
      ? chart({ title: "Size at comparisons", at, write: bytes, series: [{ name: "Size", values: course("bytes") }] })
      : null,
    h("h3", {}, "Verdicts, each of 12 hours"),
    h(
      "p",
      { class: "strip" },
      at.map((time) => verdict(view, time, by.get(time))),
    ),
  ];
}

function verdict(view, time, step) {
  const since = new Date(time * 1000).toISOString(), until = new Date((time + STEP) * 1000).toISOString();
  const text = `${step ? sentence(step.verdict.toLowerCase()) : "Not compared"} from ${moment(since)} UTC`;
  const properties = { class: "cell", title: text, "data-state": step?.verdict ?? null };
  return step
    ? link("reconciliations", { view, since, until }, MARKS[step.verdict], { ...properties, "aria-label": text })
    : h("span", properties);
}

const MARKS = { EQUAL: "=", DIFFERENT: "≠", UNKNOWN: "?" };
