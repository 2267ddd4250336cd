// Analytics: the figures of one cube in a time range, by the values of a key column, beside the period before.
import { keepInAddress, pairs } from "./address.js";
import { eventsIn } from "./archived-events.js";
import { bars } from "./bars.js";
import { chart } from "./chart.js";
import { ask, live } from "./live.js";
import {
  ago,
  count,
  duration,
  h,
  layerOf,
  link,
  moment,
  number,
  positions,
  seen,
  seenLines,
  table,
  value,
} from "./kit.js";
import { choose } from "./list.js";
import { keyConditions } from "./rows.js";
import { reasonFor } from "./rights.js";

const RANGES = [["1", "Last hour"], ["24", "Last 24 hours"], ["168", "Last 7 days"], ["720", "Last 30 days"]];
const FIXED = "fixed", CHOICES = [...RANGES, [FIXED, "From … to …"]];
const LINES = "", BARS = "bars";
const SECONDS = 10, LONG_SECONDS = 60; // between two answers, for ranges of up to a day and for longer ones
const HOUR = 3_600_000, DAY = 24 * HOUR, LONG = 7 * DAY; // milliseconds
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
    chart: given.get("chart") ?? LINES,
    where: given.getAll("where"),
  };
  let isFixed = since !== "", cubes = [], last = null, asked = "", answeredAt = -Infinity, offered = "";
  const place = h("section", { id: "events", "aria-label": "Archived events" }), events = eventsIn(place);
  shown.after(place);

  const again = live(
    shown,
    fetchFigures,
    SECONDS,
    (found) => (found.view ? drawn(found, state, change, events.show) : none()),
  );

  // A range that ended a day ago hardly changes, so its answer is kept. The figures of a long range are asked less often.
  async function fetchFigures() {
    // The clock of the server may show another time.
    const isDue = (performance.now() - answeredAt) / 1000 >= secondsBetween() - 1;
    if (!cubes.length || isDue) {
      const found = await ask("data/cubes"); // a cube appears once it has a table
      cubes = found.cubes;
      if (!cubes.length) return found;
    }
    if (!state.view) state.view = cubes.includes("page_views") ? "page_views" : cubes[0];
    const query = question(), text = JSON.stringify(query);
    if (text !== asked || isDue) {
      const found = await ask("data/analytics", query).catch((error) => refused(error, text));
      if (!isAsked(text)) return found; // `live` drops it, too
      last = found;
      asked = text;
      answeredAt = performance.now();
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

  // While an answer was on its way, the user may have chosen other data.
  function isAsked(text) {
    return text === JSON.stringify(question());
  }

  // What was chosen can be changed if it is refused, too.
  function refused(error, text) {
    if (!last && isAsked(text)) {
      offer({ ...state, keys: [state.by].filter(Boolean), columns: [{ name: state.order }].filter(named) });
    }
    throw error;
  }

  function question() {
    const range = isFixed ? { since: utc(state.since), until: utc(state.until) } : { hours: state.hours };
    return pairs({ view: state.view, ...range, by: state.by, order: state.order, where: state.where });
  }

  function change(changes) {
    events.forget();
    remember(changes);
    again();
  }

  function remember(changes) {
    Object.assign(state, changes);
    keepInAddress({
      ...state,
      hours: isFixed || state.hours === "24" ? "" : state.hours,
      since: isFixed ? state.since : "",
      until: isFixed ? state.until : "",
    });
  }

  // Each cube has its own key columns and figures. The field that had the focus has it again.
  function offer(found) {
    const text = [cubes, found.view, isFixed, found.keys, state.by, found.order].join();
    if (text === offered) return;
    offered = text;
    const cube = choose("Cube", [...new Set([...cubes, found.view])], found.view, {
      change: () => change({ view: cube.value, by: "", order: "", where: [] }),
    });
    const range = choose("Time range", CHOICES, isFixed ? FIXED : state.hours, {
      change: () => rangeChosen(range.value),
    });
    const keys = [["", "Total only"], ...found.keys.map((each) => [each, `By ${each}`])];
    const by = choose("Break down by", keys, state.by, { change: () => change({ by: by.value }) });
    const order = choose("Figure", found.columns.map((each) => each.name), found.order, {
      change: () => change({ order: order.value }),
    });
    const kind = choose("Chart", [[LINES, "Lines over time"], [BARS, "Bars by value"]], state.chart, {
      change: () => {
        remember({ chart: kind.value });
        again.redraw();
      },
    });
    const focused = form.contains(document.activeElement) && document.activeElement.getAttribute("aria-label");
    form.replaceChildren(cube, range, ...(isFixed ? ["since", "until"].map(end) : []), by);
    if (found.columns.length) form.append(order);
    if (state.by) form.append(kind);
    if (focused) form.querySelector(`[aria-label="${focused}"]`)?.focus({ preventScroll: true });
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

  // The fields begin with the range that was chosen before, which may not be answered yet. A long range has whole hours,
  // so it is read from an hourly cube.
  function rangeChosen(hours) {
    isFixed = hours === FIXED;
    if (!isFixed) return change({ hours, since: "", until: "" });
    const now = Date.now(), length = Number(state.hours) * HOUR;
    const ends = length > LONG ? now - now % HOUR : now;
    return change({ since: minute(ends - length), until: minute(ends) });
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
    drawing(found, state.chart),
    table(
      [by || "Total", ...columns.map(head), { title: `${order} before`, number: true }, {
        title: "Change",
        number: true,
      }],
      [row(null, found.total, "All"), ...found.rows.map((each) => row(filterOf(each), each))],
      "",
      { caption: caption(found), keys: ["all", ...found.rows.map((each) => `value ${each.value}`)] },
    ),
    h("p", { class: "quiet" }, windows(found), notes(found), details(found, state, showEvents)),
    h("p", { class: "quiet" }, "The figures contain the events up to these positions:"),
    positions(found.positions),
    proved(found),
    statement(found),
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
    const own = label ? [] : keyConditions([by], { [by]: text });
    const cells = figures.map((each) => eventsBehind(each, [...new Set([...state.where, ...own])]));
    return [filter ? h("button", properties, shown) : shown, ...cells, figure(before), changed(ratio)];
  }

  // A figure shows its events, if the user may see them.
  function eventsBehind(given, where) {
    const click = () => showEvents(query(found, where));
    const properties = { type: "button", class: "choice", title: "Show the events behind this figure", click };
    return found.may_export && given !== null ? h("button", properties, figure(given)) : figure(given);
  }
}

// How many windows are open, complete or corrected, or from when on events may be missing.
function windows({ windows: counts, open_from: open }) {
  const texts = Object.entries(counts).map(([status, n]) => `${number(n)} ${status}`);
  if (texts.length) return `Windows: ${texts.join(", ")}. `;
  return open === null ? null : `From ${moment(open)} UTC on, figures may still grow. `;
}

// Events that came since then are in the figures, too.
function proved({ source: view, answer, as_of: now }) {
  const comparisons = link("reconciliations", { view }, "comparison with a rebuild");
  const text = answer?.proved_at
    ? ["The last ", comparisons, " that found the view equal ended ", ago(answer.proved_at, now), "."]
    : ["No ", comparisons, " has found the view equal yet."];
  return h("p", { class: "quiet", id: "proved" }, text);
}

// The same question, for other routes.
function query({ view, since, until, by, order }, where) {
  return pairs({ view, since, until, by, order, where });
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

// Bars compare many values. Lines show the course of the largest ones, if the range has several steps.
function drawing(found, kind) {
  const { course, order, by, state_rows: rows, open_from: open } = found;
  const since = course.at[0], step = course.step;
  // The step that contains the moment is open.
  const openFrom = open === null ? undefined : since + Math.floor((Date.parse(open) / 1000 - since) / step) * step;
  if (!rows) return h("p", {}, "No row of the view is in this range. Choose another range, or remove a filter.");
  const drawn = by && (kind === BARS || course.at.length < 2) ? barsOf(found) : null;
  if (drawn) return drawn;
  return course.at.length > 1
    ? chart({ title: order, unit: "", write: figure, at: course.at, series: lines(course), openFrom })
    : null;
}

function barsOf({ rows, columns, order, by }) {
  const place = columns.findIndex(({ name }) => name === order);
  const amount = (given) => (given === null ? null : Number(given));
  return bars({
    title: order,
    by,
    write: figure,
    rows: rows.map(({ value: text, figures, before }) => ({
      name: title(text),
      value: amount(figures[place]),
      before: amount(before),
    })),
  });
}

// The statement of the table, for other tools.
function statement({ sql, sql_for_readers: isForReaders }) {
  return h(
    "details",
    { id: "sql" },
    h("summary", {}, "SQL"),
    h(
      "p",
      { class: "quiet" },
      isForReaders
        ? "Any reader of views can run this statement."
        : "Only the owner of the database can run this statement. Readers see the estimate of each row, and estimates cannot be added.",
    ),
    h("pre", { class: "raw", tabindex: 0, role: "region", "aria-label": "SQL" }, seenLines(sql)),
  );
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

function notes({ source, course, state_rows: rows, columns }) {
  const errors = columns.filter((each) => each.error).map(({ name, error }) => `${name} ${within(error)}`).join(", ");
  const sketched = errors
    ? `Relative errors: ${errors}. Sketches are united, so what is in several rows counts once. `
    : "";
  return `From ${count(rows, "row")} of ${source}. Each point is ${duration(course.step)}. ${sketched}`;
}

// The rows and the archived events behind the figures, and the figures as a file.
function details(found, { where }, showEvents) {
  const { source, time, since, until, may_export: mayExport } = found;
  const range = [`${time}>=${since}`, `${time}<${until}`];
  return [
    link("view", pairs({ name: source, where: [...where, ...range] }), "Show the rows"),
    mayExport
      ? [
        " · ",
        h(
          "button",
          { type: "button", class: "choice", click: () => showEvents(query(found, where)) },
          "Show the events",
        ),
        " · ",
        link("export/analytics.csv", query(found, where), "CSV", { download: true }),
      ]
      : [" · ", reasonFor("compare", false, "Events and CSV")],
  ];
}
