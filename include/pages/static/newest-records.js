// The newest records of a topic, of one key if wanted, and how to go back in time. A list is read once, because each
// look at records is recorded.
import { keepInAddress, pairs } from "./address.js";
import { badge, bytes, h, moment, number, seen, table, value } from "./kit.js";
import { choose } from "./list.js";
import { ask, latest } from "./live.js";
import { recordLink } from "./records.js";

const HEADS = ["Record", "Appended (UTC)", "Key", "State", { title: "Size", number: true }, "Value"];

// Returns the form, and two functions: `drawn` draws the list, and `clear` removes the list.
export function newestRecords(topics, given, again) {
  const state = Object.fromEntries(["list", "key", "until"].map((each) => [each, given.get(each) ?? ""]));
  const read = latest((from) =>
    ask("data/records", pairs({ topic: state.list, key: state.key, ...from })).catch((error) => ({
      trouble: error.message,
    }))
  );
  let found = null;
  const topic = choose("Topic of the list", topics, state.list);
  const key = h("input", { "aria-label": "Key", placeholder: "Any key", value: state.key });
  const until = h("input", {
    title: "Empty for the newest records",
    type: "datetime-local",
    step: 1,
    value: state.until,
  });
  const form = h(
    "form",
    {
      "aria-label": "Newest of a topic",
      submit: (event) => {
        event.preventDefault();
        Object.assign(state, { list: topic.value, key: key.value, until: until.value });
        keepInAddress({ ...state, topic: "", partition: "", offset: "" });
        look({ until: state.until && `${state.until}Z` });
      },
    },
    topic,
    key,
    h("label", {}, "Until (UTC) ", until),
    h("button", {}, "List records"),
  );
  if (state.list) look({ until: state.until && `${state.until}Z` });

  async function look(from) {
    found = await read(from);
    again();
  }

  function clear() {
    read.drop();
    found = null;
    Object.assign(state, { list: "", key: "", until: "" });
    keepInAddress(state);
  }

  function older() {
    const { broker_time, partition, offset } = found.records.at(-1);
    look({ until: broker_time, partition, offset });
  }

  return { form, clear, drawn: () => found ? drawn(found, older) : [] };
}

function drawn({ topic, records, more, trouble }, older) {
  if (trouble) return [h("p", { role: "alert", class: "means" }, trouble)];
  return [
    h("h2", {}, `Records of ${topic}, newest first`),
    table(HEADS, records.map((each) => row(topic, each)), "No record is archived before this time.", {
      keys: records.map((each) => `${each.partition}:${each.offset}`),
    }),
    h("p", { class: "pager" }, h("button", { type: "button", disabled: !more, click: older }, "Older records")),
  ];
}

function row(topic, each) {
  const [kind, label, why] = each.erased
    ? ["UNKNOWN", "Erased"]
    : each.rejected
    ? ["FAILED", "Rejected", each.rejected]
    : each.invalid
    ? ["FAILED", "Invalid", each.invalid]
    : ["PASSED", "Valid"];
  return [
    recordLink(topic, each.partition, each.offset, `${each.partition}:${number(each.offset)}`),
    moment(each.broker_time),
    value(each.key),
    h("span", {}, badge(kind, label), why ? h("small", {}, ` ${seen(why)}`) : null),
    bytes(each.bytes),
    value(each.is_cut ? `${each.value}…` : each.value),
  ];
}
