// A bar chart of the largest values of a key column. A line in each bar's row shows the period before.
import { h, s } from "./kit.js";
import { chartWidth } from "./time-axis.js";

const ROW = 26, MOST = 15, NUMBER = 80, LETTER = 6.2; // lengths in pixels

// `rows` have a name, a value and the value before, which is null if there is none. Returns null if a value is negative,
// because bars begin at 0.
export function bars({ title, by, rows, write }) {
  const known = rows.filter((each) => each.value !== null), shown = known.slice(0, MOST);
  const highest = Math.max(0, ...shown.flatMap((each) => [each.value, each.before ?? 0]));
  if (!highest || known.some((each) => each.value < 0)) return null;
  const width = chartWidth(), left = Math.min(220, 0.35 * width);
  const length = (value) => ((width - left - NUMBER) * value) / highest;
  const more = known.length - shown.length;
  return h(
    "figure",
    { class: "bars", "data-key": `bars-${title}` },
    h(
      "figcaption",
      {},
      h("strong", {}, `${title} by ${by}`),
      shown.some((each) => each.before !== null) ? h("small", {}, "The line is the period before.") : null,
      more ? h("small", {}, `The table has ${more} more.`) : null,
    ),
    s(
      "svg",
      {
        viewBox: `0 0 ${width} ${ROW * shown.length}`,
        role: "img",
        "aria-label": `${title} by ${by}; the table has the same values`,
      },
      shown.map((each, n) => bar(each, n * ROW, left, length, write)),
    ),
  );
}

function bar({ name, value, before }, top, left, length, write) {
  const end = left + length(value), earlier = before === null ? null : left + length(Math.max(0, before));
  return s(
    "g",
    {},
    s("title", {}, `${name}: ${write(value)}${before === null ? "" : `, before ${write(before)}`}`),
    s("text", { x: left - 8, y: top + 17, "text-anchor": "end" }, cut(name, (left - 8) / LETTER)),
    s("rect", { class: "bar", x: left, y: top + 5, width: Math.max(1, end - left), height: ROW - 10, rx: 2 }),
    earlier === null ? null : s("line", { class: "earlier", x1: earlier, x2: earlier, y1: top + 2, y2: top + ROW - 2 }),
    s("text", { x: Math.max(end, earlier ?? 0) + 6, y: top + 17 }, write(value)),
  );
}

function cut(text, most) {
  return text.length > most ? `${text.slice(0, Math.floor(most) - 1)}…` : text;
}
