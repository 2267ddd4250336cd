// Analytics: the figures of one cube in a time range, by the values of a key column, beside the period before.
import { keepInAddress, pairs } from "./address.js";
import { eventsIn } from "./archived-events.js";
import { chart } from "./chart.js";
import { ask, live } from "./live.js";
import { count, duration, h, layerOf, link, number, positions, seen, table, value } from "./kit.js";
import { choose } from "./list.js";
import { keyConditions } from "./rows.js";

const FIXED = "fixed";
const RANGES = [["1", "Last hour"], ["24", "Last 24 hours"], ["168", "Last 7 days"], ["720", "Last 30 days"], [
  FIXED,
  "From … to …",
]];
const SECONDS = 10, LONG_SECONDS = 60; // between two answers, for ranges of up to a day and for longer ones
const HOUR = 3_600_000, DAY = 24 * HOUR; // milliseconds
const SHORT = 60; // characters of a value; its title has the whole text

export function show(given, { shown, form }) {
  const since = given.get("since") ?? "", until = given.get("until") ?? "";
  const state = {
    view: given.get("view") ?? "",
    hours: given.get("hours") ?? "24",
    since,
    until,
    by: given.get("by") ?? "",
    order: given.get("order") ?? "",
    where: given.getAll("where"),
  };
  let isFixed = since !== "", cubes = null, last = null, asked = "", offered = "";
  const place = h("section", { id: "events" }), events = eventsIn(place);
  shown.after(place);

  const again = live(
    shown,
    fetchFigures,
    SECONDS,
    (found) => (found.view ? drawn(found, state, change, events.show) : none()),
  );

  // A range that ended a day ago hardly changes, so its answer is kept. The figures of a long range are asked less often.
  async function fetchFigures() {
    cubes ??= (await ask("data/cubes")).cubes;
    if (!cubes.length) return { as_of: new Date().toISOString() };
    if (!state.view) state.view = cubes.includes("page_views") ? "page_views" : cubes[0];
    const query = question(), text = JSON.stringify(query);
    const seconds = secondsBetween();
    if (text !== asked || (Date.now() - Date.parse(last.as_of)) / 1000 >= seconds - 1) {
      last = await ask("data/analytics", query).catch(refused);
      asked = text;
    }
    offer(last);
    return last;
  }

  function secondsBetween() {
    const [since, until] = [state.since, state.until].map((each) => Date.parse(utc(each)));
    if (isFixed && until < Date.now() - DAY) return Infinity;
    const length = isFixed ? until - since : Number(state.hours) * HOUR;
    return length > DAY ? LONG_SECONDS : SECONDS;
  }

  // What was chosen can be changed if it is refused, too.
  function refused(error) {
    if (!last) offer({ ...state, keys: [state.by].filter(Boolean), columns: [{ name: state.order }].filter(named) });
    throw error;
  }

  function question() {
    const range = isFixed ? { since: utc(state.since), until: utc(state.until) } : { hours: state.hours };
    return pairs({ view: state.view, ...range, by: state.by, order: state.order, where: state.where });
  }

  function change(changes) {
    events.forget();
    Object.assign(state, changes);
    keepInAddress({
      ...state,
      hours: isFixed || state.hours === "24" ? "" : state.hours,
      since: isFixed ? state.since : "",
      until: isFixed ? state.until : "",
    });
    again();
  }

  // Each cube has its own key columns and figures.
  function offer(found) {
    const text = [found.view, isFixed, found.keys, state.by, found.order].join();
    if (text === offered) return;
    offered = text;
    const cube = choose("Cube", [...new Set([...cubes, found.view])], found.view, {
      change: () => change({ view: cube.value, by: "", order: "", where: [] }),
    });
    const range = choose("Time range", RANGES, isFixed ? FIXED : state.hours, {
      change: () => rangeChosen(range.value),
    });
    const by = choose(
      "Break down by",
      [["", "Total only"], ...found.keys.map((each) => [each, `By ${each}`])],
      state.by,
      {
        change: () => change({ by: by.value }),
      },
    );
    const order = choose("Figure", found.columns.map((each) => each.name), found.order, {
      change: () => change({ order: order.value }),
    });
    form.replaceChildren(cube, range, ...(isFixed ? ["since", "until"].map(end) : []), by);
    if (found.columns.length) form.append(order);
  }

  function end(name) {
    const label = name === "since" ? "From (UTC)" : "To (UTC)";
    const field = h("input", {
      type: "datetime-local",
      "aria-label": label,
      value: state[name],
      change: () => field.value && change({ [name]: field.value }),
    });
    return h("label", {}, `${label} `, field);
  }

  function rangeChosen(hours) {
    isFixed = hours === FIXED;
    if (isFixed) {
      return change({ since: minute(last?.since ?? Date.now() - DAY), until: minute(last?.until ?? Date.now()) });
    }
    return change({ hours, since: "", until: "" });
  }
}

function none() {
  return [
    h("h1", {}, "Analytics"),
    h("p", { class: "quiet" }, "No view with a time and sums or sketches has a table yet."),
  ];
}

function named({ name }) {
  return name !== "";
}

// A time in UTC to the minute, as a form writes it.
function minute(time) {
  return new Date(time).toISOString().slice(0, 16);
}

