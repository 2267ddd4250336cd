// The rows of a view: conditions, order, columns and paging, with the query in the page's address.
import { keepInAddress, pairs } from "./address.js";
import { ask, latest } from "./live.js";
import { count, h, link, moment, table, value } from "./kit.js";
import { choose, pager, sortHead } from "./list.js";
import { recordsIn } from "./records.js";
import { reasonFor } from "./rights.js";

// The text of a condition, as `truelog query --where` reads it.
const WRITTEN = /^([^\s=<>]+)(?:(<>|<=|>=|=|<|>| contains )([\s\S]*)| (is NULL|is not NULL))$/;
const ALONE = ["is NULL", "is not NULL"];
const BETWEEN = "between";

export function written(column, operator, operand = "") {
  if (ALONE.includes(operator)) return `${column} ${operator}`;
  return operator === "contains" ? `${column} contains ${operand}` : column + operator + operand;
}

// The conditions that select one row by its whole key; null if a value of the key has no text.
export function keyConditions(key, row) {
  if (!key.length || key.some((column) => row[column] !== null && typeof row[column] === "object")) return null;
  return key.map((
    column,
  ) => (row[column] === null || row[column] === undefined
    ? written(column, "is NULL")
    : written(column, "=", row[column]))
  );
}

export function browser(given, { entry, columns, operators, limit, may_export: mayExport }, shown) {
  const name = entry.view;
  const state = {
    name,
    relation: given.get("relation") ?? "",
    where: given.getAll("where"),
    columns: given.get("columns") ?? "",
    order: given.get("order") ?? "",
    descending: given.get("descending") !== "false",
    limit: Number(given.get("limit")) || 50,
    skip: Number(given.get("skip")) || 0,
  };
  const key = columns.filter((each) => each.role === "key").map((each) => each.name);
  const relations = entry.relations.length ? entry.relations : [name];
  const relation = choose("Relation", relations, state.relation || name, {
    change: () =>
      change(
        { relation: relation.value === name ? "" : relation.value, where: [], columns: "", order: "", skip: 0 },
        true,
      ),
  });
  const most = h("input", { "aria-label": "Rows per page", type: "number", min: 1, max: limit, value: state.limit });
  const filters = h("div", { class: "filters", role: "group", "aria-label": "Filters" });
  const chosen = h("details", { id: "columns" });
  const out = h("div", { id: "answer", "aria-live": "polite" });
  const read = latest(() => ask("data/rows", pairs(state)));
  let known = columns.map((each) => each.name);

  async function change(changes, redraw = false) {
    Object.assign(state, changes);
    keepInAddress({
      ...state,
      descending: state.order ? state.descending : "",
      limit: state.limit === 50 ? "" : state.limit,
      skip: state.skip || "",
    });
    if (redraw) filters.replaceChildren(...state.where.map(filter));
    try {
      const found = await read();
      offer(found.known);
      out.replaceChildren(...answered(found));
    } catch (error) {
      out.replaceChildren(h("p", { role: "alert", class: "means" }, error.message));
    }
  }

  // One condition. `between` is two conditions.
  function filter(text = "") {
    const [, column = known[0], symbol = "=", operand = "", alone] = WRITTEN.exec(text) ?? [];
    const values = h("span", {});
    const field = (label, given) =>
      h("input", { "aria-label": label, placeholder: label, maxlength: 2000, value: given });
    const operator = choose("Operator", [...operators, BETWEEN], alone ?? symbol.trim(), {
      change: () => ask_values(),
    });
    const ask_values = (first = values.querySelector("input")?.value ?? "") =>
      values.replaceChildren(
        ...(ALONE.includes(operator.value)
          ? []
          : operator.value === BETWEEN
          ? [field("From", first), field("To", "")]
          : [field("Value", first)]),
      );
    ask_values(operand);
    const row = h(
      "span",
      { class: "filter" },
      columnChoice(column),
      operator,
      values,
      h("button", { type: "button", "aria-label": "Remove this filter", click: () => row.remove() }, "×"),
    );
    return row;
  }

  // The column of a condition stays, also while the columns of its relation are unknown.
  function columnChoice(column) {
    return choose("Column", known.includes(column) ? known : [column, ...known], column);
  }

  function stated() {
    return [...filters.children].flatMap((each) => {
      const [column, operator] = [...each.querySelectorAll("select")].map((one) => one.value);
      const operands = [...each.querySelectorAll("input")].map((one) => one.value);
      if (operator !== BETWEEN) return [written(column, operator, operands[0])];
      return [written(column, ">=", operands[0]), written(column, "<=", operands[1])];
    });
  }

  // Each relation has its own columns.
  function offer(names) {
    if (chosen.hasChildNodes() && names.join() === known.join()) return;
    known = names;
    for (const each of filters.querySelectorAll("[aria-label=Column]")) each.replaceWith(columnChoice(each.value));
    const boxes = names.map((each) =>
      h("input", { type: "checkbox", value: each, checked: !state.columns || state.columns.split(",").includes(each) })
    );
    chosen.replaceChildren(
      h("summary", {}, "Columns"),
      ...boxes.map((box, i) => h("label", {}, box, names[i])),
      h("button", {
        type: "button",
        click: () => {
          const some = boxes.filter((box) => box.checked).map((box) => box.value);
          change({
            columns: some.length === names.length ? "" : some.join(","),
            order: some.includes(state.order) ? state.order : "",
            skip: 0,
          });
        },
      }, "Apply"),
    );
  }

  function answered(found) {
    const shownBy = { order: found.order, descending: state.descending };
    const heads = found.columns.map((each) =>
      sortHead(each.name, each.name, shownBy, (by) => change({ ...by, skip: 0 }), {
        number: /^(smallint|integer|bigint|numeric|real|double)/.test(each.type),
        hint: `Type ${each.type}. Sort by this column.`,
      })
    );
    const cut = new Set(found.cut?.map(String)); // the row and the column of each value that is longer
    const rows = found.rows.map((cells) => Object.fromEntries(found.columns.map((each, i) => [each.name, cells[i]])));
    const hasWholeKey = (i) => found.columns.every((each, n) => !key.includes(each.name) || !cut.has(`${i},${n}`));
    const records = rows.map(recordsIn),
      named = records.some((each) => each.length),
      explainable = rows.length && isExplained(rows[0]);
    return [
      table(
        [...heads, ...(named ? ["Record"] : []), ...(explainable ? [""] : [])],
        found.rows.map((
          cells,
          i,
        ) => [
          ...cells.map((cell, n) => value(cut.has(`${i},${n}`) ? `${cell}…` : cell)),
          ...(named ? [records[i]] : []),
          ...(explainable ? [hasWholeKey(i) ? explainLink(rows[i]) : null] : []),
        ]),
        "No rows match.",
      ),
      pager(
        { skip: found.skip, limit: state.limit, shown: found.rows.length, more: found.more },
        (skip) => change({ skip }),
      ),
      h(
        "p",
        { class: "quiet" },
        `${count(found.rows.length, "row")}. As of ${moment(found.as_of)} UTC.`,
        cut.size ? " A value that ends with … is longer. A saved file has the whole value." : null,
        mayExport ? save() : [" ", reasonFor("compare", false, "Save and explain")],
      ),
    ];
  }

  // Rows of the view itself that show their whole key.
  function isExplained(row) {
    return mayExport && !entry.batch_only && ["", name].includes(state.relation) && key.length &&
      key.every((column) => column in row);
  }

  function explainLink(row) {
    return link("explain", pairs({ view: name, where: keyConditions(key, row) }), "Explain");
  }

  function save() {
    const query = pairs({ ...state, skip: "", limit: "", descending: state.order ? state.descending : "" });
    return [
      " Save all that match (at most 100,000 rows): ",
      ["csv", "json", "parquet"].map((
        form,
      ) => [
        link(`export/rows.${form}`, query, form === "parquet" ? "Parquet" : form.toUpperCase(), { download: true }),
        " ",
      ]),
    ];
  }

  shown.replaceChildren(
    h("h2", {}, "Rows"),
    h(
      "form",
      {
        "aria-label": "Rows",
        submit: (event) => {
          event.preventDefault();
          change({ where: stated(), limit: Math.min(limit, Number(most.value) || 50), skip: 0 });
        },
      },
      relation,
      filters,
      h("button", { type: "button", click: () => filters.append(filter()) }, "Add filter"),
      most,
      h("button", {}, "Show"),
      chosen,
    ),
    out,
  );
  offer(known);
  change({}, true);
}
