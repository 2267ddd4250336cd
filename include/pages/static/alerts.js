// Alerts: open incidents with their effects, first step and runbook, acknowledgements, silences, and resolved alerts.
import { keepInAddress } from "./address.js";
import { act, ask, live } from "./live.js";
import { ago, badge, count, h, marked, moment, outward, seen, sentence, since, table } from "./kit.js";
import { toAlert, toDag, toPage } from "./links.js";
import { checkService, reasonFor, rightButton, whoRunsCommands } from "./rights.js";

const SPANS = [[0.5, "30 minutes"], [2, "2 hours"], [8, "8 hours"], [24, "24 hours"]];
const runbooks = new Map(); // by kind; runbooks do not change while a page is open

export function show(given, { shown, form }) {
  let match = given.get("match") ?? "";
  const filter = h("input", {
    type: "search",
    "aria-label": "Filter",
    placeholder: "Filter by key",
    value: match,
    input: () => {
      match = filter.value;
      keepInAddress({ match });
      again.redraw();
    },
  });
  form.append(filter);
  const again = live(shown, () => ask("data/alerts"), 3, (found) => {
    if (form.children.length === 1) {
      const may = found.may_handle;
      form.append(rightButton("alerts", may, "Silence alerts…", { click: () => silence("", () => again()) }));
      form.append(...[reasonFor("alerts", may)].filter(Boolean));
    }
    return drawn(found, match, () => again());
  }, ({ open }) => heading(open));
}

function heading(open) {
  return incidents(open).length ? count(incidents(open).length, "open alert") : "No open alerts";
}

// The worst first: critical before warning, then unacknowledged, then the oldest.
function incidents(open) {
  const rank = (each) => (each.severity === "critical" ? 0 : 2) + (each.acknowledged_at ? 1 : 0);
  return open.filter((each) => !each.follows_from).sort((a, b) => rank(a) - rank(b));
}

function drawn({ open, resolved, silences, neglected, logs, may_handle: may, as_of: now }, match, again) {
  const matches = (key) => key.toLowerCase().includes(match.toLowerCase());
  const effects = (cause) => open.filter((each) => each.follows_from === cause.key);
  const shown = incidents(open).filter((each) => [each, ...effects(each)].some(({ key }) => matches(key)));
  const sources = neglected.join(", ");
  return [
    neglected.length
      ? h(
        "p",
        { class: "means", role: "alert" },
        marked(
          `Not checked recently: ${sources}. These sources may have problems that no alert shows. ${
            checkService("lag")
          }`,
        ),
      )
      : null,
    h("h1", {}, heading(open)),
    open.length ? whoRunsCommands() : null,
    match && shown.length < incidents(open).length
      ? h("p", { class: "quiet" }, `The filter shows ${shown.length} of them.`)
      : null,
    shown.map((each) => incident(each, effects(each), { now, may, logs, again })),
    h("h2", {}, "Silences"),
    table(
      ["Alerts", "Until (UTC)", "By", "Reason", ""],
      silences.map((each) => [
        h("code", {}, seen(each.pattern)),
        moment(each.until),
        seen(each.by),
        seen(each.why),
        rightButton("alerts", may, "End silence", {
          click: () => attempt(() => act("alerts/unsilence", { id: each.id }), again),
        }),
      ]),
      "No silences.",
      { caption: "Silences, which end by themselves", keys: silences.map((each) => `silence-${each.id}`) },
    ),
    h("h2", {}, "Resolved"),
    history(resolved.filter((each) => each.opened_at && matches(each.key))),
  ];
}

// One incident sends one notification. The alerts that followed from it would hide it in a long list.
function history(resolved) {
  const unsent = resolved.filter((each) => !each.told_at);
  return [
    past(
      resolved.filter((each) => each.told_at),
      "No resolved alerts with a notification.",
      "Newest first, with a notification",
    ),
    unsent.length
      ? h(
        "details",
        { "data-key": "unsent" },
        h("summary", {}, `${count(unsent.length, "alert")} without a notification: silenced, or an effect of another`),
        past(unsent, "", "Without a notification, newest first"),
      )
      : null,
  ];
}

function past(resolved, nothing, caption) {
  return table(
    ["Alert", "Opened (UTC)", "Duration", "Acknowledged by", "Cause"],
    resolved.map((each) => [
      toAlert(each.key),
      moment(each.opened_at),
      since(each.opened_at, each.resolved_at),
      seen(each.acknowledged_by ?? ""),
      h("small", {}, seen(each.cause)),
    ]),
    nothing,
    { caption, keys: resolved.map((each) => `resolved-${each.id}`) },
  );
}

