// Alerts: open alerts with their first step and runbook, acknowledgements, silences, and resolved alerts.
import { act, ask, live } from "./live.js";
import { ago, badge, count, h, marked, moment, seen, sentence, since, table } from "./kit.js";

const runbooks = new Map(); // by kind; runbooks do not change while a page is open

export function show(_, { shown, form }) {
  const again = live(shown, () => ask("data/alerts"), 3, (found) => {
    if (found.may_handle && !form.hasChildNodes()) silenceForm(form, () => again());
    return drawn(found, () => again());
  }, ({ open }) => (open.length ? count(open.length, "open alert") : "No open alerts"));
}

function drawn({ open, resolved, silences, neglected, may_handle: may, as_of: now }, again) {
  return [
    neglected.length ? h("p", { class: "means", role: "alert" }, marked(`Not checked recently: ${neglected.join(", ")}. These sources may have problems that no alert shows. Check with \`truelog status\` that the \`lag\` service is READY.`)) : null,
    h("h1", {}, open.length ? count(open.length, "open alert") : "No open alerts"),
    open.map((each) => incident(each, now, may, again)),
    h("h3", {}, "Silences"),
    table(["Alerts", "Until (UTC)", "By", "Reason", ""], silences.map((each) => [
      h("code", {}, seen(each.pattern)), moment(each.until), seen(each.by), seen(each.why),
      may ? h("button", { type: "button", click: () => attempt(() => act("alerts/unsilence", { id: each.id }), again) }, "End silence") : "",
    ]), "No silences."),
    h("h3", {}, "Resolved"),
    table(["Alert", "Opened (UTC)", "Duration", "Acknowledged by", "Cause"], resolved.filter((each) => each.opened_at).map((each) => [
      seen(each.key), moment(each.opened_at), since(each.opened_at, each.resolved_at), seen(each.acknowledged_by ?? ""), h("small", {}, seen(each.cause)),
    ]), "No resolved alerts yet."),
  ];
}

function incident(each, now, may, again) {
  return h("article", { "data-alert": each.key, "data-key": each.key },
    h("header", {},
      h("h2", {}, seen(each.key), " ", badge(each.severity.toUpperCase())),
      h("p", { class: "buttons" }, each.acknowledged_at
        ? h("span", { class: "quiet" }, `Acknowledged by ${seen(each.acknowledged_by ?? "")} `, ago(each.acknowledged_at, now))
        : may ? h("button", { type: "button", "data-act": "acknowledge", click: () => attempt(() => act("alerts/acknowledge", { key: each.key }), again) }, "Acknowledge") : h("span", { class: "quiet" }, "Not acknowledged"))),
    h("p", {}, `${meaning(each)}. Opened `, ago(each.opened_at, now), each.gone_at ? ". No longer found; the alert will resolve soon." : "."),
    h("p", { class: "value" }, seen(each.cause)),
    h("p", {}, h("strong", {}, "First step: "), marked(each.first)),
    runbook(each.kind, each.key));
}

// Capitalizes the meaning, unless it begins with the subject, which keeps its case.
function meaning({ means, subject }) {
  return seen(means.startsWith(subject) ? means : sentence(means));
}

// The runbook is fetched when it is opened, and kept for later drawings.
function runbook(kind, key) {
  return h("details", { id: `runbook-${key}`, toggle: async ({ currentTarget: details }) => {
    if (!details.open || runbooks.has(kind)) return;
    const text = await ask("data/runbook", { kind }).then((found) => found.text, (error) => error);
    if (typeof text === "string") runbooks.set(kind, text);
    details.lastElementChild.replaceChildren(...(typeof text === "string" ? marked(text) : [text.message]));
  } }, h("summary", {}, "Runbook"), h("div", { class: "runbook" }, marked(runbooks.get(kind) ?? "")));
}

function silenceForm(form, again) {
  const pattern = h("input", { "aria-label": "Alerts", placeholder: "stalled/*", title: "Patterns such as stalled/* or */page_views", required: true, maxlength: 500 });
  const hours = h("select", { "aria-label": "Duration" }, [[0.5, "30 minutes"], [2, "2 hours"], [8, "8 hours"], [24, "24 hours"]].map(([n, text]) => h("option", { value: n, selected: n === 2 }, text)));
  const why = h("input", { "aria-label": "Reason", placeholder: "Reason", required: true, maxlength: 500 });
  form.append(h("form", { submit: (event) => {
    event.preventDefault();
    attempt(() => act("alerts/silence", { pattern: pattern.value, hours: Number(hours.value), why: why.value }), () => { event.target.reset(); again(); });
  } }, pattern, hours, why, h("button", {}, "Silence")));
}

async function attempt(action, then) {
  try {
    await action();
    then();
  } catch (error) {
    const dialog = document.getElementById("ask");
    dialog.replaceChildren(h("p", { role: "alert" }, error.message), h("p", { class: "buttons" }, h("button", { type: "button", click: () => dialog.close() }, "OK")));
    dialog.showModal();
  }
}
