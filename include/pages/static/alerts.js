// Alerts: what is wrong now, what to do first; who works on it, and what is told to nobody.
import { act, ask, live } from "./live.js";
import { ago, h, marked, moment, seen, since, table } from "./kit.js";

const runbooks = new Map(); // by kind: they do not change while a page is open

export function show(_, { shown, form }) {
  const again = live(shown, () => ask("data/alerts"), 3, (found) => {
    if (found.may_handle && !form.hasChildNodes()) maker(form, () => again());
    return drawn(found, () => again());
  });
}

function drawn({ open, resolved, silences, neglected, may_handle: may, as_of: now }, again) {
  return [
    neglected.length ? h("p", { class: "means", role: "alert" }, `Nobody looks at: ${neglected.join(", ")}. That nothing is shown of them says nothing: is the service lag READY?`) : null,
    h("h1", {}, open.length ? `${open.length} open` : "No alert is open"),
    open.map((each) => incident(each, now, may, again)),
    h("h3", {}, "Silences"),
    table(["keys", "until (UTC)", "by", "why", ""], silences.map((each) => [
      h("code", {}, seen(each.pattern)), moment(each.until), seen(each.by), seen(each.why),
      may ? h("button", { type: "button", click: () => tried(() => act("alerts/unsilence", { id: each.id }), again) }, "end it") : "",
    ]), "Nothing is silenced."),
    h("h3", {}, "Resolved"),
    table(["alert", "opened (UTC)", "lasted", "acknowledged by", "cause"], resolved.filter((each) => each.opened_at).map((each) => [
      seen(each.key), moment(each.opened_at), since(each.opened_at, each.resolved_at), seen(each.acknowledged_by ?? ""), h("small", {}, seen(each.cause)),
    ]), "Nothing was resolved yet."),
  ];
}

function incident(each, now, may, again) {
  const critical = each.severity === "critical";
  return h("article", { "data-alert": each.key },
    h("header", {},
      h("h2", {}, seen(each.key), " ", h("span", { class: `badge ${critical ? "bad" : "fair"}` }, each.severity)),
      h("p", { class: "buttons" }, each.acknowledged_at
        ? h("span", { class: "quiet" }, `${seen(each.acknowledged_by ?? "")} works on it, since `, ago(each.acknowledged_at, now))
        : may ? h("button", { type: "button", "data-act": "acknowledge", click: () => tried(() => act("alerts/acknowledge", { key: each.key }), again) }, "acknowledge") : "nobody has acknowledged it")),
    h("p", {}, seen(each.means), ", since ", ago(each.opened_at, now), each.gone_at ? "; gone now, resolved soon" : ""),
    h("p", { class: "value" }, seen(each.cause)),
    h("p", {}, h("strong", {}, "First: "), marked(each.first)),
    runbook(each.kind, each.key));
}

function runbook(kind, key) {
  const text = h("div", { class: "runbook" }, marked(runbooks.get(kind) ?? ""));
  return h("details", { id: `runbook-${key}`, toggle: async (event) => {
    if (!event.target.open || runbooks.has(kind)) return;
    try {
      runbooks.set(kind, (await ask("data/runbook", { kind })).text);
    } catch (error) {
      text.replaceChildren(error.message);
      return;
    }
    text.replaceChildren(...marked(runbooks.get(kind)));
  } }, h("summary", {}, "runbook"), text);
}

function maker(form, again) {
  const pattern = h("input", { "aria-label": "keys", placeholder: "down/* or */page_views", required: true, maxlength: 500 });
  const hours = h("select", { "aria-label": "for" }, [[0.5, "half an hour"], [2, "2 hours"], [8, "8 hours"], [24, "a day"]].map(([n, text]) => h("option", { value: n, selected: n === 2 }, text)));
  const why = h("input", { "aria-label": "why", placeholder: "why", required: true, maxlength: 500 });
  form.append(h("form", { submit: (event) => {
    event.preventDefault();
    tried(() => act("alerts/silence", { pattern: pattern.value, hours: Number(hours.value), why: why.value }), () => { event.target.reset(); again(); });
  } }, pattern, hours, why, h("button", {}, "silence")));
}

async function tried(doing, then) {
  try {
    await doing();
    then();
  } catch (error) {
    const dialog = document.getElementById("ask");
    dialog.replaceChildren(h("p", { role: "alert" }, error.message), h("p", { class: "buttons" }, h("button", { type: "button", click: () => dialog.close() }, "I see")));
    dialog.showModal();
  }
}
