// A view: where it comes from, what its columns mean, and some of its rows.
import { ask, live } from "./live.js";
import { about, badge, bytes, h, layerOf, link, moment, number, paragraphs, positions, seen, table, value } from "./kit.js";
import { proof } from "./views.js";

export function show(given, { shown, form }) {
  const name = given.get("name") ?? "";
  const rows = h("section", { id: "rows" });
  let asked = false;
  shown.after(rows);
  form.remove();
  live(shown, () => ask("data/view", { name }), 10, (found) => {
    if (!asked && found.entry.table) browse(name, found, rows);
    asked ||= Boolean(found.entry.table);
    return drawn(found);
  });
}

function drawn({ entry, columns, checks, sources, versions, as_of: now }) {
  return [
    h("h1", {}, entry.view, " ", badge(entry.state)),
    ...paragraphs(entry.about).map((each) => h("p", {}, each)),
    entry.broken ? h("p", { class: "means" }, "Its file cannot be loaded: ", seen(entry.broken)) : null,
    entry.reason ? h("p", { class: "means" }, seen(entry.reason)) : null,
    layerOf(entry.answer),
    lineage(entry, sources, now),
    h("h3", {}, "Columns"),
    table(["column", "adds up as", "type", "what it means"], columns.map((each) => [
      each.name, each.role, each.type ?? h("span", { class: "quiet" }, "not made yet"), seen(each.comment ?? ""),
    ]), "Nothing is known of its columns."),
    checks.length ? h("p", { class: "quiet" }, "Holds for every row: ", checks.map((each, i) => [i ? ", " : "", h("code", {}, each)])) : null,
    h("h3", {}, "Versions"),
    table([{ title: "version", number: true }, "made", { title: "rows", number: true }, { title: "size", number: true }, { title: "skipped records", number: true }],
      versions.map((each) => [number(each.version), moment(each.made_at), about(each.rows), bytes(each.bytes), number(each.excluded)]), "None is made yet."),
  ];
}

// From the event to those who read: each box says where its data lies.
function lineage(entry, sources, now) {
  const box = (title, ...lines) => h("div", { class: "box" }, h("strong", {}, title), lines.filter(Boolean).map((each) => h("span", {}, each)));
  const arrow = () => h("span", { class: "arrow", "aria-hidden": "true" }, "→");
  return h("div", { class: "lineage", role: "group", "aria-label": "lineage" },
    h("div", {}, sources.map((each) => box(each.event, "event", seen(each.about), `topic of ${each.partitions} partitions, kept ${each.retention}`))), arrow(),
    h("div", {}, sources.map((each) => box(each.event, "archive", "every record, for ever"))), arrow(),
    h("div", {}, box(entry.view, "view", `run by ${entry.application}`, entry.keep ? `keeps ${entry.keep}` : "keeps all rows", positions(entry.positions),
      entry.proof ? proof(entry.proof, now) : "never compared")), arrow(),
    h("div", {}, entry.relations.map((each) => box(`views.${each}`, "read by SQL"))));
}

function browse(name, { entry, columns, operators, limit }, rows) {
  const choose = (label, values, chosen) => h("select", { "aria-label": label }, values.map((each) => h("option", { value: each, selected: each === chosen }, each || "any row")));
  const relation = choose("relation", entry.relations.length ? entry.relations : [name]);
  const column = choose("column", ["", ...columns.map((each) => each.name)]);
  const operator = choose("operator", operators);
  const sought = h("input", { "aria-label": "value", placeholder: "value", maxlength: 2000 });
  const most = h("input", { "aria-label": "limit", type: "number", min: 1, max: limit, value: 50 });
  const out = h("div", { id: "answer" });
  let order = "", descending = true;

  async function answer() {
    try {
      const asked = { name, relation: relation.value, column: column.value, operator: operator.value, value: sought.value, order, descending, limit: most.value || 50 };
      const found = await ask("data/rows", asked);
      if (!column.value) relabel(found.columns);
      out.replaceChildren(answered(found));
    } catch (error) {
      out.replaceChildren(h("p", { role: "alert", class: "means" }, error.message));
    }
  }

  // Of another relation there are other columns.
  function relabel(known) {
    column.replaceChildren(...["", ...known.map((each) => each.name)].map((each) => h("option", { value: each }, each || "any row")));
  }

  function answered(found) {
    const heads = found.columns.map((each) => ({ title: head(each), number: /int|numeric|double/.test(each.type) }));
    return [
      table(heads, found.rows.map((cells) => cells.map(value)), "No row is like that."),
      h("p", { class: "quiet" }, `${number(found.rows.length)} rows${found.more ? ", and there are more" : ""}, as of ${moment(found.as_of)} UTC.`),
    ].reduce((all, each) => (all.append(each), all), h("div", {}));
  }

  function head({ name: title, type }) {
    const mark = title === order ? (descending ? " ↓" : " ↑") : "";
    return h("button", { type: "button", class: "head", title: `${type}; order by it`, click: () => {
      descending = title === order ? !descending : true;
      order = title;
      answer();
    } }, title + mark);
  }

  relation.addEventListener("change", () => { order = ""; column.value = ""; answer(); });
  rows.replaceChildren(h("h3", {}, "Rows"),
    h("form", { submit: (event) => { event.preventDefault(); answer(); } }, relation, column, operator, sought, most, h("button", {}, "show")), out);
  answer();
}
