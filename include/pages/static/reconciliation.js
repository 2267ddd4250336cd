// One reconciliation: its positions, the differing rows with both values, and the rows that a repair changed.
import { ask, live } from "./live.js";
import { badge, count, h, link, moment, number, positions, seen, sentence, table, value } from "./kit.js";
import { validation } from "./reconciliations.js";

export function show(given, { shown }) {
  const id = given.get("id") ?? "";
  live(shown, () => ask("data/reconciliation", { id }), 30, (found) => drawn(id, found));
}

const origin = (r) => r.from_raw ? "Raw bytes" : r.base ? h("span", { class: "value" }, `Records since certificate ${r.base}`) : "Partials and typed columns";

function drawn(id, { reconciliation: r, certificate, columns, positions: at, causes, sample, repairs }) {
  return [
    h("h1", {}, link("view", { name: r.view }, r.view), `, version ${r.version ?? "unknown"} `, badge(r.verdict)),
    r.reason ? h("p", { class: "means" }, seen(r.reason)) : null,
    ...causes.map((each) => h("p", { class: "means" }, seen(`${sentence(each.cause)} (${count(each.rows, "row")}): ${each.about}`))),
    h("dl", {}, [
      ["Finished", `${moment(r.finished_at)} UTC`], ["Rows", number(r.row_count)],
      ["Missing rows", number(r.missing)], ["Extra rows", number(r.extra)], ["Different rows", number(r.different)],
      ["Repaired before this check", number(r.repaired)], ["Rebuilt from", origin(r)],
      ["Validation", validation(r)], ["Started by", seen(r.run ?? "Command line")], ["Positions", positions(at)],
      ["Certificate", certificate ? h("span", { class: "value" }, certificate) : h("span", { class: "quiet" }, "None")],
    ].map(([name, content]) => h("div", {}, h("dt", {}, name), h("dd", {}, content)))),
    sample.length ? h("h3", {}, "Differing rows") : null,
    sample.length ? h("p", { class: "buttons" }, ["csv", "json"].map((form) => link(`export/differing.${form}`, { id }, `Save all as ${form.toUpperCase()}`, { download: true }))) : null,
    sample.length ? sides(columns, sample, ["streamed", "rebuilt"], ["Only in the stream", "Only in the rebuild", "Values differ"]) : null,
    repairs.length ? h("h3", {}, "Repaired rows") : null,
    repairs.length ? sides(columns, repairs, ["before", "after"], ["Removed", "Added", "Changed"]) : null,
  ];
}

// A cell whose values differ shows both values. A row that exists on only one side is shown once and labelled.
function sides(columns, rows, [left, right], [onlyLeft, onlyRight, both]) {
  return table(["Difference", ...columns], rows.map((each) => {
    const [a, b] = [each[left], each[right]];
    const which = (each.side ? `${each.side}: ` : "") + (a === null ? onlyRight : b === null ? onlyLeft : both);
    return [h("small", {}, each.cause ? `${which} (${each.cause})` : which), ...columns.map((column) => {
      if (a === null || b === null) return value((a ?? b)[column]);
      return JSON.stringify(a[column]) === JSON.stringify(b[column]) ? value(a[column]) : h("span", { class: "pair" },
        h("span", {}, h("small", {}, `${left}: `), value(a[column])), h("span", {}, h("small", {}, `${right}: `), value(b[column])));
    })];
  }));
}
