// One view: its lineage, columns and versions, what to do about it, and a browser for its rows.
import { compareButtons } from "./compare.js";
import { ask, live } from "./live.js";
import { ago, badge, count, h, layerOf, link, paragraphs, positions, seen, sentence, table } from "./kit.js";
import { browser } from "./rows.js";
import { facts } from "./view-facts.js";
import { viewHistory } from "./view-history.js";
import { versionTable } from "./view-versions.js";
import { proof } from "./views.js";

// The facts have a badge for the freshness and one for the correctness. A third one beside the name would contradict them.
const FINE = ["UP_TO_DATE", "BATCH_ONLY"];

export function show(given, { shown, form }) {
  const name = given.get("name") ?? "";
  const rows = h("section", { id: "rows", "aria-label": "Rows" });
  let browsing = false;
  shown.after(rows);
  const again = live(shown, () => ask("data/view", { name }), 10, (found) => {
    if (!browsing && found.entry.table) browser(given, found, rows);
    browsing ||= Boolean(found.entry.table);
    if (found.entry.table && !form.hasChildNodes()) form.append(compareButtons(name, found.may_compare));
    return drawn(found, () => again());
  });
}

function drawn(found, again) {
  const { entry, columns, checks, sources, positions: at, alerts, costs, history, as_of: now } = found;
  return [
    h("h1", {}, entry.view, " ", FINE.includes(entry.state) ? null : badge(entry.state)),
    links(entry),
    facts(found),
    ...paragraphs(entry.about).map((each) => h("p", {}, each)),
    entry.broken ? h("p", { class: "means" }, seen(entry.broken)) : null,
    entry.reason ? h("p", { class: "means" }, seen(sentence(entry.reason))) : null,
    ...alerts.map((each) =>
      h(
        "p",
        { class: "means", "data-alert": each.key },
        badge(each.severity.toUpperCase()),
        " ",
        link("alerts", { match: each.key }, each.title),
        `: ${seen(each.cause)} (`,
        ago(each.found_at, now),
        ")",
      )
    ),
    layerOf(entry.answer),
    sources.length ? lineage(entry, sources, at, now) : null,
    h("h2", {}, "Columns"),
    table(
      ["Column", "Aggregation", "Type", "Description"],
      columns.map((each) => [
        each.name,
        sentence(each.role),
        each.type ?? h("span", { class: "quiet" }, "Not created yet"),
        seen(each.comment ?? ""),
      ]),
      "The columns are unknown.",
      { keys: columns.map((each) => each.name) },
    ),
    checks.length
      ? h(
        "p",
        { class: "quiet" },
        "Checks on every row: ",
        checks.map((each, i) => [i ? ", " : "", h("code", {}, each)]),
      )
      : null,
    costs ? h("p", { class: "quiet" }, costs) : null,
    h("h2", {}, "Versions"),
    versionTable(found, again),
    h("h2", {}, "History"),
    viewHistory(entry.view, history, now),
  ];
}

// No stream runs a batch-only view, so it has no lag.
function links({ view, application, batch_only: isBatchOnly }) {
  return h("p", { class: "related" }, [
    isBatchOnly ? null : link("streams", { application }, `Stream: ${application}`),
    isBatchOnly ? null : link("lag", { reader: view, hours: 6 }, "Lag and freshness"),
    link("reconciliations", { view }, "Reconciliations"),
    link("certificates", { view }, "Certificates"),
    link("alerts", { match: `/${view}` }, "Alerts"),
    link("backfills", { view }, "Backfill"),
  ]);
}

// From the event to the readers of the view. Each box shows where the data is stored, and links to it.
function lineage(entry, sources, at, now) {
  const box = (title, ...lines) =>
    h("div", { class: "box" }, h("strong", {}, title), lines.filter(Boolean).map((each) => h("span", {}, each)));
  const arrow = () => h("span", { class: "arrow", "aria-hidden": "true" }, "→");
  return h(
    "div",
    { class: "lineage", role: "group", "aria-label": "Lineage" },
    h(
      "div",
      {},
      sources.map((each) =>
        box(
          link("quality", { of: each.event }, each.event),
          "Event",
          seen(each.about),
          `Topic: ${count(each.partitions, "partition")}, retention ${each.retention}`,
        )
      ),
    ),
    arrow(),
    h(
      "div",
      {},
      sources.map((each) =>
        box(link("record", { topic: each.event }, each.event), "Archive", "Every record, kept forever")
      ),
    ),
    arrow(),
    h(
      "div",
      {},
      box(
        entry.batch_only ? entry.view : link("lag", { reader: entry.view }, entry.view),
        "View",
        entry.batch_only ? "Built once a day" : `Application: ${entry.application}`,
        entry.keep ? `Keeps rows for ${entry.keep}` : "Keeps all rows",
        positions(at),
        entry.proof ? proof(entry.proof, now) : "Never compared",
      ),
    ),
    arrow(),
    h(
      "div",
      {},
      entry.relations.map((each) =>
        box(
          link("view", { name: entry.view, relation: each === entry.view ? "" : each }, `views.${each}`),
          "SQL view for readers",
        )
      ),
    ),
  );
}
