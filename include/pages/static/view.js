// One view: its lineage, columns and versions, and a browser for its rows.
import { ask, live } from "./live.js";
import { about, badge, bytes, count, h, layerOf, link, moment, number, paragraphs, positions, seen, sentence, table, value } from "./kit.js";
import { proof } from "./views.js";

export function show(given, { shown, form }) {
  const name = given.get("name") ?? "";
  const rows = h("section", { id: "rows" });
  let browsing = false;
  shown.after(rows);
  form.remove();
  live(shown, () => ask("data/view", { name }), 10, (found) => {
    if (!browsing && found.entry.table) browse(name, found, rows);
    browsing ||= Boolean(found.entry.table);
    return drawn(found);
  });
}

function drawn({ entry, columns, checks, sources, versions, as_of: now }) {
  return [
    h("h1", {}, entry.view, " ", badge(entry.state)),
    ...paragraphs(entry.about).map((each) => h("p", {}, each)),
    entry.broken ? h("p", { class: "means" }, seen(entry.broken)) : null,
    entry.reason ? h("p", { class: "means" }, seen(sentence(entry.reason))) : null,
    layerOf(entry.answer),
    sources.length ? lineage(entry, sources, now) : null,
    h("h3", {}, "Columns"),
    table(["Column", "Aggregation", "Type", "Description"], columns.map((each) => [
      each.name, sentence(each.role), each.type ?? h("span", { class: "quiet" }, "Not created yet"), seen(each.comment ?? ""),
    ]), "The columns are unknown."),
    checks.length ? h("p", { class: "quiet" }, "Checks on every row: ", checks.map((each, i) => [i ? ", " : "", h("code", {}, each)])) : null,
    h("h3", {}, "Versions"),
    table([{ title: "Version", number: true }, "Created (UTC)", { title: "Rows", number: true }, { title: "Size", number: true }, { title: "Skipped records", number: true }],
      versions.map((each) => [number(each.version), moment(each.made_at), about(each.rows), bytes(each.bytes), number(each.excluded)]), "No version has been created yet."),
  ];
}

// From the event to the readers of the view. Each box shows where the data is stored.
function lineage(entry, sources, now) {
  const box = (title, ...lines) => h("div", { class: "box" }, h("strong", {}, title), lines.filter(Boolean).map((each) => h("span", {}, each)));
  const arrow = () => h("span", { class: "arrow", "aria-hidden": "true" }, "→");
  return h("div", { class: "lineage", role: "group", "aria-label": "Lineage" },
    h("div", {}, sources.map((each) => box(each.event, "Event", seen(each.about), `Topic: ${count(each.partitions, "partition")}, retention ${each.retention}`))), arrow(),
    h("div", {}, sources.map((each) => box(each.event, "Archive", "Every record, kept forever"))), arrow(),
    h("div", {}, box(entry.view, "View", `Application: ${entry.application}`, entry.keep ? `Keeps rows for ${entry.keep}` : "Keeps all rows", positions(entry.positions),
      entry.proof ? proof(entry.proof, now) : "Never compared")), arrow(),
    h("div", {}, entry.relations.map((each) => box(`views.${each}`, "SQL view for readers"))));
}

function browse(name, { entry, columns, operators, limit }, rows) {
  const choose = (label, values, chosen) => h("select", { "aria-label": label }, values.map((each) => h("option", { value: each, selected: each === chosen }, each || "No filter")));
  const relation = choose("Relation", entry.relations.length ? entry.relations : [name]);
  const column = choose("Column", ["", ...columns.map((each) => each.name)]);
  const operator = choose("Operator", operators);
  const operand = h("input", { "aria-label": "Value", placeholder: "Value", maxlength: 2000 });
  const most = h("input", { "aria-label": "Limit", type: "number", min: 1, max: limit, value: 50 });
  const out = h("div", { id: "answer" });
  let order = "", descending = true;

  async function answer() {
    try {
      const query = { name, relation: relation.value, column: column.value, operator: operator.value, value: operand.value, order, descending, limit: most.value || 50 };
      const found = await ask("data/rows", query);
      if (!column.value) offerColumns(found.columns);
      out.replaceChildren(answered(found));
    } catch (error) {
      out.replaceChildren(h("p", { role: "alert", class: "means" }, error.message));
    }
  }

  // Each relation has its own columns.
  function offerColumns(known) {
    column.replaceChildren(...["", ...known.map((each) => each.name)].map((each) => h("option", { value: each }, each || "No filter")));
  }

  function answered(found) {
    const heads = found.columns.map((each) => ({ title: head(each), sort: each.name === order ? (descending ? "descending" : "ascending") : null, number: /int|numeric|double/.test(each.type) }));
    return [
      table(heads, found.rows.map((cells) => cells.map(value)), "No rows match."),
      h("p", { class: "quiet" }, `${found.more ? "First " : ""}${count(found.rows.length, "row")}${found.more ? "; more rows match" : ""}. As of ${moment(found.as_of)} UTC.`),
    ].reduce((all, each) => (all.append(each), all), h("div", {}));
  }

  function head({ name: title, type }) {
    const mark = title === order ? (descending ? " ↓" : " ↑") : "";
    return h("button", { type: "button", class: "head", title: `Type ${type}. Sort by this column.`, click: () => {
      descending = title === order ? !descending : true;
      order = title;
      answer();
    } }, title + mark);
  }

  relation.addEventListener("change", () => { order = ""; column.value = ""; answer(); });
  rows.replaceChildren(h("h3", {}, "Rows"),
    h("form", { submit: (event) => { event.preventDefault(); answer(); } }, relation, column, operator, operand, most, h("button", {}, "Show")), out);
  answer();
}
