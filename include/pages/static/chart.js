// Line charts over time, as SVG. Unknown values leave a gap, and a time without any value is shaded. The pointer shows the same moment in all charts of a page.
import { h, number, s } from "./kit.js";
import { changeMarks } from "./change-marks.js";
import { patch } from "./patch.js";
import { chartWidth, pointText, roundTimes, tickText } from "./time-axis.js";

const HEIGHT = 220, LEFT = 62, BOTTOM = 22, TOP = 8, RIGHT = 8;
// Each unit with its seconds, and with the seconds from which it is used.
const UNITS = [["days", 86400, 172800], ["h", 3600, 7200], ["min", 60, 120], ["s", 1, 0]];
const hidden = new Set(); // the series that the user has switched off, by chart and name

// `unit` "time" divides seconds into the unit that fits the highest value, so that one axis has one unit.
export function chart(given) {
  const { title, at, series, unit } = given;
  const width = chartWidth(), first = at[0], last = Math.max(at.at(-1), first + 1);
  const lines = withValues(series.map((each, n) => ({ ...each, n, hidden: hidden.has(`${title} ${each.name}`) })));
  // Many partitions have more values than a call can have arguments.
  const highest = lines.filter((each) => !each.hidden).flatMap((each) => each.values)
    .reduce((most, v) => Math.max(most, v ?? 0), unit === "time" ? 0.1 : 1);
  const { write, top, label } = axis(given, highest);
  const { step, times } = roundTimes(first, last, width - LEFT - RIGHT);
  const place = (time) => LEFT + ((width - LEFT - RIGHT) * (time - first)) / (last - first);
  const x = (i) => place(at[i]);
  const y = (v) => HEIGHT - BOTTOM - ((HEIGHT - BOTTOM - TOP) * v) / top;
  return h(
    "figure",
    {
      class: "chart",
      "data-key": `chart-${title}`,
      "data-points": at.length,
      point: (event) => point(event, lines, at, write, x),
      redraw: ({ currentTarget: old }) => patch(old, chart(given).childNodes),
    },
    h(
      "figcaption",
      {},
      h("strong", {}, label ? `${title} (${label}), UTC` : `${title}, UTC`),
      legend(title, lines),
      h("p", { class: "readout", "data-own": "" }),
    ),
    s(
      "svg",
      {
        viewBox: `0 0 ${width} ${HEIGHT}`,
        role: given.changes?.length ? "group" : "img", // an image has no links
        "aria-label": title,
        pointermove: (event) => aim(event, at, width),
        pointerleave: (event) => aimAll(event.currentTarget, -1),
      },
      [0, 0.25, 0.5, 0.75, 1].map((share) =>
        s(
          "g",
          {},
          s("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(top * share), y2: y(top * share) }),
          s("text", { x: LEFT - 6, y: y(top * share) + 4, "text-anchor": "end" }, write(top * share)),
        )
      ),
      times.map((time) =>
        s("text", { x: place(time), y: HEIGHT - 6, "text-anchor": anchor(place(time), width) }, tickText(time, step))
      ),
      gaps(lines, at).map(([begin, end]) => shade(place(begin), place(end), "", "No sample")),
      given.openFrom <= last ? shade(place(given.openFrom), place(last), "open", "May still grow") : null,
      changeMarks(given.changes ?? [], first, last, place, HEIGHT - BOTTOM),
      lines.filter((each) => !each.hidden).map((each) =>
        s("path", { "data-key": each.name, class: `line ${style(each.n)}`, d: path(each.values, x, y) })
      ),
      lines.filter((each) => !each.hidden).map((each) =>
        s("path", {
          "data-key": `${each.name} alone`,
          class: `line alone line-${each.n % 8}`,
          d: alone(each.values, x, y),
        })
      ),
      s("line", {
        class: "pointer",
        "data-own": "",
        "data-key": "pointer",
        y1: TOP,
        y2: HEIGHT - BOTTOM,
        visibility: "hidden",
      }),
    ),
  );
}

// A line without any value needs no place in the legend, unless no line has one.
function withValues(lines) {
  const known = lines.filter((each) => each.values.some((v) => v !== null));
  return known.length ? known : lines;
}

function axis({ unit, write }, highest) {
  const [label, size] = unit === "time" ? UNITS.find(([, , from]) => highest >= from) : [unit, 1];
  const top = nice(highest / size), digits = decimals(top / 4);
  return { write: write ?? ((v) => number(v / size, v ? digits : 0)), top: top * size, label };
}

// How many decimals the ticks need, so that two of them never have the same text.
function decimals(step) {
  return [0, 1, 2].find((each) => Number(step.toFixed(each)) === step) ?? 2;
}

// The times between two points during which no line has a value.
function gaps(lines, at) {
  const found = [];
  let begin = null;
  at.forEach((time, i) => {
    const known = lines.some((each) => each.values[i] !== null);
    if (known && begin !== null && begin < i - 1) found.push([at[begin], time]);
    if (known) begin = i;
  });
  return found;
}

function shade(from, to, kind, title) {
  const size = { x: from, y: TOP, width: Math.max(2, to - from), height: HEIGHT - BOTTOM - TOP };
  return s("rect", { class: `gap ${kind}`, ...size }, s("title", {}, title));
}

// A text at an edge stays within the drawing.
function anchor(x, width) {
  return x < LEFT ? "start" : x > width - RIGHT - 20 ? "end" : "middle";
}

// The point nearest to the pointer.
function aim(event, at, width) {
  const box = event.currentTarget.getBoundingClientRect();
  const share = (((event.clientX - box.left) / box.width) * width - LEFT) / (width - LEFT - RIGHT);
  const time = at[0] + share * (at.at(-1) - at[0]);
  const nearest = at.reduce((best, each, i) => (Math.abs(each - time) < Math.abs(at[best] - time) ? i : best), 0);
  aimAll(event.currentTarget, share >= 0 && share <= 1 ? nearest : -1);
}

// Charts with the same number of points show the same time range.
function aimAll(drawing, i) {
  const own = drawing.closest("figure");
  for (const each of own.parentElement.querySelectorAll(`figure.chart[data-points="${own.dataset.points}"]`)) {
    each.dispatchEvent(new CustomEvent("point", { detail: i }));
  }
}

function point({ currentTarget: figure, detail: i }, lines, at, write, x) {
  const pointer = figure.querySelector(".pointer"), values = lines.filter((each) => !each.hidden && i >= 0);
  pointer.setAttribute("visibility", i < 0 ? "hidden" : "visible");
  if (i >= 0) { for (const end of ["x1", "x2"]) pointer.setAttribute(end, x(i)); }
  const text = values.map((each) => `${each.name} ${each.values[i] === null ? "unknown" : write(each.values[i])}`).join(
    ", ",
  );
  figure.querySelector(".readout").textContent = i < 0 ? "" : `${pointText(at[i])}: ${text}`;
}

// Each name is a button that switches its line on and off.
function legend(title, lines) {
  return h(
    "span",
    { class: "legend" },
    lines.map((each) =>
      h(
        "button",
        {
          type: "button",
          "data-key": each.name,
          "aria-pressed": String(!each.hidden),
          click: ({ currentTarget }) => {
            const key = `${title} ${each.name}`;
            if (!hidden.delete(key)) hidden.add(key);
            currentTarget.closest("figure").dispatchEvent(new CustomEvent("redraw"));
          },
        },
        s(
          "svg",
          { class: "swatch", viewBox: "0 0 32 6", "aria-hidden": "true" },
          s("path", { class: `line ${style(each.n)}`, d: "M2 3L30 3" }),
        ),
        each.name,
      )
    ),
  );
}

// Eight colours that are distinct in light and dark themes. After eight lines, they repeat with another dash pattern.
function style(n) {
  return `line-${n % 8} dash-${Math.floor(n / 8) % 4}`;
}

function path(values, x, y) {
  let drawn = "", pen = false;
  values.forEach((v, i) => {
    if (v !== null) drawn += `${pen ? "L" : "M"}${x(i).toFixed(1)} ${y(v).toFixed(1)}`;
    pen = v !== null;
  });
  return drawn;
}

// A value without neighbours is a dot: a thick line of zero length with round ends.
function alone(values, x, y) {
  const known = (i) => i in values && values[i] !== null;
  return values.map((v, i) => {
    if (v === null || known(i - 1) || known(i + 1)) return "";
    const at = `${x(i).toFixed(1)} ${y(v).toFixed(1)}`;
    return `M${at}L${at}`;
  }).join("");
}

function nice(v) {
  const unit = 10 ** Math.floor(Math.log10(v));
  return [1, 2, 4, 5, 8, 10].map((each) => each * unit).find((each) => each >= v);
}