function utc(text) {
  return /Z|[+-]\d\d:\d\d$/.test(text) ? text : `${text}Z`;
}

function drawn(found, state, change, showEvents) {
  const { view, by, order, columns } = found;
  return [
    h("h1", {}, "Analytics", h("span", {}, " of ", link("view", { name: view }, view))),
    chips(state.where, change),
    layerOf(found.answer),
    drawing(found),
    table(
      [by || "Total", ...columns.map(head), { title: `${order} before`, number: true }, {
        title: "Change",
        number: true,
      }],
      [row(null, found.total, "All"), ...found.rows.map((each) => row(filterOf(each), each))],
      "",
      { caption: caption(found), keys: ["all", ...found.rows.map((each) => `value ${each.value}`)] },
    ),
    h("p", { class: "quiet" }, notes(found), details(found, state, showEvents)),
    h("p", { class: "quiet" }, "The figures contain the events up to these positions:"),
    positions(found.positions),
  ];

  // On a phone, a heading is the first part of its title.
  function head({ name, error, comment }) {
    const title = error ? h("span", {}, name, h("small", {}, ` ${within(error)}`)) : name;
    return { title, number: true, hint: comment || null };
  }

  // The button of a value adds a filter, unless the filter is there.
  function filterOf({ value: text }) {
    const [condition] = keyConditions([by], { [by]: text });
    return state.where.includes(condition) ? null : () => change({ where: [...state.where, condition] });
  }

  function row(filter, { value: text, figures, before, change: ratio }, label) {
    const properties = { type: "button", class: "choice", title: `Show only ${title(text)}`, click: filter };
    const shown = label ?? value(short(text));
    return [filter ? h("button", properties, shown) : shown, ...figures.map(figure), figure(before), changed(ratio)];
  }
}

function within(error) {
  return `±${number(100 * error, Number.isInteger(100 * error) ? 0 : 1)} %`;
}

function chips(where, change) {
  if (!where.length) return null;
  return h(
    "p",
    { class: "filters", role: "group", "aria-label": "Filters" },
    where.map((each) =>
      h(
        "span",
        { class: "filter", title: title(each) },
        h("span", { class: "value" }, title(short(each))),
        h("button", {
          type: "button",
          "aria-label": `Remove the filter ${title(short(each))}`,
          click: () => change({ where: where.filter((one) => one !== each) }),
        }, "×"),
      )
    ),
  );
}

function drawing(found) {
  const { course, order, state_rows: rows } = found;
  if (!rows) return h("p", {}, "No row of the view is in this range. Choose another range, or remove a filter.");
  return course.at.length > 1
    ? chart({ title: order, unit: "", write: figure, at: course.at, series: lines(course) })
    : null;
}

// A single value has the same course as the total, so the period before is more use.
function lines({ now, before, lines: values }) {
  if (values.length < 2) return [line("This period", now), ...(before.length ? [line("Period before", before)] : [])];
  return [line("Total", now), ...values.map((each) => line(title(short(each.value)), each.values))];
}

// PostgreSQL's numerics are texts in JSON.
function line(name, values) {
  return { name, values: values.map((each) => (each === null ? null : Number(each))) };
}

function figure(given) {
  return given === null ? "" : number(Number(given), Number.isInteger(Number(given)) ? 0 : 2);
}

function changed(ratio) {
  return ratio === null ? "" : `${ratio > 0 ? "+" : ""}${number(100 * ratio, 1)} %`;
}

function short(text) {
  return text?.length > SHORT ? `${text.slice(0, SHORT)}…` : text;
}

function title(text) {
  return text === null ? "NULL" : text === "" ? "(empty string)" : seen(text);
}

function caption({ since, until, before, incomparable, by, rows, more }) {
  const values = by
    ? ` ${more ? `The first ${count(rows.length, "value")}` : count(rows.length, "value")} of ${by}.`
    : "";
  const [begin, end, earlier] = [since, until, before].map((each) => minute(each).replace("T", " "));
  const compared = incomparable
    ? `not compared with the period before: ${incomparable}`
    : `compared with the same time from ${earlier}`;
  return `From ${begin} to ${end} UTC, ${compared}.${values}`;
}

function notes({ course, state_rows: rows, columns }) {
  const errors = columns.filter((each) => each.error).map(({ name, error }) => `${name} ${within(error)}`).join(", ");
  const sketched = errors
    ? `Relative errors: ${errors}. Sketches are united, so what is in several rows counts once. `
    : "";
  return `From ${count(rows, "row")} of the view. Each point is ${duration(course.step)}. ${sketched}`;
}

// The rows and the archived events behind the figures, and the figures as a file.
function details({ view, time, since, until, may_export: mayExport, by, order }, { where }, showEvents) {
  const range = [`${time}>=${since}`, `${time}<${until}`];
  const query = pairs({ view, since, until, by, order, where });
  return [
    link("view", pairs({ name: view, where: [...where, ...range] }), "Show the rows"),
    mayExport
      ? [
        " · ",
        h("button", { type: "button", class: "choice", click: () => showEvents(query) }, "Show the events"),
        " · ",
        link("export/analytics.csv", query, "CSV", { download: true }),
      ]
      : null,
  ];
}
