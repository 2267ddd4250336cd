// The archived events behind figures, which are read only when the user asks for them.
import { ask, latest } from "./live.js";
import { count, h, moment, number, table, value } from "./kit.js";
import { recordLink } from "./records.js";

const PLACE = ["partition", "offset", "broker_time", "event_time", "event_id"];

// A later call of `show` or of `forget` drops an answer that is still on its way.
export function eventsIn(place) {
  const read = latest((query) => ask("data/analytics/events", query).then(({ topics }) => topics.map(drawn), refused));

  function forget() {
    read.drop();
    place.replaceChildren();
  }

  async function show(query) {
    place.replaceChildren(h("p", { class: "quiet", role: "status" }, "Reading the archive …"));
    place.replaceChildren(h("h2", {}, "Archived events"), ...await read(query));
  }

  return { forget, show };
}

function refused(error) {
  return [h("p", { class: "means" }, error.message)];
}

function drawn({ topic, number: all, events, applied, open }) {
  const fields = Object.keys(events[0] ?? {}).filter((name) => !PLACE.includes(name));
  const heads = ["Record", "Event time (UTC)", "Event id", ...fields];
  const cells = (event) => [
    recordLink(topic, event.partition, event.offset),
    moment(event.event_time),
    value(event.event_id),
    ...fields.map((name) => value(event[name])),
  ];
  const newest = all > events.length ? ` The newest ${number(events.length)} are shown.` : "";
  const left = open.length ? ` The filter on ${open.join(", ")} does not apply: ${topic} has no such field.` : "";
  const fitting = applied.length ? `, with this ${applied.join(" and ")}` : "";
  const caption = `${count(all, "archived event")} of ${topic} in this range${fitting}.${newest}${left}`;
  const keys = events.map((event) => `${topic} ${event.partition}:${event.offset}`);
  return table(heads, events.map(cells), caption, { caption, keys });
}
