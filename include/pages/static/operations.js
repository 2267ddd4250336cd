// Operations: what was done to the platform, by whom.
import { ask, live } from "./live.js";
import { h, moment, seen, table } from "./kit.js";

export function show(given, { shown, form }) {
  let kind = given.get("kind") ?? "";
  const choice = h("select", { "aria-label": "kind", change: () => { kind = choice.value; again(); } },
    h("option", { value: "" }, "all operations"));
  form.append(choice);
  const again = live(shown, () => ask("data/operations", { kind }), 5, (found) => {
    if (choice.length === 1) choice.append(...found.kinds.map((each) => h("option", { selected: each === kind }, each)));
    return table(["at (UTC)", "operation", "of", "by", "why, or with what outcome"], found.operations.map((each) => [
      moment(each.at), each.kind, seen(each.subject), seen(each.doer), h("span", { class: "value" }, seen(each.about)),
    ]), "Nothing was done yet.");
  });
}
