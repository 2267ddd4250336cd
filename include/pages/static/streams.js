// Streams: each application, what it does, how far behind it is; with what this user may do about it.
import { act, ask, live } from "./live.js";
import { ago, badge, duration, h, layerOf, link, moment, number, seen, since, table } from "./kit.js";

const MEANS = {
  DOWN: "nobody runs it; its DAG starts it again",
  HUNG: "it has had something to read for too long and made no batch; its DAG starts it anew",
  NO_INPUT: "no ticks come, or Kafka is away: starting it anew would mend nothing",
  CHANGED: "it runs other code than the newest release; its DAG starts it anew",
  STOP: "it is wanted stopped and still runs",
  RESTART_PENDING: "somebody asked for it to be started anew; its DAG does so after the batch under way",
  STARTING: "it holds its lease and has made no batch yet",
  STOPPED: "somebody stopped it; after a while the batch layer answers for the views of a stream",
};
const WHOLE = "triggerExecution";
const ACTS = {
  restart: "starts it anew after the batch under way. Views stand still for the half minute that Spark takes.",
  stop: "stops it after the batch under way, until somebody starts it. Meanwhile the batch layer answers for the views of a stream, minutes late.",
  start: "has it running again, from where it stopped.",
};

export function show(_, { shown }) {
  const again = live(shown, () => ask("data/streams"), 3, (found) =>
    found.applications.map((each) => application(each, found.as_of, () => again())));
}

function application(each, now, again) {
  const { status, state } = each;
  return h("article", { "data-application": status.application },
    h("header", {},
      h("h2", {}, status.application, " ", badge(state)),
      h("p", { class: "buttons" }, buttons(each, again))),
    MEANS[state] ? h("p", { class: "means" }, MEANS[state], ".") : null,
    h("dl", {},
      pair("last batch", ago(status.batch_at, now)),
      pair("runs since", status.alive && status.taken_at ? `${moment(status.taken_at)} (${since(status.taken_at, now)})` : "not running"),
      pair("epoch", number(status.epoch)),
      pair("process", status.alive ? `${status.pid} on ${seen(status.host ?? "?")}` : "none"),
      pair("code", code(status)),
      pair("started", launched(each.launch, now))),
    table(
      ["reader", "state", { title: "version", number: true }, { title: "events behind", number: true },
        { title: "freshness", number: true }, "verdict", "positions"],
      each.readers.map((reader) => row(reader, now)), "No view is given to it."),
    steps(status.application, each.batches),
  );
}

// Milliseconds of each step of the last batches, as Spark names them; all of a batch is the last column.
function steps(application, batches) {
  if (!batches.length) return null;
  const named = [...new Set(batches.flatMap((each) => Object.keys(each.steps)))].sort((a, b) => (a === WHOLE) - (b === WHOLE));
  return h("details", { id: `steps-${application}`, class: "steps" }, h("summary", {}, `steps of the last ${batches.length} batches, the last ${duration(batches[0].steps[WHOLE] / 1000)} in all`),
    table(["began (UTC)", ...named.map((each) => ({ title: `${each}, ms`, number: true }))],
      batches.map((each) => [moment(each.at), ...named.map((step) => (step in each.steps ? number(each.steps[step]) : ""))])));
}

function pair(name, given) {
  return h("div", {}, h("dt", {}, name), h("dd", {}, given));
}

function code({ code_running: runs, code_wanted: wanted }) {
  if (!runs) return "?";
  return runs === wanted || !wanted ? runs.slice(0, 12) : `${runs.slice(0, 12)}, wanted ${wanted.slice(0, 12)}`;
}

function launched(launch, now) {
  if (!launch) return "never";
  const times = launch.within_a_day === 1 ? "once" : `${launch.within_a_day} times`;
  const why = launch.reason === "by hand" ? "by hand" : `as it was ${seen(launch.reason)}`;
  return h("span", {}, ago(launch.at, now), `, ${why}; ${times} in a day`);
}

function row(reader, now) {
  const isView = reader.reader !== "archive";
  const stalled = reader.state === "STALLED" || reader.state === "UNKNOWN";
  return [
    isView ? link("view", { name: reader.reader }, reader.reader) : reader.reader,
    reader.state ? h("span", { title: reader.since ? `since ${moment(reader.since)}` : "" }, badge(reader.state),
      stalled ? h("small", {}, ` ${seen(reader.reason)}`) : null, layerOf(reader.answer)) : "",
    reader.version ? number(reader.version) : "",
    number(reader.lag_events),
    duration(reader.freshness),
    h("span", {}, link("lag", { reader: reader.reader }, badge(reader.verdict)), reasons(reader)),
    places(reader),
  ];
}

function reasons(reader) {
  const odd = reader.partitions.filter((each) => each.verdict !== "OK");
  return odd.length ? h("small", {}, ` ${seen(odd[0].reason)}`) : null;
}

function places(reader) {
  const known = reader.partitions.filter((each) => each.topic !== null);
  if (!known.length) return h("span", { class: "quiet" }, "not seen yet");
  const topics = [...new Set(known.map((each) => each.topic))];
  return h("details", { id: `positions-${reader.reader}` }, h("summary", {}, `${known.length} partitions`),
    topics.map((topic) => h("p", { class: "positions" }, `${topic} `, known.filter((each) => each.topic === topic).map((each) =>
      h("span", { title: `log ends at ${each.end ?? "?"}` }, `${each.partition}:${each.position ?? "?"}`)))));
}

function buttons({ status, state, may_restart: restart, may_stop: stop }, again) {
  const stopped = status.desired === "stopped";
  return [
    restart && !stopped ? button("restart", status, state === "RESTART_PENDING", again) : null,
    stop ? button(stopped ? "start" : "stop", status, false, again) : null,
  ];
}

function button(name, status, disabled, again) {
  return h("button", { type: "button", "data-act": name, disabled, click: () => sure(name, status.application, again) }, name);
}

function sure(name, application, again) {
  const dialog = document.getElementById("ask");
  const wrong = h("p", { role: "alert" });
  const yes = h("button", { type: "button", class: "yes", click: async () => {
    yes.disabled = true;
    try {
      await act(`streams/${encodeURIComponent(application)}/${name}`);
      dialog.close();
      again();
    } catch (error) {
      wrong.replaceChildren(error.message);
      yes.disabled = false;
    }
  } }, `${name} ${application}`);
  dialog.replaceChildren(
    h("h2", {}, `${name} ${application}?`), h("p", {}, `This ${ACTS[name]} Your name is kept with it.`), wrong,
    h("p", { class: "buttons" }, yes, h("button", { type: "button", click: () => dialog.close() }, "leave it")));
  dialog.showModal();
}
