// The flow: topics, the archive, views, outputs and readers as one graph. Each node shows its state and leads to its
// page. The views of an application can be collapsed into one node, which then has their lines.
import { keepInAddress } from "./address.js";
import { connect, light } from "./flow-lines.js";
import { ask, live } from "./live.js";
import { badge, count, duration, h, isBad, link, marked, number, outward, s, seen, sentence, word } from "./kit.js";
import { toApplication } from "./links.js";
import { choose } from "./list.js";
import { checkService } from "./rights.js";

const ALL = "All applications";
const TROUBLE = "Only what needs attention";
const STARTING = "STARTING"; // nothing is known of it yet
const FINE = ["OK", "EQUAL", "PASSED", "UP_TO_DATE", "BATCH_ONLY", "RUNNING", "UNUSED", null, undefined, ""];
const DAILY = "daily builds"; // the group of the views that no application runs
const FEW = 12; // with more views, the views that need no attention are collapsed at first

export function show(given, { shown, form }) {
  const state = {
    text: given.get("text") ?? "",
    application: given.get("application") ?? "",
    toggled: given.getAll("toggled"),
  };
  const change = (changes) => {
    Object.assign(state, changes);
    keepInAddress(state);
    again.redraw();
  };
  const search = h("input", {
    type: "search",
    "aria-label": "Search",
    placeholder: "Search topics, views, readers",
    value: state.text,
    input: () => change({ text: search.value }),
  });
  const applications = choose("Application", [["", ALL]], "", {
    change: () => change({ application: applications.value }),
  });
  form.append(search, applications);
  const again = live(shown, () => ask("data/flow"), 5, (found) => {
    if (applications.length === 1) {
      const names = [...Object.keys(found.applications), [TROUBLE, TROUBLE]];
      applications.append(...choose("", names, state.application).children);
      applications.value = state.application;
    }
    requestAnimationFrame(() => connect(shown));
    return graph(chosen(found, state), found, {
      isOpen: (name) => isFiltered() || (found.views.length <= FEW) !== state.toggled.includes(name),
      toggle: isFiltered() ? null : toggle,
    });
  });

  // A filter shows what it finds, so there is nothing to collapse.
  function isFiltered() {
    return Boolean(state.text || state.application);
  }

  function toggle(name) {
    const others = state.toggled.filter((each) => each !== name);
    change({ toggled: others.length < state.toggled.length ? others : [...others, name] });
  }
}

// What starts for the first time needs only time. Otherwise, all views of a new platform would need attention.
function needsAttention({ lag, proof, state }) {
  return [lag, proof, state].some((each) => !FINE.includes(each) && each !== STARTING);
}

// A search keeps the views that match, the topics and readers that match, and their neighbours.
function chosen({ topics, archive, views, outputs, consumers }, { text, application }) {
  const words = text.trim().toLowerCase();
  const fits = (name) => name.toLowerCase().includes(words);
  const inApplication = (view) =>
    !application || (application === TROUBLE ? needsAttention(view) : view.application === application);
  const asked = new Set(consumers.filter(({ reader }) => words && fits(reader)).flatMap((each) => each.views));
  const shownViews = views.filter((view) =>
    inApplication(view) && (fits(view.reader) || view.reads.some(fits) || asked.has(view.reader))
  );
  const read = new Set(shownViews.flatMap((view) => view.reads));
  const names = new Set(shownViews.map(({ reader }) => reader));
  const all = !words && !application;
  return {
    topics: topics.filter(({ topic }) => all || read.has(topic) || (words && fits(topic))),
    archive,
    views: shownViews,
    outputs: outputs.filter(({ view }) => names.has(view)),
    consumers: consumers.filter((each) => each.views.some((view) => names.has(view))),
  };
}

function graph({ topics, archive, views, outputs, consumers }, all, { isOpen, toggle }) {
  const groups = Object.entries(Object.groupBy(views, ({ application }) => application || DAILY)).map(
    ([name, own]) => ({ name, views: own, shown: isOpen(name) ? own : own.filter(needsAttention) }),
  );
  const places = new Map(
    groups.flatMap(({ name, views: own, shown }) =>
      own.map((view) => [view.reader, shown.includes(view) ? `view ${view.reader}` : `application ${name}`])
    ),
  );
  const from = (names) => names.map((view) => places.get(view)).filter(Boolean);
  const [followers, asking] = [true, false].map((is) => consumers.filter(({ answers }) => (answers === null) === is));
  return h(
    "div",
    { class: "flow", pointerover: point, focusin: point, pointerleave: (event) => light(event.currentTarget, null) },
    s("svg", { class: "edges", "data-own": "", "aria-hidden": "true" }),
    column("Topics", [
      service(
        all.collector,
        link("dead-letters", {}, "collector"),
        [link("dead-letters", {}, "Rejected events"), ". ", marked(checkService("collector"))],
      ),
      topics.length ? topics.map((each) => topic(each, all.types)) : nothing("No topic matches."),
    ]),
    column("Archive", [reader(archive, toApplication("archive"), audit(archive))]),
    column(`Views (${views.length})`, [
      groups.map((each) => group(each, all.applications[each.name], toggle)),
      views.length ? null : nothing("No view matches."),
    ]),
    column("Outputs", [
      service(all.relay, "relay", link("alerts", { match: "relay" }, "Alerts")),
      outputs.length
        ? outputs.map((each) => output(each, from([each.view])))
        : nothing("No view of these publishes its rows."),
    ]),
    column("Readers", [
      service(
        all.notifier,
        link("rules", {}, "notifier"),
        link("alerts", { match: "notifi" }, "Alerts"),
        from(followers.flatMap((each) => each.views)),
      ),
      asking.length
        ? asking.map((each) => consumer(each, from(each.views)))
        : nothing("No application has asked for rows in 7 days."),
    ]),
  );
}

