// Views: the catalogue, as the files declare it and as the database has it.
import { ask, live } from "./live.js";
import { about, ago, badge, bytes, h, layerOf, link, number, paragraphs, seen, table } from "./kit.js";

export function show(_, { shown }) {
  live(shown, () => ask("data/views"), 10, (found) => table(
    ["view", "what it holds", "reads", "run by", "state", { title: "version", number: true }, { title: "rows", number: true },
      { title: "size", number: true }, "last proof"],
    found.views.map((each) => row(each, found.as_of)), "There is no view: write one into spark_apps/views/."));
}

function row(each, now) {
  return [
    link("view", { name: each.view }, each.view),
    each.broken ? h("span", { class: "means" }, seen(each.broken)) : paragraphs(each.about)[0],
    each.reads.join(", "),
    each.application,
    h("span", { title: each.since ? `since ${each.since}` : "" }, badge(each.state), each.reason ? h("small", {}, ` ${seen(each.reason)}`) : null, layerOf(each.answer)),
    versions(each),
    each.table ? about(each.table.rows) : "",
    each.table ? bytes(each.table.bytes) : "",
    each.proof ? proof(each.proof, now) : h("span", { class: "quiet" }, "never compared"),
  ];
}

export function versions({ declared, table: made }) {
  if (!made) return declared === null ? "" : `${declared}, not made`;
  return declared === null || made.version === declared ? String(made.version) : `${made.version}, declared ${declared}`;
}

export function proof(each, now) {
  const equal = each.equal_at ? ago(each.equal_at, now) : h("span", { class: "quiet" }, "never equal");
  return h("span", {}, link("reconciliation", { id: each.id }, badge(each.verdict)), " ", each.verdict === "EQUAL" ? equal : h("small", {}, "equal ", equal),
    h("small", {}, ", ", each.certified_at ? ["certified ", ago(each.certified_at, now)] : "no certificate"));
}
