// Rules: pattern rules, stored searches and notifications, with the number of rows that each has found.
import { keepInAddress } from "./address.js";
import { ask, live } from "./live.js";
import { ago, count, h, link, marked, moment, number, seen, table } from "./kit.js";
import { hasShell } from "./rights.js";

const PAUSE = 300; // milliseconds after the last key, because each answer searches all names

export function show(given, { shown, form }) {
  let match = given.get("match") ?? "", pause = 0;
  const find = () => {
    match = filter.value;
    keepInAddress({ match });
    again();
  };
  const filter = h("input", {
    type: "search",
    "aria-label": "Filter",
    placeholder: "Filter by name",
    value: match,
    input: () => {
      clearTimeout(pause);
      pause = setTimeout(find, PAUSE);
    },
  });
  form.append(filter);
  const again = live(shown, () => ask("data/rules", { match }), 30, drawn);
}

function drawn({ patterns, searches, notifications, totals, oversized, missing, as_of: now }) {
  return [
    missing.map((reason) => h("p", { class: "means" }, marked(reason))),
    h("h2", {}, "Pattern rules"),
    h(
      "p",
      { class: "quiet" },
      "Rules that describe sequences of events. A match is a row of the view ",
      view("matches"),
      ".",
    ),
    table(
      ["Rule", "In force", "Entity", { title: "Version", number: true }, { title: "Matches", number: true }],
      patterns.map((each) => [
        link("pattern", { name: each.name }, seen(each.name)),
        inForce(each, now),
        seen(each.by),
        number(each.version),
        outcomes(each.found),
      ]),
      none("No rules yet.", "truelog patterns add FILE"),
      { caption: more(patterns, totals.patterns), keys: patterns.map((each) => each.name) },
    ),
    oversized
      ? h("p", { class: "means" }, `${count(oversized, "entity has", "entities have")} too many events for one search.`)
      : null,
    h("h2", {}, "Stored searches"),
    h(
      "p",
      { class: "quiet" },
      "Searches of the texts of new events. A hit is a row of the view ",
      view("search_hits"),
      ".",
    ),
    table(
      ["Search", "In force", "Events", "Query", { title: "Version", number: true }, { title: "Hits", number: true }],
      searches.map((each) => [
        link("search", { name: each.name }, seen(each.name)),
        inForce(each, now),
        seen(each.on),
        h("code", {}, seen(each.query)),
        number(each.version),
        outcomes(each.found),
      ]),
      none("No searches yet.", "truelog searches add NAME QUERY --on EVENT_TYPE"),
      { caption: more(searches, totals.searches), keys: searches.map((each) => each.name) },
    ),
    h("h2", {}, "Notifications"),
    notificationTable(notifications),
  ];
}

export function notificationTable(notifications) {
  return table(
    [
      "Notification",
      "Of",
      "Channel",
      { title: "Delivered", number: true },
      { title: "Waiting", number: true },
      { title: "Failed", number: true },
    ],
    notifications.map((each) => [
      seen(each.notification),
      `${each.kind} ${seen(each.subject)}`,
      seen(each.channel),
      number(each.delivered),
      number(each.waiting),
      number(each.failed),
    ]),
    none("No notifications.", "truelog notifications add"),
    { keys: notifications.map((each) => each.notification) },
  );
}

// No button adds a rule, so only users with a shell get the command.
function none(text, command) {
  return hasShell() ? [text, " On the command line: ", h("code", {}, command)] : text;
}

export function inForce({ begins, ended }, now) {
  return ended ? h("span", { class: "quiet" }, "Ended ", ago(ended, now)) : h("span", {}, "Since ", moment(begins));
}

// The number of rows in force, and the numbers of other rows by outcome, such as those of waiting matches.
export function outcomes(found) {
  const { found: stands = 0, ...others } = found;
  const rest = Object.entries(others).map(([outcome, n]) => `${number(n)} ${outcome}`).join(", ");
  return h("span", {}, number(stands), rest ? h("small", {}, ` and ${rest}`) : null);
}

function more(listed, total) {
  return listed.length < total ? `${number(listed.length)} of ${number(total)}. Use the filter to see others.` : null;
}

function view(name) {
  return link("view", { name }, name);
}
