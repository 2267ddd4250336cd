// Certificates: the newest of each view, or those of one view. A verification is a run of the `verify` DAG.
import { act, ask, live } from "./live.js";
import { confirmAction } from "./dialog.js";
import { ago, badge, h, link, number, outward, positions, seen, table } from "./kit.js";
import { brief } from "./links.js";
import { reasonFor, rightButton } from "./rights.js";

const API = "../api/v2/dags/verify/dagRuns";
const CURES = {
  403: "You may not do this. It requires permission to trigger the verify DAG.",
  404: "Airflow has no verify DAG yet. Check the list of DAGs in Airflow.",
};

export function show(given, { shown }) {
  const view = given.get("view") ?? "";
  const again = live(shown, () => ask("data/certificates", { view }), 5, (found) => [
    h("h1", {}, "Certificates", view ? h("span", {}, " of ", link("view", { name: view }, view)) : null),
    h(
      "p",
      { class: "quiet" },
      "A certificate states that a view equalled its rebuild at exact positions. Anyone with the archive can verify it",
      found.may_verify ? [": ", h("code", {}, "truelog verify CERTIFICATE")] : null,
      ".",
    ),
    found.certificates.length && !found.may_verify ? h("p", {}, reasonFor("verify", false, "Verify")) : null,
    table(
      [
        "View",
        "Certificate",
        "Age",
        { title: "Version", number: true },
        { title: "Rows", number: true },
        "Positions",
        "Last verification",
        "",
      ],
      found.certificates.map((each) => row(each, found, view, () => again())),
      "No certificates yet. The next comparison that finds a view equal makes one.",
      { keys: found.certificates.map((each) => each.id) },
    ),
    found.without.length && !view ? h("p", { class: "means" }, `No certificate: ${found.without.join(", ")}.`) : null,
    view ? h("p", {}, link("certificates", {}, "All views")) : null,
  ]);
}

function row(each, { checks, pending, may_verify: may, as_of: now }, view, again) {
  return [
    link(view ? "view" : "certificates", view ? { name: each.view } : { view: each.view }, each.view),
    h(
      "span",
      {},
      link("reconciliation", { id: each.reconciliation }, h("span", { class: "value" }, each.id)),
      h("br"),
      h("small", { class: "value", title: `SHA-256 of the certificate: ${each.digest}` }, brief(each.digest)),
    ),
    ago(each.made_at, now),
    number(each.version),
    number(each.row_count),
    positions(each.positions),
    verified(checks[each.id], pending[each.id], now),
    h(
      "p",
      { class: "buttons" },
      rightButton("verify", may, "Verify", {
        "data-act": "verify",
        disabled: each.id in pending,
        click: () => verify(each.id, again),
      }),
      link("export/certificate", { id: each.id }, "Download", { download: true }),
    ),
  ];
}

function verified(check, run, now) {
  if (run) return h("span", {}, badge("PENDING"), " ", outward(`dags/verify/runs/${encodeURIComponent(run)}`, "Run"));
  if (!check) return h("span", { class: "quiet" }, "Never");
  return h(
    "span",
    {},
    badge(check.answer),
    " ",
    ago(check.finished_at, now),
    h("small", {}, ` by ${seen(check.doer)}`),
    check.reason ? h("p", { class: "means" }, seen(check.reason)) : null,
  );
}

function verify(id, again) {
  confirmAction({
    title: "Verify this certificate?",
    label: "Verify",
    text:
      `A Spark job rebuilds the view of ${id} from the archive's raw bytes, and compares the hashes. It reads every record below the certificate's positions.`,
    why: (error) => CURES[error.status] ?? error.message,
    act: async () => {
      await act(API, { logical_date: null, conf: { certificate: id } });
      return again;
    },
  });
}
