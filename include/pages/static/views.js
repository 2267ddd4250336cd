// Views: the catalogue, with what each file declares and what the database contains.
import { keepInAddress } from "./address.js";
import { ask, live } from "./live.js";
import { about, ago, badge, bytes, h, layerOf, link, moment, paragraphs, seen, table } from "./kit.js";
import { choose, pager, sorted, sortHead } from "./list.js";

const PAGE = 50;
const NEVER = "never compared";
const COLUMNS = {
  view: ["View", (each) => each.view],
  about: ["Description"],
  reads: ["Sources", (each) => each.reads.join(", ")],
  application: ["Application", (each) => each.application],
  state: ["State", (each) => each.state],
  version: ["Version", (each) => each.table?.version, true],
  rows: ["Rows", (each) => each.table?.rows, true],
  bytes: ["Size", (each) => each.table?.bytes, true],
  proof: ["Last comparison", (each) => each.proof?.at],
};

export function show(given, { shown, form }) {
  const state = {
    text: given.get("text") ?? "",
    verdict: given.get("verdict") ?? "",
    order: given.get("order") ?? "view",
    descending: given.get("descending") === "true",
    skip: Number(given.get("skip")) || 0,
  };
  const search = h("input", {
    type: "search",
    "aria-label": "Search",
    placeholder: "Search views",
    value: state.text,
    input: () => change({ text: search.value, skip: 0 }),
  });
  const verdict = choose(
    "Last verdict",
    [["", "All verdicts"], ["EQUAL", "Equal"], ["DIFFERENT", "Different"], ["UNKNOWN", "Unknown"], [
      NEVER,
      "Never compared",
    ]],
    state.verdict,
    { change: () => change({ verdict: verdict.value, skip: 0 }) },
  );
  form.append(search, verdict, link("record", {}, "Find a record"));
  const again = live(
    shown,
    () => ask("data/views").then((found) => ({ ...found, state: { ...state } })),
    10,
    (found) => list(found, change),
  );

  function change(changes) {
    Object.assign(state, changes);
    keepInAddress({
      ...state,
      order: state.order === "view" ? "" : state.order,
      descending: state.descending || "",
      skip: state.skip || "",
    });
    again();
  }
}

function list({ views, as_of: now, state }, change) {
  const matching = views.filter((each) => matches(each, state));
  const ordered = sorted(matching, COLUMNS[state.order]?.[1] ?? COLUMNS.view[1], state.descending);
  const page = ordered.slice(state.skip, state.skip + PAGE);
  return [
    table(
      Object.entries(COLUMNS).map((
        [name, [title, valueOf, number]],
      ) => (valueOf ? sortHead(title, name, state, (by) => change({ ...by, skip: 0 }), { number }) : title)),
      page.map((each) => row(each, now)),
      views.length ? "No views match." : "No views yet. Add one to spark_apps/views/.",
      { keys: page.map((each) => each.view) },
    ),
    pager({
      skip: state.skip,
      limit: PAGE,
      shown: page.length,
      more: matching.length > state.skip + PAGE,
      total: matching.length,
    }, (skip) => change({ skip })),
  ];
}

function matches(each, { text, verdict }) {
  const words = [each.view, each.about, each.application, each.broken, ...each.reads].join(" ").toLowerCase();
  return words.includes(text.toLowerCase()) && (!verdict || (each.proof?.verdict ?? NEVER) === verdict);
}

function row(each, now) {
  return [
    link("view", { name: each.view }, each.view),
    each.broken ? h("span", { class: "means" }, seen(each.broken)) : paragraphs(each.about)[0],
    each.reads.map((one, i) => [i ? ", " : "", link("quality", { of: one }, one)]),
    each.batch_only ? "Built once a day" : each.application,
    h(
      "span",
      { title: each.since ? `Since ${moment(each.since)} UTC` : null },
      badge(each.state),
      each.reason ? h("small", {}, ` ${seen(each.reason)}`) : null,
      layerOf(each.answer),
    ),
    versions(each),
    each.table ? about(each.table.rows) : "",
    each.table ? bytes(each.table.bytes) : "",
    each.proof ? proof(each.proof, now) : h("span", { class: "quiet" }, "Never compared"),
  ];
}

export function versions({ declared, table: made }) {
  if (!made) return declared === null ? "" : `${declared} (not created)`;
  return declared === null || made.version === declared
    ? String(made.version)
    : `${made.version} (file declares ${declared})`;
}

export function proof(each, now) {
  const equal = each.equal_at ? ago(each.equal_at, now) : h("span", { class: "quiet" }, "never");
  return h(
    "span",
    {},
    link("reconciliation", { id: each.id }, badge(each.verdict)),
    " ",
    each.verdict === "EQUAL" ? equal : h("small", {}, "last equal: ", equal),
    h("small", {}, ", ", each.certified_at ? ["certified ", ago(each.certified_at, now)] : "no certificate"),
  );
}