function column(title, nodes) {
  return h("section", { "data-key": title.split(" ")[0], "aria-label": title }, h("h2", {}, title), nodes);
}

function nothing(text) {
  return h("p", { class: "quiet" }, text);
}

// A red border means a problem. A node that starts or is late only has its badge.
function node(key, states, from, ...content) {
  return h(
    "article",
    {
      class: states.some(isBad) ? "node trouble" : "node",
      "data-key": key,
      "data-node": key,
      "data-from": [...new Set(from)].join("\n"),
    },
    content,
  );
}

// The collector and the relay have no lines: every event or changed row of their column goes through them.
function service({ service: name, state, reason }, title, cure, from = []) {
  const trouble = !FINE.includes(state);
  return node(
    `service ${name}`,
    [state],
    from,
    h("h3", {}, title),
    h("p", {}, badge(state), trouble ? [" ", cure] : null),
    trouble ? h("p", { class: "means" }, marked(seen(sentence(reason)))) : null,
  );
}

function topic({ topic: name, partitions, events_per_second: rate, records, suspended, quality }, types) {
  return node(
    `topic ${name}`,
    [suspended ? "DOWN" : "", quality ?? ""],
    [],
    h("h3", {}, link("record", { list: name }, seen(name))),
    suspended ? h("p", {}, link("streams", {}, badge("DOWN", "Suspended")), " ", seen(suspended)) : h(
      "p",
      {},
      `${perSecond(rate)} · ${records === null ? count(partitions, "partition") : count(records, "record")}`,
    ),
    types.includes(name)
      ? h("p", {}, link("quality", { of: name }, quality ? ["Quality ", badge(quality)] : "Quality"))
      : null,
  );
}

// The views of one application, or the views that are built once a day.
function group({ name, views, shown }, state, toggle) {
  const hidden = views.filter((each) => !shown.includes(each));
  const late = views.map((each) => each.freshness).filter((each) => each !== null);
  const action = hidden.length ? `Show ${count(hidden.length, "view")}` : "Collapse";
  return h(
    "section",
    { class: "group", "data-key": `group ${name}` },
    node(
      `application ${name}`,
      [state],
      hidden.flatMap((view) => view.reads.map((each) => `topic ${each}`)),
      h("h3", {}, name === DAILY ? "Built once a day" : toApplication(name)),
      h(
        "p",
        {},
        state ? [badge(state), " "] : null,
        late.length ? `${count(views.length, "view")}, at most ${duration(Math.max(...late))} behind ` : null,
        toggle && !views.every(needsAttention)
          ? h(
            "button",
            {
              type: "button",
              class: "choice",
              "aria-expanded": String(!hidden.length),
              "aria-label": `${action} of ${name}`,
              click: () => toggle(name),
            },
            action,
          )
          : null,
      ),
    ),
    shown.map((view) => reader(view, link("view", { name: view.reader }, seen(view.reader)))),
  );
}

// The latest audit of the archive. The runs of its DAG name the faults.
function audit({ proof }) {
  return proof ? outward("dags/archive_upkeep", ["Audit ", badge(proof)]) : null;
}

function comparison({ reader: view, proof }) {
  return proof ? link("reconciliations", { view }, badge(proof)) : null;
}

// Freshness and correctness are two badges, because a fresh view may be wrong.
function reader(each, name, correctness = comparison(each)) {
  const isNew = each.state === STARTING && each.lag === null;
  return node(
    `view ${each.reader}`,
    [each.lag, each.proof, each.state],
    each.reads.map((topic) => `topic ${topic}`),
    h("h3", {}, name),
    h(
      "p",
      {},
      each.lag === null
        ? badge(each.state)
        : link("lag", { reader: each.reader }, badge(each.lag, each.lag === "OK" ? "Fresh" : word(each.lag))),
      " ",
      correctness,
      each.lag !== null && each.state && !FINE.includes(each.state) ? [" ", badge(each.state)] : null,
    ),
    isNew ? null : h(
      "p",
      {},
      each.application ? `${perSecond(each.events_per_second)} · ${age(each.freshness)}` : "Built once a day",
    ),
  );
}

function output({ view, topic: name, rows_per_second: rate, freshness, verdict, reason }, from) {
  const fine = FINE.includes(verdict);
  return node(
    `output ${name}`,
    [verdict],
    from,
    h("h3", {}, link("view", { name: view }, seen(name))),
    h(
      "p",
      {},
      fine
        ? badge(verdict, "Fresh")
        : [link("alerts", { match: `/${view}` }, badge(verdict)), h("small", {}, ` ${seen(sentence(reason))}`)],
    ),
    h("p", {}, `${number(rate, rate < 10 ? 1 : 0)} rows/s · ${age(freshness)}`),
  );
}

// The name keeps what this reader reads.
function consumer({ reader: name, answers }, from) {
  return node(
    `reader ${name}`,
    [],
    from,
    h("h3", {}, link("flow", { text: name }, seen(name))),
    h("p", {}, `${count(answers, "answer")} in 7 days`),
  );
}

function perSecond(rate) {
  return rate === null ? "Rate unknown" : `${number(rate, rate < 10 ? 1 : 0)} events/s`;
}

function age(seconds) {
  return seconds === null ? "freshness unknown" : `${duration(seconds)} behind`;
}

// The pointer or the focus on a node highlights its lines.
function point(event) {
  light(event.currentTarget, event.target.closest("[data-node]")?.dataset.node ?? null);
}
