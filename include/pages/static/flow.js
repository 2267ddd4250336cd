// The flow: topics, the archive, views and outputs as one graph. Each node shows its state and leads to its page.
import { keepInAddress } from "./address.js";
import { ask, live } from "./live.js";
import { badge, count, duration, h, link, number, s, seen, sentence, word } from "./kit.js";
import { choose } from "./list.js";

const ALL = "All applications";
const TROUBLE = "Only what needs attention";
const FINE = ["OK", "EQUAL", "UP_TO_DATE", "BATCH_ONLY", null, undefined, ""];

export function show(given, { shown, form }) {
  const state = { text: given.get("text") ?? "", application: given.get("application") ?? "" };
  const change = (changes) => {
    Object.assign(state, changes);
    keepInAddress(state);
    again.redraw();
  };
  const search = h("input", {
    type: "search",
    "aria-label": "Search",
    placeholder: "Search topics and views",
    value: state.text,
    input: () => change({ text: search.value }),
  });
  const applications = choose("Application", [["", ALL]], "", {
    change: () => change({ application: applications.value }),
  });
  form.append(search, applications);
  const again = live(shown, () => ask("data/flow"), 5, (found) => {
    if (applications.length === 1) {
      applications.append(...choose("", [...found.applications, [TROUBLE, TROUBLE]], state.application).children);
      applications.value = state.application;
    }
    requestAnimationFrame(() => connect(shown));
    return graph(chosen(found, state));
  });
}

function needsAttention({ lag, proof, state }) {
  return [lag, proof, state].some((each) => !FINE.includes(each));
}

// A search keeps the views that match, the topics that match, and their neighbours.
function chosen({ topics, archive, views, outputs }, { text, application }) {
  const words = text.trim().toLowerCase();
  const fits = (name) => name.toLowerCase().includes(words);
  const inApplication = (view) =>
    !application || (application === TROUBLE ? needsAttention(view) : view.application === application);
  const shownViews = views.filter((view) => inApplication(view) && (fits(view.reader) || view.reads.some(fits)));
  const read = new Set(shownViews.flatMap((view) => view.reads));
  const all = !words && !application;
  return {
    topics: topics.filter(({ topic }) => all || read.has(topic) || (words && fits(topic))),
    archive,
    views: shownViews,
    outputs: outputs.filter(({ view }) => shownViews.some(({ reader }) => reader === view)),
  };
}

function graph({ topics, archive, views, outputs }) {
  const published = new Set(outputs.map(({ view }) => view));
  return h(
    "div",
    { class: "flow", pointerover: point, focusin: point, pointerleave: (event) => light(event.currentTarget, null) },
    s("svg", { class: "edges", "data-own": "", "aria-hidden": "true" }),
    column("Topics", topics.map(topic), "No topic matches."),
    column("Archive", [reader(archive, link("streams", { application: "archive" }, "archive"))]),
    column(
      `Views (${views.length})`,
      views.map((view) => reader(view, link("view", { name: view.reader }, seen(view.reader)))),
      "No view matches.",
    ),
    column("Outputs", outputs.map(output), published.size ? "" : "No view of these publishes its rows."),
  );
}

function column(title, nodes, empty = "") {
  return h(
    "section",
    { "data-key": title.split(" ")[0], "aria-label": title },
    h("h2", {}, title),
    nodes.length ? nodes : h("p", { class: "quiet" }, empty),
  );
}

function topic({ topic: name, partitions, events_per_second: rate, records }) {
  return h(
    "article",
    { class: "node", "data-key": `topic ${name}`, "data-node": `topic ${name}` },
    h("h3", {}, link("record", { topic: name }, seen(name))),
    h("p", {}, `${perSecond(rate)} · ${records === null ? count(partitions, "partition") : count(records, "record")}`),
  );
}

// Freshness and correctness are two badges, because a fresh view may be wrong.
function reader(each, name) {
  const reads = each.reads.map((topic) => `topic ${topic}`);
  return h(
    "article",
    {
      class: needsAttention(each) ? "node trouble" : "node",
      "data-key": `view ${each.reader}`,
      "data-node": `view ${each.reader}`,
      "data-from": reads.join("\n"),
    },
    h("h3", {}, name),
    h(
      "p",
      {},
      each.lag === null
        ? badge(each.state)
        : link("lag", { reader: each.reader }, badge(each.lag, each.lag === "OK" ? "Fresh" : word(each.lag))),
      " ",
      each.proof ? link("reconciliations", { view: each.reader }, badge(each.proof)) : null,
      each.state && !FINE.includes(each.state) ? [" ", badge(each.state)] : null,
    ),
    h(
      "p",
      {},
      each.lag === null ? "Built once a day" : `${perSecond(each.events_per_second)} · ${age(each.freshness)}`,
    ),
  );
}

function output({ view, topic: name, verdict, reason }) {
  return h(
    "article",
    {
      class: FINE.includes(verdict) ? "node" : "node trouble",
      "data-key": `output ${name}`,
      "data-node": `output ${name}`,
      "data-from": `view ${view}`,
    },
    h("h3", {}, seen(name)),
    h("p", {}, badge(verdict), FINE.includes(verdict) ? null : h("small", {}, ` ${seen(sentence(reason))}`)),
  );
}

function perSecond(rate) {
  return rate === null ? "Rate unknown" : `${number(rate, rate < 10 ? 1 : 0)} events/s`;
}

function age(seconds) {
  return seconds === null ? "freshness unknown" : `${duration(seconds)} behind`;
}

// Draws a line from each node to the nodes that it comes from. On a phone the columns are stacked, without lines.
function connect(shown) {
  const flow = shown.querySelector(".flow"), edges = flow?.querySelector(".edges");
  if (!edges) return;
  const box = flow.getBoundingClientRect();
  const nodes = new Map([...flow.querySelectorAll("[data-node]")].map((node) => [node.dataset.node, node]));
  const lines = [...nodes.values()].flatMap((to) =>
    (to.dataset.from ?? "").split("\n").filter((from) => nodes.has(from)).map((from) => line(nodes.get(from), to, box))
  );
  edges.setAttribute("viewBox", `0 0 ${Math.round(box.width)} ${Math.round(box.height)}`);
  edges.replaceChildren(...(getComputedStyle(flow).flexDirection === "row" ? lines : []));
}

function line(from, to, box) {
  const a = from.getBoundingClientRect(), b = to.getBoundingClientRect();
  const [x1, y1, x2, y2] = [
    a.right - box.left,
    a.top + a.height / 2 - box.top,
    b.left - box.left,
    b.top + b.height / 2 - box.top,
  ];
  const middle = (x1 + x2) / 2;
  return s("path", {
    class: "edge",
    "data-ends": `${from.dataset.node}\n${to.dataset.node}`,
    d: `M${x1} ${y1}C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}`,
  });
}

// The pointer or the focus on a node highlights its lines.
function point(event) {
  light(event.currentTarget, event.target.closest("[data-node]")?.dataset.node ?? null);
}

function light(flow, node) {
  const lines = [...flow.querySelectorAll(".edge")];
  const own = new Set(lines.filter((each) => each.dataset.ends.split("\n").includes(node)));
  const near = new Set([...own].flatMap((each) => each.dataset.ends.split("\n")));
  for (const each of lines) each.classList.toggle("lit", own.has(each));
  for (const each of flow.querySelectorAll("[data-node]")) {
    each.classList.toggle("lit", own.size > 0 && near.has(each.dataset.node));
  }
}
