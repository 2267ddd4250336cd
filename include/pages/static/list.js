// Lists: headers that sort, paging, and choices.
import { h, number } from "./kit.js";

// A header for `table` that sorts by a column. `state` has `order` and `descending`.
export function sortHead(title, name, state, sort, properties = {}) {
  const chosen = state.order === name;
  const button = h(
    "button",
    {
      type: "button",
      class: "head",
      title: properties.hint ?? "Sort by this column",
      click: () => sort({ order: name, descending: chosen ? !state.descending : Boolean(properties.number) }),
    },
    title,
    chosen ? h("span", { "aria-hidden": "true" }, state.descending ? " ↓" : " ↑") : null,
  );
  return {
    number: properties.number,
    title: button,
    sort: chosen ? (state.descending ? "descending" : "ascending") : null,
  };
}

// Sorts by a value of each row. Unknown values come last.
export function sorted(rows, valueOf, descending) {
  const known = (each) => valueOf(each) !== null && valueOf(each) !== undefined;
  const order = (a, b) => (valueOf(a) < valueOf(b) ? -1 : valueOf(a) > valueOf(b) ? 1 : 0) * (descending ? -1 : 1);
  return [...rows.filter(known).sort(order), ...rows.filter((each) => !known(each))];
}

// How many rows a page skips: as many as asked, or those before the last page if no page is left there.
export function skipWithin(skip, limit, total) {
  return skip < total ? skip : limit * Math.max(0, Math.ceil(total / limit) - 1);
}

// Buttons for the previous and the next page, and which rows this page shows.
export function pager({ skip, limit, shown, more, total }, go) {
  if (!skip && !more) {
    return h("p", { class: "pager quiet" }, total === undefined ? `${number(shown)} shown` : `${number(total)} in all`);
  }
  const button = (text, to, enabled) => h("button", { type: "button", disabled: !enabled, click: () => go(to) }, text);
  return h(
    "p",
    { class: "pager" },
    button("Previous", Math.max(0, skip - limit), skip > 0),
    button("Next", skip + limit, more),
    h(
      "span",
      { class: "quiet" },
      ` ${number(shown ? skip + 1 : skip)} to ${number(skip + shown)}`,
      total === undefined ? "" : ` of ${number(total)}`,
    ),
  );
}

export function choose(label, options, chosen, properties = {}) {
  return h(
    "select",
    { "aria-label": label, ...properties },
    options.map((each) => {
      const [given, text] = [each].flat().length > 1 ? each : [each, each];
      return h("option", { value: given, selected: String(given) === String(chosen) }, text);
    }),
  );
}
