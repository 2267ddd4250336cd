// One archived record with its raw bytes, and the records that views skip. A record is read once, because each look at
// it is recorded.
import { keepInAddress, pairs } from "./address.js";
import { ask, latest, live } from "./live.js";
import { badge, bytes, h, link, moment, number, seen, seenLines, sentence, table, value } from "./kit.js";
import { SPANS as LETTER_SPANS } from "./dead-letters.js";
import { choose } from "./list.js";
import { newestRecords } from "./newest-records.js";
import { recordLink } from "./records.js";
import { reasonFor } from "./rights.js";
import { keyConditions } from "./rows.js";
import { sendAgain } from "./send-again.js";

const PLACE = ["topic", "partition", "offset"];
const HOUR = 3_600_000; // milliseconds
const DAY = 24; // hours, which the list of dead letters has by default
const STATES = { COUNTED: ["EQUAL", "Counted"], WAITING: ["WARNING", "Not read yet"], SKIPPED: ["FAILED", "Skipped"] };
const RULES = ["event_time", "record"]; // what a rejection names if a rule about several fields was broken
const SEARCHES = {
  done: () => "Not counted: a newer record replaced it, or the view excludes it.",
  "too slow": () => "The search took longer than a second.",
  "not stored": (
    view,
  ) => [
    "Its rows do not name their records, so only a Spark job can tell. ",
    link("view", { name: view }, "Choose a row"),
    " of the view, and Explain lists the records behind it.",
  ],
};

export function show(given, { shown, form }) {
  const view = given.get("view") ?? "", version = given.get("version") ?? "";
  const skips = version ? `version ${version} of ${view} skips` : view ? `${view} skips` : "views skip";
  const state = Object.fromEntries(PLACE.map((each) => [each, given.get(each) ?? ""]));
  let current = null; // the record that is shown, or why there is none
  const read = latest((place) => ask("data/record", place).catch((error) => ({ trouble: error.message })));
  let newest = null; // the list of a topic's newest records, for users who may look at records
  const again = live(
    shown,
    () => ask("data/skipped", pairs({ view, version })).then((found) => ({ ...found, current })),
    30,
    (found) => {
      if (!form.hasChildNodes() && found.may_read) {
        newest = newestRecords(found.topics, given, again);
        form.append(newest.form);
        begin(found, state, form, find);
      }
      return [
        ...heading(found),
        ...(newest?.drawn() ?? []),
        h("h2", {}, `Records that ${skips}`),
        skippedTable(found),
      ];
    },
  );

  async function find(place) {
    newest?.clear();
    keepInAddress(place);
    current = { ...await read(place), place: `${place.topic} ${place.partition}:${place.offset}` };
    again();
  }
}

function heading({ may_read: mayRead, current }) {
  if (!mayRead) {
    return [
      h("h1", {}, "Records"),
      h("p", { class: "quiet" }, "You may not look at records. ", reasonFor("compare", false)),
    ];
  }
  if (!current) return [h("h1", {}, "Records")];
  return [
    h("h1", {}, current.place),
    ...(current.trouble ? [h("p", { role: "alert", class: "means" }, current.trouble)] : drawn(current)),
  ];
}

// The rejected event first, as it was posted; the bytes of its envelope follow.
function rejected({ letter: l, may_replay: may, record: r }) {
  if (!l) return [];
  const wrong = l.field.split(".")[0], fields = Object.entries(l.fields);
  const place = l.sent?.place;
  return [
    h("p", {}, badge("FAILED", "Rejected"), " ", h("span", { class: "means" }, seen(`${l.field}: ${l.reason}`))),
    h(
      "dl",
      {},
      [
        ["Meant for", l.event_type === null ? "The event names no type" : value(l.event_type)],
        ["Sender", seen(l.sender)],
        ["Received (UTC)", moment(l.received_at)],
        [
          "Now",
          place
            ? h("span", {}, "Sent again: ", recordLink(l.sent.topic, ...place))
            : l.sent
            ? "An interrupted replay may have sent it; the next replay finds out"
            : l.still_wrong
            ? h("span", {}, badge("FAILED", "Still invalid"), " ", seen(l.still_wrong))
            : h("span", {}, badge("PASSED", "Valid now"), ` for ${l.topic}`),
        ],
      ].map(([name, content]) => h("div", {}, h("dt", {}, name), h("dd", {}, content))),
    ),
    h("h2", {}, "The event"),
    fields.length
      ? table(
        ["Field", "Value", ""],
        fields.map(([name, content]) => [
          seen(name),
          value(content),
          name === wrong ? badge("FAILED", "Rejected field") : "",
        ]),
      )
      : null,
    fields.length && !RULES.includes(wrong) && fields.every(([name]) => name !== wrong)
      ? h("p", { class: "means" }, `The event has no field ${seen(l.field)}.`)
      : null,
    h(
      "details",
      { id: "posted", open: !fields.length },
      h("summary", {}, "As it was posted"),
      h("pre", { class: "raw" }, seenLines(l.text)),
    ),
    l.sent ? null : sendAgain({
      may,
      label: "Send it again",
      what: { one: { partition: r.partition, offset: r.offset } },
      again: () => location.reload(),
    }),
    h("p", {}, link("dead-letters", alike(l), "Dead letters with this reason")),
    h("h2", {}, "Its record"),
  ];
}

