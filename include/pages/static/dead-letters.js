// Dead letters: the events that the collector rejected, with their reasons, and how to send them again.
import { keepInAddress, pairs } from "./address.js";
import { chart } from "./chart.js";
import { ask, live } from "./live.js";
import { bytes, count, duration, h, marked, moment, number, seen, table, value } from "./kit.js";
import { choose, pager, skipWithin, sortHead } from "./list.js";
import { recordLink } from "./records.js";
import { sendAgain } from "./send-again.js";

const PAGE = 100;
const WORD = 24; // characters that fit into a card of a phone
export const SPANS = [[1, "1 hour"], [24, "1 day"], [168, "7 days"], [720, "30 days"], [8784, "1 year"]];

export function show(given, { shown, form }) {
  const state = {
    hours: given.get("hours") ?? "24",
    type: given.get("type") ?? "",
    text: given.get("text") ?? "",
    order: given.get("order") ?? "",
    descending: given.get("descending") !== "false",
    skip: Number(given.get("skip")) || 0,
  };
  const spans = choose("Time range", SPANS, state.hours, { change: () => change({ hours: spans.value }) });
  const type = choose("Event type", [["", "All types"]], "", { change: () => change({ type: type.value }) });
  const search = h("input", {
    type: "search",
    "aria-label": "Search",
    placeholder: "Search field and reason",
    value: state.text,
    change: () => change({ text: search.value }),
  });
  form.append(spans, type, search);
  const query = () => pairs({ ...state, order: state.order || "received_at", limit: PAGE, skip: state.skip || "" });
  const again = live(
    shown,
    () => ask("data/dead-letters", query()).then((found) => ({ ...found, state: { ...state } })),
    30,
    (found) => {
      type.replaceChildren(
        ...choose("", [["", "All types"], ...new Set([...found.types, state.type].filter(Boolean))], state.type)
          .children,
      );
      type.value = state.type; // an option that moves between lists is chosen in the new one
      const skip = skipWithin(found.skip, PAGE, found.total);
      if (skip !== found.skip) change({ skip }); // dead letters leave the time range
      return drawn(found, change, again);
    },
  );

  function change(changes) {
    Object.assign(state, { skip: 0 }, changes);
    search.value = state.text;
    keepInAddress({
      ...state,
      hours: state.hours === "24" ? "" : state.hours,
      descending: state.order ? state.descending : "",
      skip: state.skip || "",
    });
    again();
  }
}

function drawn(found, change, again) {
  const { reasons, more_reasons: more, letters, total, state, course } = found;
  const heads = [["Received (UTC)", "received_at"], ["Type", "event_type"], ["Reason", "reason"], ["Sender", "sender"]]
    .map(([title, name]) => sortHead(title, name, { ...state, order: state.order || "received_at" }, change));
  const chosen = state.type || state.text;
  return [
    total
      ? chart({
        title: `Dead letters in each ${duration(course.step)}`,
        at: course.at,
        series: [{ name: "Received", values: course.letters }],
      })
      : null,
    h(
      "h2",
      {},
      "Reasons ",
      chosen
        ? h("button", { type: "button", click: () => change({ type: "", text: "" }) }, "Show all types and reasons")
        : null,
    ),
    table(
      [{ title: "Dead letters", number: true }, "Type", "Field", "Reason"],
      reasons.map((each) => [
        number(each.letters),
        typed(each.event_type),
        seen(each.field),
        h("button", {
          type: "button",
          class: "choice",
          title: "Show only these",
          click: () => change({ type: each.event_type ?? "", text: `${each.field}: ${each.reason}` }),
        }, seen(each.reason)),
      ]),
      chosen ? "No dead letters match." : "No event was rejected in this time range.",
      {
        caption: "The most frequent reasons",
        keys: reasons.map((each) => `${each.event_type} ${each.field} ${each.reason}`),
      },
    ),
    more ? h("p", { class: "quiet" }, `And ${count(more, "other reason")}.`) : null,
    letters.length
      ? [
        h("h2", {}, "Dead letters"),
        table(
          [...heads, { title: "Size", number: true }, "Record", "Sent again to"],
          letters.map((each) => [
            moment(each.received_at),
            typed(each.event_type),
            seen(`${each.field}: ${each.reason}`),
            seen(each.sender),
            bytes(each.bytes),
            recordLink("dead_letter", each.partition, each.offset, `${each.partition}:${each.offset}`),
            seen(each.sent),
          ]),
          "",
          {
            caption: "A record shows the bytes of the event, once it is archived",
            keys: letters.map((each) => `${each.partition}:${each.offset}`),
          },
        ),
        pager({
          skip: found.skip,
          limit: PAGE,
          shown: letters.length,
          more: found.skip + letters.length < total,
          total,
        }, (skip) => change({ skip })),
        next(found, again),
      ]
      : null,
  ];
}

// A sender may write anything as a type, but a name stays one word.
function typed(name) {
  if (name === null) return h("span", { class: "quiet" }, "Not given");
  return name.length > WORD ? value(name) : h("span", { class: "word" }, value(name));
}

// Only an event that is valid now is sent, so the event type or its file is mended first.
function next({ replay, may_replay: may, total, state }, again) {
  const { hours, type, text } = state;
  return [
    h("h2", {}, "Send them again"),
    h(
      "p",
      {},
      marked(
        "Mend the event type in `include/events/`, and send the events that are valid then. Each is sent once, however often you send, and keeps its times. If the producer has sent corrected events already, do not send these again.",
      ),
    ),
    sendAgain({
      may,
      label: `Send ${count(total, "dead letter")} again`,
      what: { chosen: { hours, type, text } },
      again,
    }),
    may ? h("p", { class: "quiet" }, "On the command line: ", h("code", {}, seen(replay))) : null,
  ];
}
