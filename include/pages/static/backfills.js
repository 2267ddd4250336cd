// Backfills: history recomputed from the archive over a range of days, with the progress of each backfill.
// The page calls Airflow's own API on behalf of the user, so Airflow decides who may do what.
import { act, ask, live } from "./live.js";
import { ago, count, h, link, moment, outward, seen, sentence, table } from "./kit.js";

const API = "../api/v2/backfills";
const CURES = {
  403: "You may not do this. It requires permission to trigger the recompute DAG.",
  404: "Airflow has no recompute DAG yet, or this backfill no longer exists. Check the list of DAGs in Airflow.",
  409: "Another backfill of recompute is running, and Airflow runs only one at a time. Wait until it is done, or cancel it.",
};

export function show(_, { shown, form }) {
  const again = live(shown, () => ask("data/backfills"), 3, (found) => {
    if (found.may_backfill && !form.hasChildNodes()) form.append(backfillForm(found.views, () => again()));
    return [
      h("h1", {}, found.backfills.some((each) => !each.completed_at) ? "A backfill is running" : "No backfill is running"),
      found.backfills.length ? null : h("p", { class: "quiet" }, "No backfills yet."),
      found.backfills.map((each) => backfill(each, found, () => again())),
    ];
  });
}

function backfill(each, { as_of: now, may_backfill: may }, again) {
  const daysIn = (...states) => each.days.filter((day) => states.includes(day.state)).length;
  const failed = daysIn("failed");
  return h("article", { "data-backfill": each.id },
    h("header", {},
      h("h2", {}, `${day(each.begins)} to ${day(each.ends)} `, state(word(each)), ` ${daysIn("done", "already done")} of ${count(each.days.length, "day")} done${failed ? `, ${failed} failed` : ""}`),
      h("p", { class: "buttons" }, may && !each.completed_at ? [
        button(each.paused ? "unpause" : "pause", each, again), button("cancel", each, again)] : null)),
    h("p", {}, each.repair ? "Repairs differing rows. " : "Compares only. ", each.by ? `Started by ${seen(each.by)} ` : "Started from the command line ", ago(each.at, now), ".",
      each.completed_at ? ` Ended at ${moment(each.completed_at)} UTC.` : null),
    table(["Day (UTC)", "State", ...each.views, "Report"], each.days.map((one) => [
      one.run ? outward(`dags/recompute/runs/${encodeURIComponent(one.run)}`, day(one.day)) : day(one.day),
      state(one.state), ...each.views.map((view) => (one.views[view] ? [state(one.views[view]), part(one, view)] : "")),
      one.report ? link("reconciliations", { run: one.report }, "Report") : h("span", { class: "quiet" }, one.awaited ? "Pending" : "None"),
    ]), "This backfill contains no days."));
}

function word({ completed_at: over, paused, days }) {
  if (over) return days.some((each) => each.state === "failed") ? "failed" : "done";
  return paused ? "paused" : days.some((each) => ["waiting", "running"].includes(each.state)) ? "running" : "finishing";
}

function day(given) {
  return given.slice(0, 10);
}

function state(given) {
  return h("span", { class: `badge ${{ done: "good", failed: "bad" }[given] ?? "fair"}` }, sentence(given));
}

// How many of a view's log days are done, if the calendar day has several.
function part({ views, progress }, view) {
  const [done, days] = progress[view] ?? [0, 0];
  return days > 1 && views[view] !== "done" ? ` ${done} of ${days}` : "";
}

function button(name, { id }, again) {
  return h("button", { type: "button", "data-act": name, click: async () => {
    try {
      await act(`${API}/${id}/${name}`, {}, "PUT");
    } catch (error) {
      openDialog(h("p", { role: "alert" }, CURES[error.status] ?? error.message));
    }
    again();
  } }, name === "unpause" ? "Resume" : sentence(name));
}

function backfillForm(views, again) {
  const yesterday = new Date(Date.now() - 86_400_000).toISOString().slice(0, 10);
  const field = (name, properties) => h("input", { name, "aria-label": sentence(name), required: true, ...properties });
  const choice = (name, label, options) => h("select", { name, "aria-label": label }, options.map(([value, text]) => h("option", { value }, text)));
  return h("form", { "aria-label": "Backfill", submit: (event) => {
    event.preventDefault();
    plan(new FormData(event.target), again);
  } },
    h("label", {}, "From ", field("from", { type: "date", value: yesterday })), h("label", {}, "To ", field("to", { type: "date", value: yesterday })),
    views.map((view) => h("label", {}, h("input", { type: "checkbox", name: "views", value: view, checked: true }), view)),
    choice("mode", "Mode", [["repair", "Repair differing rows"], ["compare", "Compare only"]]),
    choice("days", "Days", [["completed", "All days"], ["failed", "Only failed and missing days"]]),
    h("button", {}, "Backfill"));
}

function wrong(from, to, views) {
  if (!views.length) return "Choose at least one view.";
  if (from > to) return `The range ends before it begins: ${to} is before ${from}.`;
  return from > new Date().toISOString().slice(0, 10) ? "This range is in the future. A day can be recomputed once it has begun." : "";
}

// Do a dry run first: Airflow lists the days that it would run.
async function plan(given, again) {
  const [from, to, views] = [given.get("from"), given.get("to"), given.getAll("views")];
  const why = wrong(from, to, views);
  if (why) return openDialog(h("p", { role: "alert" }, why));
  const repair = given.get("mode") === "repair";
  const request = {
    dag_id: "recompute", from_date: `${from}T00:00:00Z`, to_date: `${to}T00:00:00Z`, max_active_runs: 2,
    reprocess_behavior: given.get("days"), dag_run_conf: { views, repair },
  };
  try {
    const { backfills: days } = await act(`${API}/dry_run`, request);
    if (!days.length) return openDialog(h("p", { role: "alert" }, "No day in this range can be recomputed now. Airflow skips days that have not ended and days that are running; unless you choose “All days”, it also skips days that are done."));
    confirm(request, days, again);
  } catch (error) {
    openDialog(h("p", { role: "alert" }, CURES[error.status] ?? error.message));
  }
}

function confirm(request, days, again) {
  const { views, repair } = request.dag_run_conf;
  const refused = h("p", { role: "alert" });
  const yes = h("button", { type: "button", class: "yes", click: async () => {
    yes.disabled = true;
    try {
      await act(API, request);
      document.getElementById("ask").close();
      again();
    } catch (error) {
      refused.replaceChildren(CURES[error.status] ?? error.message);
      yes.disabled = false;
    }
  } }, `Backfill ${count(days.length, "day")}`);
  const dates = days.map((each) => day(each.logical_date)).sort();
  openDialog([
    h("h2", {}, `Recompute ${count(days.length, "day")}?`),
    h("p", {}, `From ${dates[0]} to ${dates.at(-1)}. Views: ${views.join(", ")}. The comparison that follows ${repair ? "repairs differing rows" : "repairs nothing"}. Airflow records your name.`),
    refused], yes, "Cancel");
}

function openDialog(content, yes = null, close = "OK") {
  const dialog = document.getElementById("ask");
  dialog.replaceChildren(...[content].flat(), h("p", { class: "buttons" }, yes, h("button", { type: "button", click: () => dialog.close() }, close)));
  if (!dialog.open) dialog.showModal();
}
