// Marks of releases, restarts, repairs and backfills in a chart. Each mark is a link to what it shows.
import { leaveFrame, moment, s, seen } from "./kit.js";
import { markAddress } from "./links.js";
import { operation } from "./operations.js";

// `place` gives the position of a time in seconds. Marks at one position are one mark. What happened after the last
// point began is at that point.
export function changeMarks(changes, first, last, place, bottom) {
  const by = new Map();
  for (const each of changes) {
    const time = Math.min(last, Date.parse(each.begins) / 1000), x = Math.round(place(time));
    if (time >= first) by.set(x, [...(by.get(x) ?? []), each]);
  }
  return [...by].map(([x, together]) => {
    const href = markAddress(together[0]);
    const told = together.map((each) => `${operation(each.kind)} ${seen(each.subject)}: ${moment(each.begins)} UTC`);
    return s(
      "a",
      { class: "change", href, "data-key": `change-${x}`, click: href.startsWith("../") ? leaveFrame : null },
      s("title", {}, told.join("\n")),
      s("line", { x1: x, x2: x, y1: 4, y2: bottom }),
      s("path", { d: `M${x - 4} 0L${x + 4} 0L${x} 7Z` }),
    );
  });
}
