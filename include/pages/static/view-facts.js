// The facts about a view that people look for first: how fresh and how correct it is, how large, and who reads it.
import { about, badge, bytes, count, duration, h, link, number, s, seen, word } from "./kit.js";
import { proof } from "./views.js";

const WIDTH = 150, HEIGHT = 26;

export function facts(found) {
  const { entry, events_per_second: rate, readers, sql_readers: sessions, as_of: now } = found;
  const rows = entry.table ? `${about(entry.table.rows)} (${bytes(entry.table.bytes)})` : "No table yet";
  const named = [
    ["Freshness", entry.batch_only ? "Built once a day" : fresh(entry.view, found)],
    ["Correctness", entry.proof ? proof(entry.proof, now) : "Never compared"],
    ["Rows", rows],
    entry.batch_only || !entry.table ? null : ["Events/s", rate === null ? "Unknown" : number(rate, rate < 10 ? 1 : 0)],
    found.work ? ["Work", work(found.work)] : null,
    ["Asked by, in 7 days", readers.length ? readers.map(reader) : "No application"],
    ["Reading by SQL now", sessions.length ? sessions.map(session) : "No session"],
    entry.owner ? ["Owner", seen(entry.owner)] : null,
  ];
  return h(
    "dl",
    { class: "facts" },
    named.filter(Boolean).map(([name, content]) => h("div", {}, h("dt", {}, name), h("dd", {}, content))),
  );
}

function reader({ reader: name, answers }) {
  return h("span", { class: "line-of" }, seen(name), h("small", {}, ` ${count(answers, "answer")}`));
}

function session({ role, sessions }) {
  return h("span", { class: "line-of" }, seen(role), h("small", {}, ` ${count(sessions, "session")}`));
}

// The steps overlap with the work on other views, so this is not CPU time.
function work({ preparing, merging, records }) {
  const each = (seconds) => number((1000 * seconds) / records, 2);
  return [
    `${each(preparing + merging)} s for 1,000 records`,
    h("small", { class: "line-of" }, `${each(preparing)} s to prepare, ${each(merging)} s to merge (wall time)`),
  ];
}

// The freshness now, and the course of the last day. Time without samples is a gap.
function fresh(view, { lag, seconds: now, freshness: { series: [{ seconds }] } }) {
  const known = seconds.filter((each) => each !== null);
  if (!known.length) return "No samples in the last day";
  const most = Math.max(...known);
  return [
    lag ? [badge(lag, lag === "OK" ? "Fresh" : word(lag)), " "] : null,
    link("lag", { reader: view, hours: 24 }, now === null ? "Unknown now" : duration(now)),
    sparkline(seconds, most),
    h("small", {}, `at most ${duration(most)} in 24 h`),
  ];
}

function sparkline(values, most) {
  const x = (i) => (WIDTH * i) / (values.length - 1), y = (v) => HEIGHT - 2 - ((HEIGHT - 4) * v) / Math.max(most, 1);
  let drawn = "";
  values.forEach((v, i) => {
    if (v === null) return;
    drawn += `${(values[i - 1] ?? null) === null ? "M" : "L"}${x(i).toFixed(1)} ${y(v).toFixed(1)}l0 0`;
  });
  return s(
    "svg",
    {
      class: "sparkline",
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      role: "img",
      "aria-label": "Freshness in the last 24 hours",
    },
    s("path", { class: "line line-0", d: drawn }),
  );
}
