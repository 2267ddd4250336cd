// Streams: each application, its state and its readers' lag, with the actions that this user may take.
import { confirmAction } from "./dialog.js";
import { act, ask, live } from "./live.js";
import {
  ago,
  badge,
  count,
  duration,
  h,
  layerOf,
  link,
  moment,
  number,
  outward,
  seen,
  sentence,
  since,
  startReason,
  table,
  word,
} from "./kit.js";
import { toDag, toReader } from "./links.js";
import { reasonFor, rightButton } from "./rights.js";

const MEANS = {
  DOWN: (name) => `Not running. The stream_${name} DAG restarts it within seconds.`,
  RESTING: (name) =>
    `Not running. It failed too often, so the stream_${name} DAG waits before the next try. A restart starts it at once.`,
  HUNG: (name) => `There is input, but no batch has finished for too long. The stream_${name} DAG restarts it.`,
  NO_INPUT: () => "No ticks are arriving, or Kafka is down. A restart would not help.",
  CHANGED: (name) => `Running older code than the newest release. The stream_${name} DAG restarts it.`,
  STOP: () => "A stop was requested. It stops after the current batch.",
  RESTART_PENDING: (name) => `A restart was requested. The stream_${name} DAG restarts it after the current batch.`,
  STARTING: () => "Started. The first batch has not finished yet.",
  STOPPED: (name) =>
    name === "archive"
      ? "Stopped on request. Events stay in Kafka and are not archived."
      : "Stopped on request. After a while the batch layer serves its views.",
};
const WHOLE = "triggerExecution";
// Spark's names of the steps of a batch, in the order in which they happen.
const STEPS = {
  latestOffset: "Find new records",
  getBatch: "Prepare the read",
  queryPlanning: "Plan",
  walCommit: "Store the range",
  addBatch: "Process",
  commitOffsets: "Store the end",
  [WHOLE]: "Whole batch",
};
const ACTIONS = {
  restart: () => "It restarts after the current batch. Processing pauses for about half a minute while Spark starts.",
  stop: (name) =>
    name === "archive"
      ? "It stops after the current batch. Until someone starts it again, events stay in Kafka and are not archived."
      : "It stops after the current batch. Until someone starts it again, the batch layer serves its views, a few minutes late.",
  start: () => "It starts and continues where it stopped.",
};

export function show(given, { shown, form }) {
  const only = given.get("application") ?? "";
  if (only) {
    form.append(
      h("span", {}, "Showing ", h("code", {}, seen(only)), ". ", link("streams", {}, "Show all applications")),
    );
  }
  const again = live(shown, () => ask("data/streams"), 3, (found) => [
    only ? null : unread(found),
    found.applications.filter((each) => !only || each.status.application === only).map((each) =>
      application(each, found, () => again())
    ),
  ], ({ applications }) => applications.map((each) => `${each.status.application}: ${word(each.state)}`).join(", "));
}

// The topics that an application has suspended and the event files that cannot be used. Nothing if there are none.
function unread({ suspended_topics: topics, broken_event_files: files }) {
  if (!topics.length && !files.length) return null;
  return h(
    "article",
    { "data-unread": "", "data-key": "unread" },
    h("header", {}, h("h2", {}, "Input that is not read")),
    table(
      ["Input", "Not read by", "Since (UTC)", "Reason"],
      [
        ...topics.map((each) => [`Topic ${each.topic}`, each.application, moment(each.since), seen(each.reason)]),
        ...files.map((each) => [`Event file ${each.event}.py`, "All processes", moment(each.since), seen(each.reason)]),
      ],
      "",
      { caption: "Suspended topics, and event files that cannot be used" },
    ),
  );
}

function application(each, { as_of: now, logs }, again) {
  const { status, state } = each;
  const starting = each.readers.filter((reader) => reader.state === "STARTING");
  const others = each.readers.filter((reader) => reader.state !== "STARTING");
  return h(
    "article",
    { "data-application": status.application, "data-key": status.application },
    h(
      "header",
      {},
      h("h2", {}, status.application, " ", badge(state, state === "STOP" ? "Stopping" : undefined)),
      h("p", { class: "buttons" }, buttons(each, again)),
    ),
    refused(each),
    MEANS[state]
      ? h(
        "p",
        { class: "means" },
        MEANS[state](status.application),
        each.next_try ? ` Next try at ${moment(each.next_try)} UTC.` : "",
      )
      : null,
    each.last_error
      ? h("p", {}, h("strong", {}, "Last error: "), h("span", { class: "value" }, seen(each.last_error)))
      : null,
    h(
      "p",
      { class: "links" },
      toDag(`stream_${status.application}`),
      logs[status.application] ? outward(logs[status.application], "Task log") : null,
      MEANS[state] ? link("alerts", { match: status.application }, "Alerts and runbooks") : null,
    ),
    h(
      "dl",
      {},
      pair("Last batch", ago(status.batch_at, now)),
      pair(
        "Running since",
        status.alive && status.taken_at
          ? `${moment(status.taken_at)} UTC (${since(status.taken_at, now)})`
          : "Not running",
      ),
      pair("Epoch", number(status.epoch)),
      pair(
        "Process",
        status.alive ? (status.pid ? `${status.pid} on ${seen(status.host ?? "an unknown host")}` : "Unknown") : "None",
      ),
      pair("Code", code(status)),
      pair("Last start", lastStart(each.launch, now)),
      pair("Lag sampled", sampled(each.readers)),
    ),
    starting.length ? h("p", { class: "starting" }, beingCreated(starting)) : null,
    starting.length && !others.length ? null : table(
      [
        "Reader",
        "State",
        { title: "Version", number: true },
        { title: "Lag (events)", number: true, hint: "Unprocessed records" },
        { title: "Freshness", number: true, hint: "Age of the oldest unprocessed record" },
        "Lag verdict",
        "Partitions",
      ],
      others.map(row),
      "This application runs no views.",
      { caption: `Readers of ${status.application}`, keys: others.map((reader) => reader.reader) },
    ),
    steps(status.application, each.batches),
  );
}

