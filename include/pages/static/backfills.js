// Backfills: history recomputed from the archive over a range of days, with the progress of each backfill.
// The page calls Airflow's own API on behalf of the user, so Airflow decides who may do what.
import { keepInAddress } from "./address.js";
import { act, ask, live } from "./live.js";
import { confirmAction, openDialog } from "./dialog.js";
import { dayGrid, iso } from "./grid.js";
import { ago, count, duration, h, link, moment, number, outward, seen, sentence, table } from "./kit.js";
import { pager } from "./list.js";
import { waitsFor } from "./reconciliations.js";
import { reasonFor, rightButton } from "./rights.js";

const API = "../api/v2/backfills";
const PAGE = 5;
const CURES = {
  403: "You may not do this. It requires permission to trigger the recompute DAG.",
  404: "Airflow has no recompute DAG yet, or this backfill no longer exists. Check the list of DAGs in Airflow.",
  409:
    "Another backfill of recompute is running, and Airflow runs only one at a time. Wait until it is done, or cancel it.",
};

export function show(given, { shown, form }) {
  let skip = Number(given.get("skip")) || 0, chosen = null, done = "";
  const again = live(shown, () => ask("data/backfills", { skip }), 3, (found) => {
    if (!chosen) chosen = begin(found, given, form, () => again());
    const finished = JSON.stringify(
      found.backfills.map(({ id, progress, completed_at: ended, days }) => [
        id,
        progress.done,
        ended,
        days.map((one) => one.report),
      ]),
    );
    if (done && done !== finished) chosen.refresh();
    done = finished;
    return [
      h(
        "h1",
        {},
        found.backfills.some((each) => !each.completed_at) ? "A backfill is running" : "No backfill is running",
      ),
      found.backfills.length ? null : h("p", { class: "quiet" }, "No backfills yet."),
      found.backfills.map((each) => backfill(each, found, () => again())),
      found.total > found.backfills.length
        ? pager({
          skip,
          limit: PAGE,
          shown: found.backfills.length,
          more: found.total > skip + found.backfills.length,
          total: found.total,
        }, (to) => {
          skip = to;
          keepInAddress({ view: given.getAll("view"), skip: skip || "" });
          again();
        })
        : null,
    ];
  });
}

// The form for users who may start a backfill, and the grid of days for everyone.
function begin(found, given, form, again) {
  const made = found.may_backfill ? backfillForm(found.views, given.getAll("view"), again) : null;
  const fields = made && ["from", "to"].map((name) => made.elements[name]);
  const shows = () => made && grid.show(fields[0].value, fields[1].value, chosenViews(made));
  const choose = (from, to) => {
    Object.assign(fields[0], { value: from });
    Object.assign(fields[1], { value: to });
    shows();
  };
  const today = Date.now();
  const grid = dayGrid(
    { since: iso(today - 27 * 86_400_000), until: iso(today), mayChoose: Boolean(made) },
    choose,
    ({ costs, log_days: days }) => {
      if (!made) return;
      showCosts(made, costs);
      if (!made.dataset.begun && days.length) choose(lastEnded(days), lastEnded(days));
      made.dataset.begun = "yes"; // from now on, the user chooses
      shows();
    },
  );
  // The days of the log may arrive after the user has begun to choose, and must not replace that choice.
  made?.addEventListener("input", () => made.dataset.begun = "yes");
  made?.addEventListener("change", shows);
  form.append(made ?? refusal(), grid.element);
  return grid;
}

function refusal() {
  return h("p", { class: "buttons" }, rightButton("backfill", false, "Backfill…"), reasonFor("backfill", false));
}

// The last calendar day with data that has ended, or today if there is no other.
function lastEnded(days) {
  return days.findLast((each) => each < iso(Date.now())) ?? days.at(-1);
}

function chosenViews(form) {
  return [...form.querySelectorAll("[name=views]:checked")].map((each) => each.value);
}

