// Operations: what was done to the platform, when, and by whom.
import { ask, live } from "./live.js";
import { h, moment, seen, sentence, startReason, table } from "./kit.js";

const LABELS = { unsilence: "End silence", key_add: "Add API key", key_revoke: "Revoke API key" };

export function show(given, { shown, form }) {
  let kind = given.get("kind") ?? "";
  const choice = h("select", { "aria-label": "Operation", change: () => { kind = choice.value; again(); } },
    h("option", { value: "" }, "All operations"));
  form.append(choice);
  const again = live(shown, () => ask("data/operations", { kind }), 5, (found) => {
    if (choice.length === 1) choice.append(...found.kinds.map((each) => h("option", { value: each, selected: each === kind }, label(each))));
    return table(["Time (UTC)", "Operation", "Target", "Started by", "Details"], found.operations.map((each) => [
      moment(each.at), label(each.kind), seen(each.subject), each.doer === "airflow" ? "Airflow" : seen(each.doer), h("span", { class: "value" }, details(each)),
    ]), kind ? "No operations of this kind." : "No operations yet.");
  });
}

function label(kind) {
  return LABELS[kind] ?? sentence(kind);
}

// A launch's text begins with the reason. If there was a request, the request follows a colon.
function details({ kind, about }) {
  if (kind !== "launch") return seen(about);
  const [reason, ...request] = about.split(": ");
  return [sentence(startReason(reason)), ...request.map(seen)].join(": ");
}