// One line for all views that no application has run yet: they have no lag, and their tables do not exist.
function beingCreated(readers) {
  const names = h("small", {}, readers.map(({ reader }) => seen(reader)).join(", "));
  return [
    badge("STARTING"),
    ` ${count(readers.length, "view")} ${readers.length === 1 ? "is" : "are"} being created: `,
    names,
  ];
}

// The age of the oldest sample behind these readers' lag.
function sampled(readers) {
  const ages = readers.map((each) => each.lag_age).filter((age) => age !== null);
  return ages.length ? `${duration(Math.max(...ages))} ago` : "Never";
}

// The duration of each step of recent batches in milliseconds. The last column is the whole batch.
function steps(application, batches) {
  if (!batches.length) return null;
  const latest = duration(batches[0].steps[WHOLE] / 1000);
  const found = new Set(batches.flatMap((each) => Object.keys(each.steps)));
  const unknown = [...found].filter((each) => !(each in STEPS)).sort();
  const named = [...unknown, ...Object.keys(STEPS).filter((each) => found.has(each))];
  return h(
    "details",
    { id: `steps-${application}`, class: "steps" },
    h(
      "summary",
      {},
      `Steps of the last ${count(batches.length, "batch", "batches")} (latest: ${latest})`,
    ),
    table(
      [
        "Batch start (UTC)",
        ...named.map((each) => ({
          title: `${STEPS[each] ?? each} (ms)`,
          hint: `Spark calls it ${each}`,
          number: true,
        })),
      ],
      batches.map((
        each,
      ) => [moment(each.at), ...named.map((step) => (step in each.steps ? number(each.steps[step]) : ""))]),
      "",
      { caption: `Steps of recent batches of ${application}` },
    ),
  );
}

function pair(name, given) {
  return h("div", {}, h("dt", {}, name), h("dd", {}, given));
}

function code({ code_running: runs, code_wanted: wanted }) {
  if (!runs) return "Unknown";
  return runs === wanted || !wanted ? runs.slice(0, 12) : `${runs.slice(0, 12)}, newest release ${wanted.slice(0, 12)}`;
}

function lastStart(launch, now) {
  if (!launch) return "Never";
  return h(
    "span",
    {},
    ago(launch.at, now),
    ` (${startReason(launch.reason)}); ${count(launch.within_a_day, "start")} in 24 h`,
  );
}

function row(reader) {
  const isView = reader.reader !== "archive";
  const stalled = reader.state === "STALLED" || reader.state === "UNKNOWN";
  return [
    isView ? toReader(reader.reader) : reader.reader,
    reader.state
      ? h(
        "span",
        { title: reader.since ? `Since ${moment(reader.since)} UTC` : null },
        badge(reader.state),
        stalled ? h("small", {}, ` ${seen(reader.reason)}`) : null,
        layerOf(reader.answer),
      )
      : "",
    reader.version ? number(reader.version) : "",
    number(reader.lag_events),
    duration(reader.freshness),
    h(
      "span",
      {},
      link("lag", { reader: reader.reader }, badge(reader.verdict)),
      reader.verdict === "OK" ? null : h("small", {}, ` ${seen(reader.why)}`),
    ),
    reader.partitions
      ? link("lag", { reader: reader.reader }, count(reader.partitions, "partition"))
      : h("span", { class: "quiet" }, "No sample yet"),
  ];
}

function buttons({ status, state, may_restart: restart, may_stop: stop }, again) {
  const stopped = status.desired === "stopped";
  const button = (right, may, name, disabled = false) =>
    rightButton(right, may, sentence(name), {
      "data-act": name,
      disabled,
      click: () => confirm(name, status.application, again),
    });
  return [
    stopped ? null : button("restart", restart, "restart", state === "RESTART_PENDING"),
    button("stop", stop, stopped ? "start" : "stop"),
  ];
}

// Why this user may not use some of the buttons.
function refused({ status, may_restart: restart, may_stop: stop }) {
  const stopped = status.desired === "stopped";
  const reasons = [
    stopped ? null : reasonFor("restart", restart, "Restart"),
    reasonFor("stop", stop, stopped ? "Start" : "Stop"),
  ].filter(Boolean);
  return reasons.length ? h("p", { class: "refusals" }, reasons) : null;
}

function confirm(name, application, again) {
  confirmAction({
    title: `${sentence(name)} ${application}?`,
    text: `${ACTIONS[name](application)} Your name is recorded.`,
    label: `${sentence(name)} ${application}`,
    act: async () => {
      await act(`streams/${encodeURIComponent(application)}/${name}`);
      return again;
    },
  });
}
