// Views: the catalogue, with what each file declares and what the database contains.
import { ask, live } from "./live.js";
import { about, ago, badge, bytes, h, layerOf, link, moment, number, paragraphs, seen, table } from "./kit.js";

export function show(_, { shown }) {
  live(shown, () => ask("data/views"), 10, (found) => table(
    ["View", "Description", "Sources", "Application", "State", { title: "Version", number: true }, { title: "Rows", number: true },
      { title: "Size", number: true }, "Last comparison"],
    found.views.map((each) => row(each, found.as_of)), "No views yet. Add one to spark_apps/views/."));
}

function row(each, now) {
  return [
    link("view", { name: each.view }, each.view),
    each.broken ? h("span", { class: "means" }, seen(each.broken)) : paragraphs(each.about)[0],
    each.reads.join(", "),
    each.application,
    h("span", { title: each.since ? `Since ${moment(each.since)} UTC` : null }, badge(each.state), each.reason ? h("small", {}, ` ${seen(each.reason)}`) : null, layerOf(each.answer)),
    versions(each),
    each.table ? about(each.table.rows) : "",
    each.table ? bytes(each.table.bytes) : "",
    each.proof ? proof(each.proof, now) : h("span", { class: "quiet" }, "Never compared"),
  ];
}

export function versions({ declared, table: made }) {
  if (!made) return declared === null ? "" : `${declared} (not created)`;
  return declared === null || made.version === declared ? String(made.version) : `${made.version} (file declares ${declared})`;
}

export function proof(each, now) {
  const equal = each.equal_at ? ago(each.equal_at, now) : h("span", { class: "quiet" }, "never");
  return h("span", {}, link("reconciliation", { id: each.id }, badge(each.verdict)), " ", each.verdict === "EQUAL" ? equal : h("small", {}, "last equal: ", equal),
    h("small", {}, ", ", each.certified_at ? ["certified ", ago(each.certified_at, now)] : "no certificate"));
}