function incident(each, effects, { now, may, logs, again }) {
  return h(
    "article",
    { "data-alert": each.key, "data-key": each.key },
    h(
      "header",
      {},
      h("h2", {}, seen(each.key), " ", badge(each.severity.toUpperCase())),
      h(
        "p",
        { class: "buttons" },
        each.acknowledged_at
          ? h(
            "span",
            { class: "quiet" },
            `Acknowledged by ${seen(each.acknowledged_by ?? "")} `,
            ago(each.acknowledged_at, now),
          )
          : rightButton("alerts", may, "Acknowledge", {
            "data-act": "acknowledge",
            click: () => attempt(() => act("alerts/acknowledge", { key: each.key }), again),
          }),
        rightButton("alerts", may, "Silence…", { "data-act": "silence", click: () => silence(each.key, again) }),
      ),
    ),
    h(
      "p",
      {},
      `${meaning(each)}. Opened `,
      ago(each.opened_at, now),
      each.gone_at ? ". No longer found; the alert will resolve soon." : ".",
    ),
    h("p", { class: "value" }, seen(each.cause)),
    h("p", {}, h("strong", {}, "First step: "), marked(each.first)),
    h("p", { class: "links" }, destinations(each, logs)),
    effects.length ? consequences(each, effects, now) : null,
    runbook(each.kind, each.key),
  );
}

// The page, the DAG and the task log that explain an alert.
function destinations({ page, dag, subject }, logs) {
  const name = page.split("/").pop().split("?")[0];
  const log = dag === `stream_${subject}` ? logs[subject] : null;
  return [
    name === "alerts" || page.startsWith("dags/") ? null : toPage(page, sentence(name)),
    dag ? toDag(dag) : null,
    log ? outward(log, "Task log") : null,
  ].filter(Boolean);
}

// What follows from an alert. Receivers are not notified of effects.
function consequences(cause, effects, now) {
  return h(
    "details",
    { id: `effects-${cause.key}` },
    h("summary", {}, count(effects.length, "effect")),
    h(
      "ul",
      {},
      effects.map((each) =>
        h(
          "li",
          { "data-effect": each.key },
          toPage(each.page, seen(each.key)),
          ` ${seen(each.cause)}, `,
          ago(each.opened_at, now),
        )
      ),
    ),
  );
}

// Capitalizes the meaning, unless it begins with the subject, which keeps its case.
function meaning({ means, subject }) {
  return seen(means.startsWith(subject) ? means : sentence(means));
}

// The runbook is fetched when it is opened, and kept for later drawings.
function runbook(kind, key) {
  return h(
    "details",
    {
      id: `runbook-${key}`,
      toggle: async ({ currentTarget: details }) => {
        if (!details.open || runbooks.has(kind)) return;
        const text = await ask("data/runbook", { kind }).then((found) => found.text, (error) => error);
        if (typeof text === "string") runbooks.set(kind, text);
        details.lastElementChild.replaceChildren(...(typeof text === "string" ? written(text) : [text.message]));
      },
    },
    h("summary", {}, "Runbook"),
    h("div", { class: "runbook" }, runbooks.has(kind) ? written(runbooks.get(kind)) : null),
  );
}

function written(text) {
  return [whoRunsCommands(), ...marked(text)].filter(Boolean);
}

// Asks for the reason and the duration of a silence. The key of an alert is filled in.
function silence(key, again) {
  const dialog = document.getElementById("ask"), failure = h("p", { role: "alert" });
  const pattern = h("input", { name: "pattern", value: key, placeholder: "stalled/*", required: true, maxlength: 500 });
  const hours = h(
    "select",
    { name: "hours" },
    SPANS.map(([n, text]) => h("option", { value: n, selected: n === 2 }, text)),
  );
  const why = h("input", { name: "why", required: true, maxlength: 500, autofocus: key !== "" });
  const yes = h("button", { class: "yes" }, "Silence");
  dialog.replaceChildren(h(
    "form",
    {
      class: "silence",
      submit: async (event) => {
        event.preventDefault();
        yes.disabled = true;
        try {
          await act("alerts/silence", { pattern: pattern.value, hours: Number(hours.value), why: why.value });
          dialog.close();
          again();
        } catch (error) {
          failure.replaceChildren(error.message);
          yes.disabled = false;
        }
      },
    },
    h("h2", {}, "Silence alerts"),
    h("p", {}, "Receivers get no new notifications until the silence ends. Your name is recorded."),
    h("label", {}, "Alerts", pattern),
    h("label", {}, "Duration", hours),
    h("label", {}, "Reason", why),
    failure,
    h(
      "p",
      { class: "buttons" },
      yes,
      h("button", { type: "button", click: () => dialog.close() }, "Cancel"),
    ),
  ));
  dialog.showModal();
}

async function attempt(action, then) {
  try {
    await action();
    then();
  } catch (error) {
    const dialog = document.getElementById("ask");
    dialog.replaceChildren(
      h("p", { role: "alert" }, error.message),
      h("p", { class: "buttons" }, h("button", { type: "button", click: () => dialog.close() }, "OK")),
    );
    dialog.showModal();
  }
}
