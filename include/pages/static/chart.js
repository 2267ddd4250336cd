// A line chart over time, as SVG. Unknown values leave a gap; the pointer shows all values at one moment.
import { h, number, s } from "./kit.js";

const WIDTH = 960, HEIGHT = 220, LEFT = 62, BOTTOM = 22, TOP = 8, RIGHT = 8;

export function chart({ title, at, series, write = number }) {
  const top = nice(Math.max(1, ...series.flatMap((each) => each.values).filter((v) => v !== null)));
  const x = (i) => LEFT + ((WIDTH - LEFT - RIGHT) * i) / Math.max(1, at.length - 1);
  const y = (v) => HEIGHT - BOTTOM - ((HEIGHT - BOTTOM - TOP) * v) / top;
  const pointer = s("line", { class: "pointer", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
  const readout = h("output", {}, "");
  const drawing = s("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": title,
    pointermove: (event) => {
      const box = drawing.getBoundingClientRect();
      const i = Math.round((((event.clientX - box.left) / box.width) * WIDTH - LEFT) / (WIDTH - LEFT - RIGHT) * (at.length - 1));
      if (i < 0 || i >= at.length) return;
      for (const end of ["x1", "x2"]) pointer.setAttribute(end, x(i));
      pointer.setAttribute("visibility", "visible");
      readout.replaceChildren(`${clock(at[i])}: ${series.map((each) => `${each.name} ${each.values[i] === null ? "unknown" : write(each.values[i])}`).join(", ")}`);
    },
    pointerleave: () => { pointer.setAttribute("visibility", "hidden"); readout.replaceChildren(""); },
  },
  [0, 0.25, 0.5, 0.75, 1].map((share) => s("g", {},
    s("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(top * share), y2: y(top * share) }),
    s("text", { x: LEFT - 6, y: y(top * share) + 4, "text-anchor": "end" }, write(top * share)))),
  ticks(at).map((i) => s("text", { x: x(i), y: HEIGHT - 6, "text-anchor": "middle" }, clock(at[i], at))),
  series.map((each, n) => s("path", { class: `line ${style(n)}`, d: path(each.values, x, y) })),
  pointer);
  return h("figure", {}, h("figcaption", {}, h("strong", {}, title), legend(series), readout), drawing);
}

function legend(series) {
  return h("span", { class: "legend" }, series.map((each, n) => h("span", { class: style(n) },
    s("svg", { class: "swatch", viewBox: "0 0 32 6", "aria-hidden": "true" }, s("path", { class: `line ${style(n)}`, d: "M2 3L30 3" })), each.name)));
}

// Eight colours that are distinct in light and dark themes. After eight lines, they repeat with another dash pattern.
function style(n) {
  return `line-${n % 8} dash-${Math.floor(n / 8) % 4}`;
}

// A value without neighbours stays visible: a line of zero length with round ends draws a dot.
function path(values, x, y) {
  let drawn = "", pen = false;
  values.forEach((v, i) => {
    if (v === null) { pen = false; return; }
    drawn += `${pen ? "L" : "M"}${x(i).toFixed(1)} ${y(v).toFixed(1)}`;
    if (!pen) drawn += `L${x(i).toFixed(1)} ${y(v).toFixed(1)}`;
    pen = true;
  });
  return drawn;
}

function nice(v) {
  const unit = 10 ** Math.floor(Math.log10(v));
  return [1, 2, 4, 5, 8, 10].map((each) => each * unit).find((each) => each >= v);
}

function ticks(at) {
  const count = 6;
  return at.length < count ? at.map((_, i) => i) : Array.from({ length: count }, (_, k) => Math.round(((k + 0.5) / count) * (at.length - 1)));
}

export function clock(seconds, span) {
  const text = new Date(seconds * 1000).toISOString();
  const days = span && span[span.length - 1] - span[0] > 86400;
  return days ? text.slice(5, 16).replace("T", " ") : text.slice(11, 19);
}
