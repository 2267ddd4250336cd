// Reconciliations: every comparison of a view with its rebuild, as a timeline and as a list.
import { keepInAddress, pairs } from "./address.js";
import { ask, live } from "./live.js";
import { badge, docs, h, link, moment, number, outward, s, seen, sentence, table } from "./kit.js";
import { choose, pager, sortHead } from "./list.js";
import { withRecords } from "./records.js";
import { chartWidth, roundTimes, tickText } from "./time-axis.js";

const PAGE = 100;
const LANE = 30, LEFT = 130, RIGHT = 12;
const MARKS = {
  EQUAL: (x, y) => s("circle", { cx: x, cy: y, r: 4 }),
  DIFFERENT: (x, y) => s("path", { d: `M${x} ${y - 7}L${x + 7} ${y}L${x} ${y + 7}L${x - 7} ${y}Z` }),
  UNKNOWN: (x, y) => s("circle", { cx: x, cy: y, r: 4.5, class: "hollow" }),
};

export function show(given, { shown, form }) {
  const names = ["view", "run", "attempt", "verdict", "since", "until", "text"];
  const state = {
    ...Object.fromEntries(names.map((name) => [name, given.get(name) ?? ""])),
    order: given.get("order") ?? "",
    descending: given.get("descending") !== "false",
    skip: Number(given.get("skip")) || 0,
  };
  const view = choose("View", [["", "All views"]], "", { change: () => change({ view: view.value }) });
  const verdict = choose(
    "Verdict",
    [["", "All verdicts"], ...Object.keys(MARKS).map((each) => [each, sentence(each.toLowerCase())])],
    state.verdict,
    { change: () => change({ verdict: verdict.value }) },
  );
  const search = h("input", {
    type: "search",
    "aria-label": "Search",
    placeholder: "Search view, run, reason",
    value: state.text,
    change: () => change({ text: search.value }),
  });
  const day = (label, name) =>
    h(
      "label",
      {},
      `${label} `,
      h("input", {
        type: "datetime-local",
        "aria-label": label,
        value: state[name].replace(/Z$/, ""),
        change: (event) => change({ [name]: event.target.value && `${event.target.value}Z` }),
      }),
    );
  const saved = h("span", { class: "buttons" });
  form.append(view, verdict, search, day("From (UTC)", "since"), day("Before (UTC)", "until"), saved);
  const query = () => pairs({ ...state, order: state.order || "id", skip: "" });
  const again = live(
    shown,
    () =>
      ask("data/reconciliations", [...query(), ["limit", PAGE], ["skip", state.skip]]).then((found) => ({
        ...found,
        state: { ...state },
      })),
    10,
    (found) => {
      if (view.length === 1) {
        view.append(
          ...found.views.map((each) => h("option", { selected: each === state.view }, each)),
        );
      }
      return [chosenRun(found), plot(found.reconciliations), list(found, change)];
    },
  );
  files();

  function change(changes) {
    Object.assign(state, { skip: 0 }, changes);
    keepInAddress({ ...state, descending: state.order ? state.descending : "", skip: state.skip || "" });
    files();
    again();
  }

  function files() {
    saved.replaceChildren(
      ...["csv", "json"].map((kind) =>
        link(`export/reconciliations.${kind}`, query(), `Save as ${kind.toUpperCase()}`, { download: true })
      ),
    );
  }
}

// The run that the page shows, with its state in Airflow, so that a result that is still missing is explained.
function chosenRun({ state: { run, attempt }, runs }) {
  if (!run) return null;
  const states = runs.map((each) =>
    h(
      "li",
      {},
      runLink(each.run, each.dag),
      each.by ? `, started by ${seen(each.by)},` : null,
      each.waits ? [" waits ", waitsFor(each.waits)] : ` ${RUNS[each.state] ?? sentence(each.state)}`,
      ".",
    )
  );
  return h(
    "div",
    { id: "chosen-run" },
    h(
      "p",
      {},
      attempt ? "Showing runs that one attempt started at " : "Showing the run ",
      h("code", {}, seen(run)),
      attempt ? ". " : " and the runs that it started. ",
      link("reconciliations", {}, "Show all runs"),
    ),
    states.length ? h("ul", {}, states) : null,
  );
}

const RUNS = {
  queued: "waits for its turn",
  running: "is running",
  success: "is done",
  failed: "has failed: at least one view was not proved to match the log",
};

// What a run waits for, and who started that.
export function waitsFor({ reason, dag, run, by }) {
  const other = outward(`dags/${dag}/runs/${encodeURIComponent(run)}`, `a run of ${dag}`);
  return [`${reason}: `, other, by ? `, started by ${seen(by)}` : ", started by Airflow"];
}