function backfill(each, { as_of: now, may_backfill: may }, again) {
  const daysIn = (...states) => each.days.filter((day) => states.includes(day.state)).length;
  const failed = daysIn("failed");
  return h(
    "article",
    { "data-backfill": each.id, id: `backfill-${each.id}` },
    h(
      "header",
      {},
      h(
        "h2",
        {},
        `${day(each.begins)} to ${day(each.ends)} `,
        state(word(each)),
        ` ${daysIn("done", "already done")} of ${count(each.days.length, "day")} done`,
        failed ? `, ${failed} failed` : "",
      ),
      h(
        "p",
        { class: "buttons" },
        each.completed_at ? null : [
          button(each.paused ? "unpause" : "pause", each, may, again),
          button("cancel", each, may, again),
        ],
      ),
    ),
    h(
      "p",
      {},
      each.repair ? "Repairs differing rows. " : "Compares only. ",
      each.by ? `Started by ${seen(each.by)} ` : "Started from the command line ",
      ago(each.at, now),
      ".",
      each.completed_at ? ` Ended at ${moment(each.completed_at)} UTC.` : null,
    ),
    progress(each),
    table(
      ["Day (UTC)", "State", ...each.views, "Report"],
      each.days.map((one) => [
        one.run ? outward(`dags/recompute/runs/${encodeURIComponent(one.run)}`, day(one.day)) : day(one.day),
        [state(one.state), one.waits ? h("small", {}, " waits ", waitsFor(one.waits)) : null],
        ...each.views.map((view) => (one.views[view] ? [state(one.views[view]), part(one, view)] : "")),
        one.report
          ? link("reconciliations", { run: one.report }, "Report")
          : h("span", { class: "quiet" }, one.awaited ? "Pending" : "None"),
      ]),
      "This backfill contains no days.",
      { keys: each.days.map((one) => one.day) },
    ),
  );
}

