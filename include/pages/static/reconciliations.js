// Reconciliations: every comparison of a view with its rebuild, as a timeline and as a list.
import { ask, live } from "./live.js";
import { badge, docs, h, link, moment, number, s, seen, sentence, table } from "./kit.js";

const WIDTH = 960, LANE = 30, LEFT = 130, RIGHT = 12;
const MARKS = {
  EQUAL: (x, y) => s("circle", { cx: x, cy: y, r: 4 }),
  DIFFERENT: (x, y) => s("path", { d: `M${x} ${y - 7}L${x + 7} ${y}L${x} ${y + 7}L${x - 7} ${y}Z` }),
  UNKNOWN: (x, y) => s("circle", { cx: x, cy: y, r: 4.5, class: "hollow" }),
};

export function show(given, { shown, form }) {
  let view = given.get("view") ?? "";
  const run = given.get("run") ?? "", attempt = given.get("attempt") ?? "";
  const chosen = () => ({ ...(view && { view }), ...(run && { run }), ...(attempt && { attempt }) });
  const choice = h("select", { "aria-label": "View", change: () => { view = choice.value; files(); again(); } }, h("option", { value: "" }, "All views"));
  const saved = h("span", { class: "buttons" });
  const files = () => saved.replaceChildren(...["csv", "json"].map((form) => link(`export/reconciliations.${form}`, chosen(), `Save as ${form.toUpperCase()}`, { download: true })));
  files();
  form.append(choice, saved);
  if (run) form.append(h("span", {}, attempt ? "Showing runs that one attempt started at " : "Showing the run ", h("code", {}, seen(run)), attempt ? ". " : " and the runs that it started. ", link("reconciliations", {}, "Show all runs")));
  const again = live(shown, () => ask("data/reconciliations", chosen()), 10, (found) => {
    if (choice.length === 1) choice.append(...found.views.map((each) => h("option", { selected: each === view }, each)));
    return [plot(found.reconciliations), list(found.reconciliations, view || run)];
  });
}

// One lane per view. Each verdict has its own shape, so that colour is not the only difference.
function plot(all) {
  if (!all.length) return h("p", {});
  const views = [...new Set(all.map((each) => each.view))].sort();
  const times = all.map((each) => Date.parse(each.finished_at));
  const [first, last] = [Math.min(...times), Math.max(...times)];
  const x = (time) => LEFT + ((WIDTH - LEFT - RIGHT - 8) * (time - first)) / Math.max(1, last - first) + 4;
  const height = views.length * LANE + 24;
  return h("figure", {},
    h("figcaption", {}, h("strong", {}, "Verdicts"), h("span", { class: "legend verdicts" }, Object.keys(MARKS).map((each) =>
      h("span", {}, s("svg", { viewBox: "0 0 16 16", class: "mark" }, s("g", { class: `verdict ${each}` }, MARKS[each](8, 8))), sentence(each.toLowerCase()))))),
    s("svg", { viewBox: `0 0 ${WIDTH} ${height}`, role: "group", "aria-label": "Verdicts over time" },
      views.map((view, lane) => s("g", {},
        s("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: (lane + 0.5) * LANE, y2: (lane + 0.5) * LANE }),
        s("text", { x: LEFT - 10, y: (lane + 0.5) * LANE + 4, "text-anchor": "end" }, view))),
      all.map((each) => s("a", { href: `reconciliation?id=${each.id}`, class: `verdict ${each.verdict}` },
        s("title", {}, `${each.view}: ${each.verdict.toLowerCase()} at ${moment(each.finished_at)} UTC`),
        (MARKS[each.verdict] ?? MARKS.UNKNOWN)(x(Date.parse(each.finished_at)), (views.indexOf(each.view) + 0.5) * LANE))),
      [0, 0.5, 1].map((share) => s("text", { x: LEFT + (WIDTH - LEFT - RIGHT) * share, y: height - 6, "text-anchor": ["start", "middle", "end"][share * 2] },
        moment(first + (last - first) * share)))));
}

function list(all, filtered) {
  return table(
    ["Finished (UTC)", "View", "Verdict", { title: "Rows", number: true }, { title: "Missing", number: true }, { title: "Extra", number: true },
      { title: "Different", number: true }, { title: "Repaired", number: true }, "Validation", "Started by"],
    all.map((each) => [
      link("reconciliation", { id: each.id }, moment(each.finished_at)),
      link("view", { name: each.view }, each.view),
      h("span", {}, badge(each.verdict), each.reason ? h("small", {}, ` ${seen(each.reason)}`) : null),
      number(each.row_count), number(each.missing), number(each.extra), number(each.different), number(each.repaired),
      validation(each), seen(each.run ?? "Command line"),
    ]), filtered ? "No reconciliations match." : "No reconciliations yet. The reconcile DAG runs every hour and after recompute has written new partials.");
}

export function validation(each) {
  if (each.judged === null) return h("span", { class: "quiet" }, "Not run");
  return [each.judged ? "Passed" : h("span", { class: "means" }, `Failed checks: ${seen((each.failed ?? []).join("; "))}`), " ", docs(each.validation)];
}