const KINDS = { scheduled: "Schedule", asset_triggered: "New partials", backfill: "Backfill" };

// The person or the cause that started a comparison, as a link to its run.
function startedBy({ run }, starters) {
  if (!run) return "Command line";
  const { by, kind } = starters[run] ?? {};
  const text = by ? seen(by) : KINDS[kind];
  return text
    ? h("span", { title: seen(run) }, outward(`dags/reconcile/runs/${encodeURIComponent(run)}`, text))
    : runLink(run);
}

// A run of Airflow as a link. All comparisons belong to runs of `reconcile`.
export function runLink(run, dag = "reconcile") {
  return outward(`dags/${dag}/runs/${encodeURIComponent(run)}`, h("code", {}, seen(run)));
}

// One lane per view. Each verdict has its own shape, so that colour is not the only difference.
function plot(all) {
  if (!all.length) return null;
  const views = [...new Set(all.map((each) => each.view))].sort();
  const times = all.map((each) => Date.parse(each.finished_at));
  const [first, last] = [Math.min(...times), Math.max(...times)];
  const width = chartWidth(), height = views.length * LANE + 24;
  const x = (time) => LEFT + ((width - LEFT - RIGHT - 8) * (time - first)) / Math.max(1, last - first) + 4;
  const { step, times: ticks } = roundTimes(first / 1000, last / 1000, width - LEFT - RIGHT);
  return h(
    "figure",
    {},
    h(
      "figcaption",
      {},
      h("strong", {}, "Verdicts of this page, UTC"),
      h(
        "span",
        { class: "legend verdicts" },
        Object.keys(MARKS).map((each) =>
          h(
            "span",
            {},
            s("svg", { viewBox: "0 0 16 16", class: "mark" }, s("g", { class: `verdict ${each}` }, MARKS[each](8, 8))),
            sentence(each.toLowerCase()),
          )
        ),
      ),
    ),
    s(
      "svg",
      { viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Verdicts over time" },
      views.map((view, lane) =>
        s(
          "g",
          {},
          s("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: (lane + 0.5) * LANE, y2: (lane + 0.5) * LANE }),
          s("text", { x: LEFT - 10, y: (lane + 0.5) * LANE + 4, "text-anchor": "end" }, view),
        )
      ),
      all.map((each) =>
        s(
          "a",
          { href: `reconciliation?id=${each.id}`, class: `verdict ${each.verdict}` },
          s("title", {}, `${each.view}: ${each.verdict.toLowerCase()} at ${moment(each.finished_at)} UTC`),
          (MARKS[each.verdict] ?? MARKS.UNKNOWN)(
            x(Date.parse(each.finished_at)),
            (views.indexOf(each.view) + 0.5) * LANE,
          ),
        )
      ),
      ticks.map((time) =>
        s("text", { x: x(time * 1000), y: height - 6, "text-anchor": "middle" }, tickText(time, step))
      ),
    ),
  );
}

function list({ reconciliations: all, total, state, starters }, change) {
  const shownBy = { order: state.order || "id", descending: state.descending };
  const head = (title, name, number) => sortHead(title, name, shownBy, (by) => change(by), { number });
  return [
    table(
      [
        head("Finished (UTC)", "id"),
        head("View", "view"),
        head("Verdict", "verdict"),
        head("Rows", "row_count", true),
        head("Missing", "missing", true),
        head("Extra", "extra", true),
        head("Different", "different", true),
        head("Repaired", "repaired", true),
        "Validation",
        "Started by",
      ],
      all.map((each) => [
        link("reconciliation", { id: each.id }, moment(each.finished_at)),
        link("view", { name: each.view }, each.view),
        h("span", {}, badge(each.verdict), each.reason ? h("small", {}, " ", withRecords(each.reason)) : null),
        number(each.row_count),
        number(each.missing),
        number(each.extra),
        number(each.different),
        number(each.repaired),
        validation(each),
        startedBy(each, starters),
      ]),
      empty(state),
      { keys: all.map((each) => each.id) },
    ),
    pager(
      { skip: state.skip, limit: PAGE, shown: all.length, more: total > state.skip + all.length, total },
      (skip) => change({ skip }),
    ),
  ];
}

function empty({ view, run, verdict, since, until, text }) {
  if (run) return "This run has not compared a view yet. Its results appear here.";
  return view || verdict || since || until || text
    ? "No reconciliations match."
    : "No reconciliations yet. The reconcile DAG runs every hour and after recompute has written new partials.";
}

export function validation(each) {
  if (each.judged === null) return h("span", { class: "quiet" }, "Not run");
  return [
    each.judged ? "Passed" : h("span", { class: "means" }, `Failed checks: ${seen((each.failed ?? []).join("; "))}`),
    " ",
    docs(each.validation),
  ];
}
