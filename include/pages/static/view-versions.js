// The versions of a view: who sees each, what is missing, how two of them differ, and moving the readers.
import { act, ask } from "./live.js";
import { about, badge, bytes, count, duration, h, link, moment, number, seen, table, wholeRow, word } from "./kit.js";
import { confirmAction, openDialog } from "./dialog.js";
import { reasonFor, rightButton } from "./rights.js";

const BADGES = { SERVING: "OK", READY: "OK" };

// `stages` has the states of the versions, and `versions` their tables.
export function versionTable({ entry, versions, stages, may_cut_over: moves, may_compare: compares }, again) {
  const of = Object.fromEntries(stages.map((each) => [each.version, each]));
  const serving = stages.find((each) => each.stage === "SERVING");
  return table(
    [
      { title: "Version", number: true },
      "Stage",
      { title: "Behind", number: true, hint: "Records that it lacks and readers see" },
      "Last comparison",
      "Created (UTC)",
      { title: "Rows", number: true },
      { title: "Size", number: true },
      { title: "Skipped records", number: true },
      "",
    ],
    versions.map((each) => {
      const state = of[each.version];
      return [
        number(each.version),
        state ? stage(state) : "",
        state ? number(state.behind) : "",
        state ? compared(state) : "",
        moment(each.made_at),
        about(each.rows),
        bytes(each.bytes),
        skipped(entry, each),
        state && serving && state !== serving ? actions(entry.view, serving, state, { moves, compares, again }) : "",
      ];
    }),
    "No version has been created yet.",
    { keys: versions.map((each) => each.version) },
  );
}

function stage(state) {
  return h(
    "span",
    {},
    badge(BADGES[state.stage] ?? "WARN", word(state.stage)),
    state.held ? h("small", {}, " held: readers were moved back from it") : null,
    state.share ? h("small", {}, ` ${number(state.share)} % of the API's readers get it`) : null,
    state.obstacle ? h("small", { class: "line-of" }, seen(state.obstacle)) : null,
  );
}

function compared({ verdict, verdict_age: age }) {
  return age === null ? h("span", { class: "quiet" }, "Never") : h("span", {}, badge(verdict), ` ${duration(age)} ago`);
}

function skipped({ view }, { version, excluded }) {
  return excluded ? link("record", { view, version }, number(excluded)) : number(excluded);
}

function actions(view, serving, state, { moves, compares, again }) {
  const button = (right, may, name, label, click) => rightButton(right, may, label, { "data-act": name, click });
  return h(
    "p",
    { class: "buttons" },
    state.built ? button("compare", compares, "difference", "Compare rows…", () => differ(view, serving, state)) : null,
    state.stage === "READY"
      ? button("cut_over", moves, "cut-over", "Move readers here…", () => move(view, state, again))
      : null,
    state.stage === "FORMER"
      ? button("cut_over", moves, "back", "Move readers back…", () => moveBack(view, state, again))
      : null,
    ["READY", "FORMER"].includes(state.stage) ? reasonFor("cut_over", moves) : null,
  );
}

function move(view, { version }, again) {
  confirmAction({
    title: `Move readers of ${view} to version ${version}?`,
    text:
      "It is built and proved EQUAL. All readers move in one transaction, and can go back while the stream of the former version goes on.",
    label: "Move readers",
    act: async () => {
      await act("versions/cut-over", { view, version });
      return again;
    },
  });
}

function moveBack(view, { version }, again) {
  confirmAction({
    title: `Move readers of ${view} back to version ${version}?`,
    text: "The version that they leave is held: only a person shows it again.",
    label: "Move readers back",
    act: async () => {
      await act("versions/back", { view, version });
      return again;
    },
  });
}

async function differ(view, { version: one }, { version: other }) {
  const title = h("h2", {}, `Versions ${one} and ${other} of ${view}`);
  openDialog([title, h("p", { class: "quiet" }, "Comparing the rows…")], null, "Close");
  const shown = await ask("data/version-difference", { view, one, other }).then(differences).catch((
    error,
  ) => [h("p", { role: "alert" }, error.message)]);
  if (document.getElementById("ask").open) openDialog([title, ...shown], null, "Close");
}

function differences({ one, other, rows, missing, extra, different, columns, added, removed, apart, sample }) {
  const changed = Object.entries(columns).filter(([, n]) => n);
  return [
    h(
      "p",
      {},
      `Version ${one} has ${count(rows[0], "row")}, version ${other} has ${count(rows[1], "row")}: `,
      `${number(missing)} missing, ${number(extra)} extra, ${number(different)} different.`,
    ),
    apart
      ? h("p", { class: "means" }, `${count(apart, "record")} are in one version only, and may explain differences.`)
      : null,
    added.length ? h("p", {}, `Added columns: ${added.join(", ")}`) : null,
    removed.length ? h("p", {}, `Removed columns: ${removed.join(", ")}`) : null,
    changed.length
      ? h("p", {}, changed.map(([name, n]) => `${name}: ${count(n, "row differs", "rows differ")}. `))
      : null,
    table([`Version ${one}`, `Version ${other}`], sample.map((each) => [wholeRow(each.one), wholeRow(each.other)]), ""),
  ].filter(Boolean);
}
