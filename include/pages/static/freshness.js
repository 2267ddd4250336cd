// Freshness: several readers compared over time, and the worst of them.
import { keepInAddress, pairs } from "./address.js";
import { chart } from "./chart.js";
import { SPANS } from "./lag.js";
import { ask, live } from "./live.js";
import { duration, h, link, marked, table } from "./kit.js";
import { toReader } from "./links.js";
import { asked, timeRange } from "./time-range.js";
import { checkService } from "./rights.js";

export function show(given, { shown, form }) {
  const state = { reader: given.getAll("reader"), hours: given.get("hours") ?? "1", until: given.get("until") ?? "" };
  const boxes = h("details", { id: "columns" }, h("summary", {}, "Readers"));
  form.append(...timeRange(state, SPANS, change), boxes);
  const again = live(
    shown,
    () => ask("data/freshness", pairs({ ...asked(state), reader: state.reader })),
    10,
    (found) => {
      if (boxes.children.length === 1 && found.readers.length) {
        state.reader = found.series.map((one) => one.reader); // others may be the worst at the next poll
        offer(found);
      }
      return drawn(found);
    },
  );

  function change(changes) {
    Object.assign(state, changes);
    keepInAddress(state);
    again();
  }

  // One box for each reader. When as many are chosen as a chart can show, the others cannot be added.
  function offer({ readers, series, most }) {
    const inputs = readers.map((each) =>
      h("input", {
        type: "checkbox",
        value: each,
        checked: series.some((one) => one.reader === each),
        change: () => {
          limit();
          change({ reader: inputs.filter((box) => box.checked).map((box) => box.value) });
        },
      })
    );
    const limit = () => {
      const full = inputs.filter((box) => box.checked).length >= most;
      inputs.forEach((box) => {
        box.disabled = full && !box.checked;
      });
    };
    boxes.append(
      ...inputs.map((box, n) => h("label", {}, box, ` ${readers[n]}`)),
      h("small", {}, ` At most ${most}. By default, the readers that are the furthest behind.`),
    );
    limit();
  }
}

function drawn({ at, step, series, changes }) {
  if (!series.length) {
    return h(
      "p",
      { class: "quiet" },
      marked(`No samples in this time range. ${checkService("lag")}`),
    );
  }
  const worst = at.map((_, i) =>
    series.map((one) => one.seconds[i]).reduce((a, b) => (a === null || b === null ? null : Math.max(a, b)))
  );
  const last = (values) => values.findLast((each) => each !== null) ?? null;
  return [
    h("h1", {}, "Freshness"),
    chart({
      title: "Freshness",
      unit: "time",
      at,
      changes,
      series: [
        { name: "Worst", values: worst },
        ...series.map((each) => ({ name: each.reader, values: each.seconds })),
      ],
    }),
    table(
      ["Reader", { title: "Freshness", number: true }, ""],
      series.map((
        each,
      ) => [toReader(each.reader), duration(last(each.seconds)), link("lag", { reader: each.reader }, "Lag")]),
      "",
      { caption: "The newest known sample of each reader", keys: series.map((each) => each.reader) },
    ),
    h("p", { class: "quiet" }, `Each point is the last sample within ${duration(step)}.`),
  ];
}
