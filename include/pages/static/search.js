// A stored search. Each hit shows the text around the words that were found.
import { moment, seen, value } from "./kit.js";
import { showRule } from "./rule.js";

export const show = showRule.bind(null, {
  kind: "search",
  counted: "Hits by the time at which their events reached the log",
  newest: "Newest hits",
  heads: ["Event time (UTC)", "Document", "Text"],
  key: (each) => `${each.document} ${each.logged_at}`,
  cells: (each) => [moment(each.event_time), value(each.document), seen(each.snippet ?? "")],
});
