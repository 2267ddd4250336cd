// One reconciliation: its positions, the differing rows with both values, and the rows that a repair changed.
import { ask, live } from "./live.js";
import { compareButtons } from "./compare.js";
import { badge, count, h, link, moment, number, positions, seen, sentence, table, value } from "./kit.js";
import { runLink, validation } from "./reconciliations.js";
import { recordsIn, withRecords } from "./records.js";
import { keyConditions } from "./rows.js";
import { reasonFor } from "./rights.js";

export function show(given, { shown, form }) {
  const id = given.get("id") ?? "";
  live(shown, () => ask("data/reconciliation", { id }), 30, (found) => {
    if (!form.hasChildNodes()) form.append(compareButtons(found.reconciliation.view, found.may_compare));
    return drawn(id, found);
  });
}

const origin = (r) =>
  r.from_raw
    ? "Raw bytes"
    : r.base
    ? h("span", { class: "value" }, `Records since certificate ${r.base}`)
    : "Partials and typed columns";

function drawn(
  id,
  {
    reconciliation: r,
    certificate,
    columns,
    positions: at,
    causes,
    sample,
    repairs,
    key,
    rules,
    may_export: mayExport,
  },
) {
  const rowOf = (row) => rowLink(r.view, key, row);
  return [
    h("h1", {}, link("view", { name: r.view }, r.view), `, version ${r.version ?? "unknown"} `, badge(r.verdict)),
    r.reason ? h("p", { class: "means" }, withRecords(r.reason)) : null,
    ...causes.map((each) =>
      h(
        "p",
        { class: "means", "data-cause": each.cause },
        withRecords(`${sentence(each.cause)} (${count(each.rows, "row")}): ${each.about}`),
      )
    ),
    h(
      "dl",
      {},
      [
        ["Finished", `${moment(r.finished_at)} UTC`],
        ["Rows", number(r.row_count)],
        ["Missing rows", number(r.missing)],
        ["Extra rows", number(r.extra)],
        ["Different rows", number(r.different)],
        ["Repaired before this check", number(r.repaired)],
        ["Rebuilt from", origin(r)],
        ["Validation", validation(r)],
        ["Started by", r.run ? runLink(r.run) : "Command line"],
        ["Positions", positions(at)],
        [
          "Certificate",
          certificate ? link("certificates", { view: r.view }, certificate) : h("span", { class: "quiet" }, "None"),
        ],
      ].map(([name, content]) => h("div", {}, h("dt", {}, name), h("dd", {}, content))),
    ),
    rules.length ? h("h2", {}, "Rules") : null,
    rules.length
      ? table(["Rule", "Observed", "Result"], rules.map(rule), "", { keys: rules.map((each) => each.rule) })
      : null,
    sample.length ? h("h2", {}, "Differing rows") : null,
    sample.length && mayExport
      ? h(
        "p",
        { class: "buttons" },
        ["csv", "json"].map((form) =>
          link(`export/differing.${form}`, { id }, `Save all as ${form.toUpperCase()}`, { download: true })
        ),
      )
      : sample.length
      ? h("p", {}, reasonFor("compare", false, "Save"))
      : null,
    sample.length
      ? sides(
        columns,
        sample,
        ["streamed", "rebuilt"],
        ["Only in the stream", "Only in the rebuild", "Values differ"],
        rowOf,
      )
      : null,
    repairs.length ? h("h2", {}, "Repaired rows") : null,
    repairs.length ? sides(columns, repairs, ["before", "after"], ["Removed", "Added", "Changed"], rowOf) : null,
  ];
}

function rule({ rule: text, observed, success }) {
  return [
    seen(sentence(text)),
    observed ? seen(observed) : h("span", { class: "quiet" }, "Not checked"),
    badge(success ? "PASSED" : "FAILED"),
  ];
}

// The row as it is now, addressed by its whole key.
function rowLink(name, key, row) {
  const where = keyConditions(key, row);
  return where && link("view", [["name", name], ...where.map((each) => ["where", each])], "Row");
}

// A cell whose values differ shows both values. A row that exists on only one side is shown once and labelled.
function sides(columns, rows, [left, right], [onlyLeft, onlyRight, both], rowOf) {
  return table(
    ["Difference", ...columns],
    rows.map((each) => {
      const [a, b] = [each[left], each[right]];
      const which = (each.side ? `${each.side}: ` : "") + (a === null ? onlyRight : b === null ? onlyLeft : both);
      return [
        h(
          "small",
          {},
          each.cause ? `${which} (${each.cause})` : which,
          " ",
          each.side ? null : rowOf(a ?? b),
          recordsIn(b ?? a).map((one) => [" ", one]),
        ),
        ...columns.map((column) => {
          if (a === null || b === null) return value((a ?? b)[column]);
          return a[column] === b[column] ? value(a[column]) : h(
            "span",
            { class: "pair" },
            h("span", {}, h("small", {}, `${left}: `), value(a[column])),
            h("span", {}, h("small", {}, `${right}: `), value(b[column])),
          );
        }),
      ];
    }),
  );
}
