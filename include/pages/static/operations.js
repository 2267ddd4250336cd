// Operations: what was done to the platform, when, and by whom.
import { keepInAddress } from "./address.js";
import { ask, live } from "./live.js";
import { h, moment, seen, sentence, startReason, table } from "./kit.js";
import { brief, toTarget } from "./links.js";

const LABELS = {
  launch: "Start of a process",
  unsilence: "End silence",
  key_add: "Add API key",
  key_revoke: "Revoke API key",
  rejudge: "Judge again",
};
const SPANS = [["", "All times"], [1, "1 hour"], [24, "1 day"], [168, "7 days"], [744, "31 days"]];

export function show(given, { shown, form }) {
  const query = { kind: given.get("kind") ?? "", subject: given.get("subject") ?? "", hours: given.get("hours") ?? "" };
  const choose = (name, chosen) => {
    query[name] = chosen;
    keepInAddress(query);
    again();
  };
  const choice = h(
    "select",
    { "aria-label": "Operation", change: () => choose("kind", choice.value) },
    h("option", { value: "" }, "All operations"),
  );
  const subject = h("input", {
    type: "search",
    "aria-label": "Target",
    placeholder: "Target",
    value: query.subject,
    input: () => choose("subject", subject.value),
  });
  const spans = h(
    "select",
    { "aria-label": "Time range", change: () => choose("hours", spans.value) },
    SPANS.map(([hours, text]) => h("option", { value: hours, selected: String(hours) === query.hours }, text)),
  );
  form.append(choice, subject, spans);
  const chosen = () => Object.fromEntries(Object.entries(query).filter(([, each]) => each));
  const again = live(shown, () => ask("data/operations", chosen()), 5, (found) => {
    if (choice.length === 1) {
      choice.append(
        ...found.kinds.map((each) => h("option", { value: each, selected: each === query.kind }, operation(each))),
      );
    }
    return table(
      [{ title: "Time (UTC)", sort: "descending" }, "Operation", "Target", "Started by", "Details"],
      found.operations.map((each) => [
        moment(each.at),
        operation(each.kind),
        toTarget(each.kind, each.subject),
        each.doer === "airflow" ? "Airflow" : seen(each.doer),
        h("span", { class: "value" }, details(each)),
      ]),
      Object.keys(chosen()).length ? "No operations match." : "No operations yet.",
      { caption: "The latest operations, newest first", keys: found.operations.map((each) => each.id) },
    );
  });
}

export function operation(kind) {
  return LABELS[kind] ?? sentence(kind);
}

// A launch's text begins with the reason. If there was a request, the request follows a colon.
export function details({ kind, about }) {
  if (kind !== "launch") return brief(about);
  const [reason, ...request] = about.split(": ");
  return [sentence(startReason(reason)), ...request.map(brief)].join(": ");
}
