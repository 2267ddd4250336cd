// Backfills: history recomputed from the archive over a range of days; who asked for it, and how far it is.
// They are Airflow's own: its API is asked in the name of whoever looks at the page, and says itself who may.
import { act, ask, live } from "./live.js";
import { ago, h, link, moment, outward, seen, table } from "./kit.js";

const API = "../api/v2/backfills";
const CURES = {
  403: "you may not do this: it takes the right to trigger the DAG recompute",
  404: "Airflow does not know the DAG recompute yet, or this backfill any more: look at its DAGs",
  409: "a backfill of recompute is under way, and Airflow makes one at a time: wait until it is done, or cancel it",
};

export function show(_, { shown, form }) {
  const again = live(shown, () => ask("data/backfills"), 3, (found) => {
    if (found.may_backfill && !form.hasChildNodes()) form.append(maker(found.views, () => again()));
    return [
      h("h1", {}, found.backfills.some((each) => !each.completed_at) ? "A backfill is under way" : "No backfill is under way"),
      found.backfills.length ? null : h("p", { class: "quiet" }, "Nothing was backfilled yet."),
      found.backfills.map((each) => backfill(each, found, () => again())),
    ];
  });
}

function backfill(each, { as_of: now, may_backfill: may }, again) {
  const counted = (...states) => each.days.filter((day) => states.includes(day.state)).length;
  const failed = counted("failed");
  return h("article", { "data-backfill": each.id },
    h("header", {},
      h("h2", {}, `${day(each.begins)} to ${day(each.ends)} `, state(word(each)), ` ${counted("done", "was done")} of ${each.days.length} days done${failed ? `, ${failed} failed` : ""}`),
      h("p", { class: "buttons" }, may && !each.completed_at ? [
        button(each.paused ? "unpause" : "pause", each, again), button("cancel", each, again)] : null)),
    h("p", {}, each.repair ? "repairs what differs" : "compares only", ", asked for by ", seen(each.by ?? "the command line"), " ", ago(each.at, now),
      each.completed_at ? h("span", {}, ", over at ", moment(each.completed_at)) : null),
    table(["day (UTC)", "state", ...each.views, "report"], each.days.map((one) => [
      one.run ? outward(`dags/recompute/runs/${encodeURIComponent(one.run)}`, day(one.day)) : day(one.day),
      state(one.state), ...each.views.map((view) => (one.views[view] ? state(one.views[view]) : "")),
      one.report ? link("reconciliations", { run: one.report }, "report") : h("span", { class: "quiet" }, one.awaited ? "waiting" : "none"),
    ]), "It found no day."));
}

function word({ completed_at: over, paused, days }) {
  if (over) return days.some((each) => each.state === "failed") ? "failed" : "done";
  return paused ? "paused" : days.some((each) => ["waiting", "running"].includes(each.state)) ? "running" : "ending";
}

function day(given) {
  return given.slice(0, 10);
}

function state(given) {
  return h("span", { class: `badge ${{ done: "good", failed: "bad" }[given] ?? "fair"}` }, given);
}

function button(name, { id }, again) {
  return h("button", { type: "button", "data-act": name, click: async () => {
    try {
      await act(`${API}/${id}/${name}`, {}, "PUT");
    } catch (error) {
      told(h("p", { role: "alert" }, CURES[error.status] ?? error.message));
    }
    again();
  } }, name);
}

function maker(views, again) {
  const yesterday = new Date(Date.now() - 86_400_000).toISOString().slice(0, 10);
  const field = (name, properties) => h("input", { name, "aria-label": name, required: true, ...properties });
  const choice = (name, options) => h("select", { name, "aria-label": name }, options.map(([value, text]) => h("option", { value }, text)));
  return h("form", { "aria-label": "backfill", submit: (event) => {
    event.preventDefault();
    plan(new FormData(event.target), again);
  } },
    h("label", {}, "from ", field("from", { type: "date", value: yesterday })), h("label", {}, "to ", field("to", { type: "date", value: yesterday })),
    views.map((view) => h("label", {}, h("input", { type: "checkbox", name: "views", value: view, checked: true }), view)),
    choice("mode", [["repair", "repair what differs"], ["compare", "compare only"]]),
    choice("days", [["completed", "every day"], ["failed", "days that failed or were never done"]]),
    h("button", {}, "backfill"));
}

function wrong(from, to, views) {
  if (!views.length) return "No view is chosen: choose one at least.";
  if (from > to) return `The range ends before it begins: ${to} is before ${from}.`;
  return from > new Date().toISOString().slice(0, 10) ? "This range is to come: a day can be recomputed when it has begun." : "";
}

// Airflow says which days it would make runs for; only then it is asked to.
async function plan(given, again) {
  const [from, to, views] = [given.get("from"), given.get("to"), given.getAll("views")];
  const why = wrong(from, to, views);
  if (why) return told(h("p", { role: "alert" }, why));
  const repair = given.get("mode") === "repair";
  const asked = {
    dag_id: "recompute", from_date: `${from}T00:00:00Z`, to_date: `${to}T00:00:00Z`, max_active_runs: 2,
    reprocess_behavior: given.get("days"), dag_run_conf: { views, repair },
  };
  try {
    const { backfills: days } = await act(`${API}/dry_run`, asked);
    if (!days.length) return told(h("p", { role: "alert" }, "No day of this range can be recomputed now: one that is not over is left out, one that is under way too, and one that was done unless every day is chosen."));
    sure(asked, days, again);
  } catch (error) {
    told(h("p", { role: "alert" }, CURES[error.status] ?? error.message));
  }
}

function sure(asked, days, again) {
  const { views, repair } = asked.dag_run_conf;
  const refused = h("p", { role: "alert" });
  const yes = h("button", { type: "button", class: "yes", click: async () => {
    yes.disabled = true;
    try {
      await act(API, asked);
      document.getElementById("ask").close();
      again();
    } catch (error) {
      refused.replaceChildren(CURES[error.status] ?? error.message);
      yes.disabled = false;
    }
  } }, `backfill ${days.length} days`);
  const dates = days.map((each) => day(each.logical_date)).sort();
  told([
    h("h2", {}, `Recompute ${days.length} days?`),
    h("p", {}, `${dates[0]} to ${dates.at(-1)}, of ${views.join(", ")}. The comparison that follows ${repair ? "repairs what differs" : "repairs nothing"}. Airflow keeps your name with it.`),
    refused], yes, "leave it");
}

function told(said, yes = null, otherwise = "I see") {
  const dialog = document.getElementById("ask");
  dialog.replaceChildren(...[said].flat(), h("p", { class: "buttons" }, yes, h("button", { type: "button", click: () => dialog.close() }, otherwise)));
  if (!dialog.open) dialog.showModal();
}
