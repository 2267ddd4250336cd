// Explain: the archived events behind a row, and the row after each of them. A job reads the archive when the user
// asks.
import { pairs } from "./address.js";
import { act, ask, live } from "./live.js";
import { openDialog } from "./dialog.js";
import {
  ago,
  badge,
  bytes,
  count,
  duration,
  h,
  link,
  moment,
  number,
  outward,
  seen,
  sentence,
  since,
  table,
  value,
  wholeRow,
} from "./kit.js";
import { recordLink } from "./records.js";
import { reasonFor, rightButton } from "./rights.js";

const API = "../api/v2/dags/explain/dagRuns";
const CURES = {
  403: "You may not do this. It requires permission to trigger the explain DAG.",
  404: "Airflow has no explain DAG yet. Check the list of DAGs in Airflow.",
};

export function show(given, { shown }) {
  const question = { view: given.get("view") ?? "", where: given.getAll("where"), before: given.get("before") ?? "" };
  // Both are read once: the cost reads the bucket, and each look at an answer is recorded.
  let cost = null, answer = null, isStarting = false;
  const again = live(
    shown,
    async () => {
      const found = await ask("data/explain", pairs(question));
      if (found.may_read && found.answered && answer?.id !== found.answered.id) {
        answer = await ask(
          "data/explanation",
          { id: found.answered.id },
        );
      }
      return { ...found, question, cost: await findCost(), answer };
    },
    3,
    (found) => drawn(found, start),
    (
      { run, answer: shownAnswer },
    ) => (run && !run.over ? "The explanation is running" : shownAnswer ? "The explanation is ready" : ""),
  );

  // An error may be over at the next round.
  async function findCost() {
    try {
      return cost ??= await ask("data/explain/cost", { view: question.view });
    } catch (error) {
      return { refused: error.message };
    }
  }

  // The button is disabled once the run is known. A second click before that starts no second run.
  async function start() {
    if (isStarting) return;
    isStarting = true;
    try {
      await act(API, { logical_date: null, conf: question });
      await again();
    } catch (error) {
      openDialog([h("h2", {}, "Airflow refused"), h("p", { role: "alert" }, CURES[error.status] ?? error.message)]);
    } finally {
      isStarting = false;
    }
  }
}

function drawn(found, start) {
  const { question, may_read: mayRead, answer, as_of: now } = found;
  return [
    h("h1", {}, "Explain", h("span", {}, " a row of ", link("view", { name: question.view }, question.view))),
    h(
      "p",
      {},
      link(
        "view",
        pairs({ name: question.view, where: question.where }),
        h("span", { class: "value" }, seen(question.where.join(", "))),
      ),
    ),
    asked(found, start),
    mayRead ? h("p", { class: "quiet" }, "The same on the command line: ", h("code", {}, seen(found.command))) : null,
    mayRead && answer ? explained(answer, found.answered, question, now) : null,
  ];
}

// What an explanation costs, its button, and the run that answers.
function asked({ cost, run, answered, last_seconds: last, may_read: may, as_of: now }, start) {
  if (cost.refused) return h("p", { class: "means" }, sentence(seen(cost.refused)));
  const amount = `${count(cost.records, "record")} in ${count(cost.files, "file")} (${bytes(cost.bytes)})`;
  const size = `An explanation reads the view's topics in the archive: ${amount}.`;
  if (cost.records > cost.most) {
    return h(
      "p",
      { class: "means" },
      `${size} This page explains views with at most ${number(cost.most)} records. For this view, use the command.`,
    );
  }
  const running = run && !run.over;
  return [
    h(
      "p",
      {},
      size,
      " ",
      last === null
        ? "How long that takes is unknown: no explanation of this view has ended recently."
        : `The last one took ${duration(last)}.`,
    ),
    h(
      "p",
      { class: "buttons" },
      rightButton("compare", may, answered ? "Explain again" : "Explain", {
        "data-act": "explain",
        disabled: running,
        click: start,
      }),
      reasonFor("compare", may),
    ),
    run
      ? h(
        "p",
        {},
        running
          ? [badge("PENDING", run.state === "queued" ? "Waiting" : "Running"), ` for ${since(run.asked_at, now)}. `]
          : run.state === "failed"
          ? [badge("FAILED"), " The log of its task ends with the reason. "]
          : null,
        outward(`dags/explain/runs/${encodeURIComponent(run.id)}`, "Run"),
      )
      : null,
  ];
}

function explained(answer, answered, question, now) {
  const by = h("p", { class: "quiet" }, "Explained ", ago(answered.finished_at, now), ` for ${seen(answered.doer)}.`);
  if (!answer.events) return [h("p", { class: "means" }, sentence(seen(answer.refused))), by];
  const { events, total, cost } = answer;
  return [
    h(
      "h2",
      {},
      badge(answer.verdict),
      answer.reason ? ` ${sentence(seen(answer.reason))}` : " The row follows from its events.",
    ),
    answer.verdict === "DIFFERENT" ? answer.streamed.map((row) => h("p", {}, "In the view: ", wholeRow(row))) : null,
    listed(answer),
    h(
      "p",
      { class: "pager" },
      answer.earlier ? link("explain", pairs({ ...question, before: answer.earlier }), "Earlier events") : null,
      question.before ? link("explain", pairs({ ...question, before: "" }), "Latest events") : null,
      h(
        "span",
        { class: "quiet" },
        events.length
          ? `${number(events[0].number)} to ${number(events.at(-1).number)} of ${count(total, "event")}`
          : "No events",
      ),
    ),
    h(
      "p",
      { class: "quiet" },
      `Read ${count(cost.records, "record")} in ${duration(cost.seconds)}, after Spark had started.`,
    ),
    by,
  ];
}

// One line for each row after an event. A Group has several rows, and a row may not exist.
function listed({ key, events, streamed, rebuilt }) {
  const rows = [...streamed, ...rebuilt, ...events.flatMap((each) => each.rows)];
  const columns = Object.keys(rows[0] ?? {}).filter((each) => !(each in key));
  const lines = events.flatMap((event) =>
    (event.rows.length ? event.rows : [null]).map((row, n) => [
      ...(n ? ["", "", "", ""] : [
        number(event.number),
        [
          recordLink(event.topic, event.partition, event.offset),
          event.refused ? h("span", { class: "quiet" }, ` changes nothing: ${seen(event.refused)}`) : null,
        ],
        moment(event.event_time),
        moment(event.broker_time),
      ]),
      ...columns.map((each, i) => (row ? value(row[each]) : i ? "" : h("span", { class: "null" }, "no row"))),
    ])
  );
  return table(
    [{ title: "", number: true }, "Event", "Event time (UTC)", "Broker time (UTC)", ...columns],
    lines,
    "No event has made this row.",
    { caption: "The events behind the row, and the row after each of them" },
  );
}
