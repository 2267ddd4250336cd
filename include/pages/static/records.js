// Coordinates of records in texts, such as `page_view 0:[1200, 1320)` or `page_view 0:1200`, as links to the records.
import { link, seen } from "./kit.js";

const COORDINATES = /([a-z][a-z0-9_]*) (\d+):(?:\[(\d+), \d+\)|(\d+))/g;

export function withRecords(text) {
  const parts = [];
  let end = 0;
  for (const found of text.matchAll(COORDINATES)) {
    const [whole, topic, partition, first, alone] = found;
    parts.push(seen(text.slice(end, found.index)), recordLink(topic, partition, first ?? alone, whole));
    end = found.index + whole.length;
  }
  return [...parts, seen(text.slice(end))];
}

// The records that a row names in its columns: `topic`, `partition` and `offset`, or the same with a prefix.
export function recordsIn(row) {
  return Object.keys(row).filter((each) => /(^|_)topic$/.test(each) && row[each]).flatMap((each) => {
    const [partition, offset] = ["partition", "offset"].map((name) => row[each.replace(/topic$/, name)]);
    return [partition, offset].some((n) => n === null || n === undefined)
      ? []
      : [recordLink(row[each], partition, offset)];
  });
}

export function recordLink(topic, partition, offset, text = `${topic} ${partition}:${offset}`) {
  return link("record", { topic, partition, offset }, seen(text));
}
