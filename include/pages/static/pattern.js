// A pattern rule. Each match lists its events, which lead to their records.
import { badge, h, moment, seen } from "./kit.js";
import { recordLink } from "./records.js";
import { showRule } from "./rule.js";

const BADGES = { found: "OK", late: "WARN", retracted: "RETRACTED", "too costly": "FAILED", waiting: "UNUSED" };

export const show = showRule.bind(null, {
  kind: "pattern",
  counted: "Matches by the time of their last event",
  newest: "Newest matches",
  heads: ["First event (UTC)", "Last event (UTC)", "Entity", "Outcome", "Shows", "Events"],
  key: (each) => each.match_id,
  cells: (each) => [
    moment(each.first_time),
    moment(each.last_time),
    seen(each.entity_id ?? ""),
    h(
      "span",
      {},
      badge(BADGES[each.outcome] ?? "WARN", each.outcome),
      each.settled_after ? h("small", {}, ` shown after ${moment(each.settled_after)}`) : null,
    ),
    h("small", { class: "value" }, seen(Object.entries(each.shown ?? {}).map(([k, v]) => `${k}=${v}`).join(" "))),
    h("span", {}, (each.events ?? []).map((event) => [step(event), " "])),
  ],
});

function step(event) {
  return recordLink(event.topic, event.partition, event.offset, event.step);
}
