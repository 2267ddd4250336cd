// The grid of days and views: each cell shows whether a day of a view was recomputed, and what followed. Days without
// data in the log have no column. A range of days is chosen by dragging, or with the keyboard: the arrow keys move, and
// with Shift they extend the range.
import { ask, latest } from "./live.js";
import { h, moment, sentence } from "./kit.js";

const SECONDS = 60; // between two looks, because any later comparison may change a state
const LABELS = {
  NEVER: "Never recomputed",
  UNFINISHED: "Not finished",
  FAILED: "Recompute failed",
  RECOMPUTED: "Recomputed; not compared since then",
  EQUAL: "Recomputed, then equal",
  DIFFERENT: "Recomputed, then different",
  CHANGED: "Recomputed and equal, different since",
};
const MARKS = { NEVER: "", UNFINISHED: "…", FAILED: "×", RECOMPUTED: "○", EQUAL: "●", DIFFERENT: "◆", CHANGED: "◇" };

export const iso = (time) => new Date(time).toISOString().slice(0, 10);

// Returns the grid's element, and functions that refresh its states and show a chosen range.
export function dayGrid({ since, until, mayChoose }, choose, informed) {
  const element = h("section", { class: "days", "aria-label": "Recomputed days" });
  const from = h("input", { type: "date", "aria-label": "Grid from", value: since });
  const to = h("input", { type: "date", "aria-label": "Grid to", value: until });
  const body = h("div", { class: "wide" });
  const trouble = h("p", { role: "alert", class: "means", hidden: true });
  const read = latest(() => ask("data/partials", { since: from.value, until: to.value }));
  let days = [], cells = new Map(), anchor = null, focused = null, dragging = false, shape = "";
  const summary = mayChoose
    ? "Days and views: drag over days, or use the arrow keys with Shift, to choose a range"
    : "Days and views";

  async function refresh() {
    try {
      const found = await read();
      if (shape !== (shape = [...found.log_days, ...found.views].join())) build(found);
      for (const cell of cells.values()) mark(cell, { state: "NEVER" });
      for (const each of found.days) {
        if (cells.has(`${each.view} ${each.day}`)) mark(cells.get(`${each.view} ${each.day}`), each);
      }
      informed(found);
      trouble.hidden = true;
    } catch (error) {
      trouble.hidden = false;
      trouble.replaceChildren(error.message);
    }
  }

  function build({ views, log_days: found }) {
    days = found;
    cells = new Map();
    const row = (view) =>
      h(
        "tr",
        { role: "row" },
        h("th", { scope: "row", role: "rowheader" }, view),
        days.map((each) => {
          const cell = h("td", { role: "gridcell", tabindex: -1, "data-view": view, "data-day": each });
          cells.set(`${view} ${each}`, cell);
          return cell;
        }),
      );
    body.replaceChildren(
      h(
        "table",
        {
          role: "grid",
          "aria-label": "Days and views",
          "aria-multiselectable": "true",
          pointerdown: press,
          pointerover: drag,
          keydown: key,
          focusin: (event) => rove(event.target),
        },
        h(
          "thead",
          {},
          h(
            "tr",
            { role: "row" },
            h("th", { scope: "col", role: "columnheader" }, "View"),
            days.map((each) =>
              h(
                "th",
                { scope: "col", role: "columnheader", title: each, class: "number" },
                each.slice(8) === "01" || each === days[0] ? each.slice(5) : each.slice(8),
              )
            ),
          ),
        ),
        h("tbody", {}, views.map(row)),
      ),
    );
    rove(body.querySelector("[role=gridcell]"));
    if (!days.length) body.replaceChildren(h("p", { class: "quiet" }, "The log has no days in this range yet."));
  }

  function mark(cell, { state, recomputed_at: at }) {
    if (cell.dataset.state === state) return;
    cell.dataset.state = state;
    cell.textContent = MARKS[state];
    cell.setAttribute("aria-label", `${cell.dataset.view}, ${cell.dataset.day}: ${LABELS[state]}`);
    cell.title = `${cell.getAttribute("aria-label")}${at ? ` (recomputed ${moment(at)} UTC)` : ""}`;
  }

  // Only the focused cell is in the order of the Tab key.
  function rove(cell) {
    if (!cell?.matches?.("[role=gridcell]")) return;
    focused?.setAttribute("tabindex", -1);
    focused = cell;
    cell.setAttribute("tabindex", 0);
  }

  function select(first, last) {
    if (mayChoose) choose(...[first, last].sort());
  }

  // Marks the days of the chosen views.
  function show(begin, end, views) {
    for (const cell of cells.values()) {
      const { day, view } = cell.dataset;
      cell.setAttribute("aria-selected", day >= begin && day <= end && views.includes(view));
    }
  }

  function press(event) {
    const cell = event.target.closest("[role=gridcell]");
    if (!cell) return;
    event.preventDefault();
    cell.focus();
    dragging = true;
    anchor = event.shiftKey && anchor ? anchor : cell.dataset.day;
    select(anchor, cell.dataset.day);
  }

  function drag(event) {
    const cell = event.target.closest("[role=gridcell]");
    if (dragging && event.buttons && cell) select(anchor, cell.dataset.day);
  }

  function key(event) {
    const step = {
      ArrowLeft: [0, -1],
      ArrowRight: [0, 1],
      ArrowUp: [-1, 0],
      ArrowDown: [1, 0],
      Home: [0, -days.length],
      End: [0, days.length],
    }[event.key];
    const row = focused?.parentElement;
    if (event.key === " " || event.key === "Enter") {
      anchor = focused.dataset.day;
      select(anchor, anchor);
    } else if (step && row) {
      const rows = [...row.parentElement.children];
      const within = (n, of) => Math.max(0, Math.min(of - 1, n));
      const next = rows[within(rows.indexOf(row) + step[0], rows.length)].querySelectorAll(
        "[role=gridcell]",
      )[within(days.indexOf(focused.dataset.day) + step[1], days.length)];
      anchor = event.shiftKey ? anchor ?? focused.dataset.day : null;
      next.focus();
      next.scrollIntoView({ block: "nearest", inline: "nearest" });
      if (event.shiftKey) select(anchor, next.dataset.day);
    } else return;
    event.preventDefault();
  }

  document.addEventListener("pointerup", () => {
    dragging = false;
  });
  for (const each of [from, to]) each.addEventListener("change", refresh);
  element.append(
    h(
      "details",
      { open: true, id: "grid" },
      h("summary", {}, summary),
      h(
        "p",
        {},
        h("label", {}, "From ", from),
        " ",
        h("label", {}, "To ", to),
        " ",
        h(
          "span",
          { class: "legend" },
          Object.entries(LABELS).map(([state, label]) =>
            h("span", {}, h("span", { class: "cell", "data-state": state }, MARKS[state]), ` ${sentence(label)}`)
          ),
        ),
      ),
      trouble,
      body,
    ),
  );
  refresh();
  setInterval(refresh, SECONDS * 1000);
  return { element, refresh, show };
}