// The list of the dead letters with the same reason, in the shortest of its time ranges that contains this one.
function alike({ received_at: received, event_type: type, reason }) {
  const age = (Date.now() - Date.parse(received)) / HOUR;
  const [hours] = LETTER_SPANS.find(([each]) => each >= Math.max(DAY, age)) ?? LETTER_SPANS.at(-1);
  return { hours, type: type ?? "", text: reason };
}

function begin({ topics }, state, form, find) {
  const topic = choose("Topic", topics, state.topic);
  const field = (name) =>
    h("input", {
      "aria-label": sentence(name),
      placeholder: sentence(name),
      type: "number",
      min: 0,
      required: true,
      value: state[name],
    });
  const [partition, offset] = [field("partition"), field("offset")];
  form.append(
    h(
      "form",
      {
        "aria-label": "Record",
        submit: (event) => {
          event.preventDefault();
          find({ topic: topic.value, partition: partition.value, offset: offset.value });
        },
      },
      topic,
      partition,
      offset,
      h("button", {}, "Show record"),
    ),
    h("small", {}, "Each look at a record is recorded with your name."),
  );
  if (PLACE.every((each) => state[each] !== "")) find(state);
}

function drawn(current) {
  const { record: r, readers, letter } = current, fields = letter ? [] : Object.entries(r.fields);
  return [
    ...rejected(current),
    letter ? null : h(
      "p",
      {},
      badge(
        r.erased ? "UNKNOWN" : r.invalid ? "FAILED" : "PASSED",
        r.erased ? "Erased" : r.invalid ? "Invalid" : "Valid",
      ),
      " ",
      r.invalid ? h("span", { class: "means" }, seen(r.invalid)) : null,
    ),
    h(
      "dl",
      {},
      [
        ["Appended (UTC)", moment(r.broker_time)],
        ["Event version", r.version ? number(r.version) : "Not registered"],
        ["Key", value(r.key)],
        ["Size", bytes(r.bytes)],
        ["Topic id", h("span", { class: "value" }, r.topic_id)],
      ]
        .map(([name, content]) => h("div", {}, h("dt", {}, name), h("dd", {}, content))),
    ),
    letter ? null : h("h2", {}, "Views that read this topic"),
    letter
      ? null
      : table(["View", "State", "Rows that name the record"], readers.map(reader), "No view reads this topic.", {
        keys: readers.map((each) => each.view),
      }),
    h("h2", {}, "Raw value"),
    r.value === null ? value(null) : h("pre", { class: "raw" }, seenLines(r.value)),
    r.bytes > r.shown_bytes
      ? h("p", { class: "quiet" }, `The first ${bytes(r.shown_bytes)} of ${bytes(r.bytes)}.`)
      : null,
    fields.length ? h("h2", {}, "Decoded fields") : null,
    fields.length ? table(["Field", "Value"], fields.map(([name, content]) => [name, value(content)])) : null,
    h("h2", {}, "Headers"),
    table(["Header", "Value"], r.headers.map(([name, content]) => [seen(name), value(content)]), "No headers."),
  ];
}

// Line breaks of the value are kept; other invisible characters are shown as their codes.
function reader({ view, state, reason, search, keys }) {
  const [kind, label] = STATES[state];
  return [
    link("view", { name: view }, view),
    h("span", {}, badge(kind, label), reason ? h("small", {}, ` ${seen(reason)}`) : null),
    keys.length
      ? keys.map((each, i) => [i ? ", " : "", rowOf(view, each)])
      : h("span", { class: "quiet" }, state === "COUNTED" ? SEARCHES[search](view) : ""),
  ];
}

function rowOf(view, { side, key }) {
  const where = keyConditions(Object.keys(key), key) ?? [];
  const relation = side ? [["relation", `${view}_${side}`]] : [];
  return link(
    "view",
    [["name", view], ...relation, ...where.map((each) => ["where", each])],
    seen(`${side ? `${side}: ` : ""}${Object.values(key).join(", ")}`),
  );
}

function skippedTable({ skipped }) {
  return table(
    ["Record", "View", { title: "Version", number: true }, "Error"],
    skipped.map((each) => [
      recordLink(each.topic, each.partition, each.offset),
      link("view", { name: each.view }, each.view),
      number(each.version),
      h("span", { class: "means" }, seen(each.error)),
    ]),
    "No view skips a record.",
    { keys: skipped.map((each) => `${each.view} ${each.topic} ${each.partition}:${each.offset}`) },
  );
}
