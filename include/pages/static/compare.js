// Comparisons and repairs on request. The page calls Airflow's own API on behalf of the user, so Airflow decides.
import { act } from "./live.js";
import { confirmAction } from "./dialog.js";
import { h } from "./kit.js";
import { reasonFor, rightButton } from "./rights.js";

const API = "../api/v2/dags/reconcile/dagRuns";
const CURES = {
  403: "You may not do this. It requires permission to trigger the reconcile DAG.",
  404: "Airflow has no reconcile DAG yet. Check the list of DAGs in Airflow.",
};

// Two buttons. The run's own results appear on the page that opens.
export function compareButtons(view, may) {
  const button = (label, question) =>
    rightButton("compare", may, label, {
      "data-act": question.repair ? "repair" : "compare",
      click: () => ask(view, question),
    });
  return h(
    "p",
    { class: "buttons" },
    button("Compare now", {
      repair: false,
      title: `Compare ${view} with its rebuild?`,
      text: "The comparison replaces no rows.",
      label: "Compare",
    }),
    button("Repair this view", {
      repair: true,
      title: `Repair ${view}?`,
      text: "The comparison replaces rows that differ from the rebuild, and compares again. The stream continues.",
      label: "Repair",
    }),
    reasonFor("compare", may),
  );
}

function ask(view, { repair, title, text, label }) {
  confirmAction({
    title,
    label,
    text: `${text} Airflow records your name.`,
    why: (error) => CURES[error.status] ?? error.message,
    act: async () => {
      const run = await act(API, { logical_date: null, conf: { views: [view], repair } });
      return () => {
        location.href = `reconciliations?${new URLSearchParams({ run: run.dag_run_id })}`;
      };
    },
  });
}