// A bar while the backfill runs. The time that is left is known as soon as one job has ended.
function progress({ completed_at: over, progress: { done, of, share, seconds_left: left } }) {
  if (over || !of) return null;
  const rest = left === null ? "" : `, about ${duration(left)} left, with the comparison`;
  const text = `${number(done)} of ${count(of, "day-view")} done${rest}`;
  return h("p", { class: "progress" }, h("progress", { value: share, max: 1, "aria-label": "Progress" }), ` ${text}`);
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

function button(name, { id }, may, again) {
  return rightButton("backfill", may, name === "unpause" ? "Resume" : sentence(name), {
    "data-act": name,
    click: async () => {
      try {
        await act(`${API}/${id}/${name}`, {}, "PUT");
      } catch (error) {
        openDialog(h("p", { role: "alert" }, CURES[error.status] ?? error.message));
      }
      again();
    },
  });
}

function backfillForm(views, chosen, again) {
  const yesterday = iso(Date.now() - 86_400_000);
  const field = (name, properties) => h("input", { name, "aria-label": sentence(name), required: true, ...properties });
  const choice = (name, label, options) =>
    h("select", { name, "aria-label": label }, options.map(([value, text]) => h("option", { value }, text)));
  const form = h(
    "form",
    {
      "aria-label": "Backfill",
      submit: (event) => {
        event.preventDefault();
        plan(new FormData(event.target), again);
      },
    },
    h("label", {}, "From ", field("from", { type: "date", value: yesterday })),
    h("label", {}, "To ", field("to", { type: "date", value: yesterday })),
    viewPicker(views, chosen),
    choice("mode", "Mode", [["repair", "Repair differing rows"], ["compare", "Compare only"]]),
    choice("days", "Days", [["completed", "All days"], ["failed", "Only failed and missing days"]]),
    h("button", {}, "Backfill"),
    h("details", { class: "costs" }, h("summary", {}, "What this costs"), h("ul", {})),
  );
  return form;
}

// The views to choose from, with a search. The buttons choose what the search shows.
function viewPicker(views, chosen) {
  const boxes = views.map((view) =>
    h("input", { type: "checkbox", name: "views", value: view, checked: !chosen.length || chosen.includes(view) })
  );
  const labels = boxes.map((box, n) => h("label", {}, box, views[n]));
  const search = h("input", {
    type: "search",
    "aria-label": "Search views",
    placeholder: "Search views",
    input: () => labels.forEach((label, n) => label.hidden = !views[n].includes(search.value)),
    keydown: (event) => event.key === "Enter" && event.preventDefault(), // it would submit the form
  });
  const summary = h("summary", {});
  const count = () => summary.replaceChildren(`${boxes.filter((box) => box.checked).length} of ${views.length} views`);
  const toggle = (text, checked) =>
    h("button", {
      type: "button",
      click: () => {
        boxes.forEach((box, n) => labels[n].hidden || (box.checked = checked));
        picker.dispatchEvent(new Event("change", { bubbles: true }));
      },
    }, text);
  const picker = h(
    "details",
    { id: "views", change: count },
    summary,
    h("p", { class: "buttons" }, search, toggle("All views", true), toggle("No views", false)),
    h("div", { class: "picker" }, labels),
  );
  count();
  return picker;
}

// What a backfill of each chosen view recomputes and reads. Views with the same answer share a line.
function showCosts(form, costs) {
  form.costs = costs;
  const write = () => {
    const chosen = chosenViews(form).filter((each) => form.costs[each]);
    const texts = [...new Set(chosen.map((each) => form.costs[each]))];
    form.querySelector(".costs ul").replaceChildren(
      ...texts.map((text) =>
        h("li", {}, h("strong", {}, chosen.filter((each) => form.costs[each] === text).join(", ")), `: ${text}`)
      ),
    );
  };
  if (!form.dataset.costs) form.addEventListener("change", write);
  form.dataset.costs = "known";
  write();
}

function wrong(from, to, views) {
  if (!views.length) return "Choose at least one view.";
  if (from > to) return `The range ends before it begins: ${to} is before ${from}.`;
  return from > new Date().toISOString().slice(0, 10)
    ? "This range is in the future. A day can be recomputed once it has begun."
    : "";
}

// Do a dry run first: Airflow lists the days that it would run.
async function plan(given, again) {
  const [from, to, views] = [given.get("from"), given.get("to"), given.getAll("views")];
  const why = wrong(from, to, views);
  if (why) return openDialog(h("p", { role: "alert" }, why));
  const repair = given.get("mode") === "repair";
  const request = {
    dag_id: "recompute",
    from_date: `${from}T00:00:00Z`,
    to_date: `${to}T00:00:00Z`,
    max_active_runs: 2,
    reprocess_behavior: given.get("days"),
    dag_run_conf: { views, repair },
  };
  try {
    const { backfills: days } = await act(`${API}/dry_run`, request);
    if (!days.length) {
      return openDialog(
        h(
          "p",
          { role: "alert" },
          "No day in this range can be recomputed now. Airflow skips days that have not ended and days that are running; unless you choose “All days”, it also skips days that are done.",
        ),
      );
    }
    confirm(request, days, again);
  } catch (error) {
    openDialog(h("p", { role: "alert" }, CURES[error.status] ?? error.message));
  }
}

function confirm(request, days, again) {
  const { views, repair } = request.dag_run_conf;
  const dates = days.map((each) => day(each.logical_date)).sort();
  confirmAction({
    title: `Recompute ${count(days.length, "day")}?`,
    label: `Backfill ${count(days.length, "day")}`,
    why: (error) => CURES[error.status] ?? error.message,
    text: `From ${dates[0]} to ${dates.at(-1)}. Views: ${views.join(", ")}. ` +
      `The comparison that follows repairs ${repair ? "differing rows" : "nothing"}. Airflow records your name.`,
    act: async () => {
      await act(API, request);
      return again;
    },
  });
}
