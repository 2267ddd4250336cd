// A reconciliation: where both tables stood, the rows that differed with both values, and what a repair did.
import { ask, live } from "./live.js";
import { badge, h, link, moment, number, positions, seen, table, value } from "./kit.js";
import { judged } from "./reconciliations.js";

export function show(given, { shown }) {
  const id = given.get("id") ?? "";
  live(shown, () => ask("data/reconciliation", { id }), 30, (found) => drawn(id, found));
}

function drawn(id, { reconciliation: r, certificate, columns, positions: at, causes, sample, repairs }) {
  return [
    h("h1", {}, link("view", { name: r.view }, r.view), ` version ${r.version ?? "?"} `, badge(r.verdict)),
    r.reason ? h("p", { class: "means" }, seen(r.reason)) : null,
    ...causes.map((each) => h("p", { class: "means" }, seen(`${each.cause}, ${number(each.rows)} rows: ${each.about}`))),
    h("dl", {}, [
      ["finished", `${moment(r.finished_at)} UTC`], ["rows", number(r.row_count)],
      ["missing in the streamed table", number(r.missing)], ["extra in it", number(r.extra)], ["different", number(r.different)],
      ["repaired before", number(r.repaired)], ["rebuilt from", r.from_raw ? "raw bytes" : "partials and typed columns"],
      ["judged", judged(r)], ["asked by", seen(r.run ?? "the command line")], ["at positions", positions(at)],
      ["certificate", certificate ? h("span", { class: "value" }, certificate) : h("span", { class: "quiet" }, "none")],
    ].map(([name, said]) => h("div", {}, h("dt", {}, name), h("dd", {}, said)))),
    sample.length ? h("h3", {}, "Rows that differ") : null,
    sample.length ? h("p", { class: "buttons" }, ["csv", "json"].map((form) => link(`export/differing.${form}`, { id }, `save all as ${form.toUpperCase()}`, { download: true }))) : null,
    sample.length ? sides(columns, sample, "streamed", "rebuilt") : null,
    repairs.length ? h("h3", {}, "Rows that were repaired") : null,
    repairs.length ? sides(columns, repairs, "before", "after") : null,
  ];
}

// Both values stand in the cell where they differ; a row that one side does not have is there once, and says so.
function sides(columns, rows, left, right) {
  return table(["", ...columns], rows.map((each) => {
    const [a, b] = [each[left], each[right]];
    const which = a === null ? `only ${right}` : b === null ? `only ${left}` : "both";
    return [h("small", {}, each.cause ? `${which}, ${each.cause}` : which), ...columns.map((column) => {
      if (a === null || b === null) return value((a ?? b)[column]);
      return JSON.stringify(a[column]) === JSON.stringify(b[column]) ? value(a[column]) : h("span", { class: "pair" },
        h("span", {}, h("small", {}, `${left} `), value(a[column])), h("span", {}, h("small", {}, `${right} `), value(b[column])));
    })];
  }));
}
