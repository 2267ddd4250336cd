// The card on Airflow's dashboard: current problems and four numbers. Airflow provides React and calls the global
// function. If there is no answer, the state is Unknown and earlier numbers are hidden, because they would look
// current.
const SECONDS = 10;
const TIMEOUT_SECONDS = 30;
const DATA = new URL("../data/vitals", import.meta.url);
const PAGES = new URL("../../plugin/", import.meta.url);
const COLORS = {
  "All good": "#1f8a4c",
  Starting: "#2f74c0",
  Warning: "#b97700",
  Unknown: "#7a858f",
  Critical: "#d1293d",
};
const QUIET = { opacity: 0.75, fontSize: "0.85rem" };

function duration(seconds) {
  if (seconds === null) return "Unknown";
  for (
    const [unit, size] of [["days", 172800, 86400], ["h", 7200, 3600], ["min", 120, 60]].map((
      [u, from, s],
    ) => [u, [from, s]])
  ) {
    if (seconds >= size[0]) return `${(seconds / size[1]).toFixed(seconds / size[1] < 10 ? 1 : 0)} ${unit}`;
  }
  return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
}

async function ask() {
  const answer = await fetch(DATA, {
    headers: { accept: "application/json" },
    signal: AbortSignal.timeout(TIMEOUT_SECONDS * 1000),
  });
  if (!answer.ok) {
    throw new Error(answer.status === 403 ? "you may not read the streams DAG" : `no answer (HTTP ${answer.status})`);
  }
  return answer.json();
}

// One request at a time, so that a late answer never replaces a newer one.
function useVitals({ useEffect, useState }) {
  const [state, setState] = useState({ found: null, wrong: "" });
  useEffect(() => {
    let gone = false, timer;
    async function refresh() {
      const next = await ask().then(
        (found) => ({ found, wrong: "" }),
        (error) => ({ found: null, wrong: error.message }),
      );
      if (gone) return;
      setState(next);
      timer = setTimeout(refresh, SECONDS * 1000);
    }
    refresh();
    return () => {
      gone = true;
      clearTimeout(timer);
    };
  }, []);
  return state;
}

const NONE = { view: null, value: null };
const NOTHING = { alerts: { count: 0, worst: null }, freshness: NONE, lag: NONE, proof: NONE };

// Before the first answer, the tiles have no values. They keep the place, so that the answer moves nothing.
function emptyTiles() {
  return tiles(NOTHING).map(([title, , , page]) => [title, "…", null, page]);
}

// No view is worse than the others if each value is 0.
function viewOf({ view, value }) {
  return view ?? (value === 0 ? "All views" : null);
}

// Each tile has a title, a value, a line of details and a page.
function tiles({ alerts, freshness, lag, proof }) {
  return [
    [
      "Open alerts",
      alerts.count.toLocaleString("en"),
      alerts.worst ? `${sentence(alerts.severity)}: ${alerts.worst}` : "None",
      "truelog/truelog/alerts",
    ],
    [
      "Freshness: age of the oldest unprocessed record",
      duration(freshness.value),
      viewOf(freshness),
      "truelog/truelog/streams",
    ],
    [
      "Lag: unprocessed records",
      lag.value === null ? "Unknown" : lag.value.toLocaleString("en"),
      viewOf(lag),
      "truelog/truelog/lag",
    ],
    [
      "Age of the oldest certificate",
      proof.value === null ? "No certificate" : duration(proof.value),
      viewOf(proof),
      "truelog/truelog/reconciliations",
    ],
  ];
}

function sentence(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

// An alert opens some minutes after a problem, and may describe the same problem.
function summary({ state, alerts, problems, views, unmade }) {
  const count = (n, what) => `${n || "no"} ${what}${n === 1 ? "" : "s"}`;
  const made = unmade ? `${views - unmade} of ${count(views, "view")} created` : `${count(views, "view")}`;
  const facts = state === "Starting" ? [] : [count(alerts.count, "open alert"), count(problems.length, "problem")];
  const later = problems.length && !alerts.count && state === "Critical" ? ". A problem that lasts opens an alert" : "";
  return `${state}: ${[...facts, made].join(", ")}${later}`;
}

globalThis.TruelogVitals = function TruelogVitals() {
  const e = globalThis.React.createElement;
  const { found, wrong } = useVitals(globalThis.React);
  const isLoading = !found && !wrong, state = found ? found.state : isLoading ? "Loading" : "Unknown";
  const color = COLORS[state] ?? COLORS.Unknown;
  const href = (page) => new URL(page, PAGES).href;
  const tile = ([title, text, below, page]) =>
    e(
      "a",
      { key: title, href: href(page), style: { flex: "1 1 12rem", color: "inherit", textDecoration: "none" } },
      e("div", { style: QUIET }, title),
      e("div", { style: { fontSize: "1.6rem", fontWeight: 600, fontVariantNumeric: "tabular-nums" } }, text),
      e("div", { style: { ...QUIET, overflowWrap: "anywhere" } }, below ?? "\u00a0"),
    );
  const problem = ({ state: how, text, page }) =>
    e(
      "li",
      { key: `${text} ${page}` },
      e("strong", {}, `${how}: `),
      e("a", { href: href(page), style: { color: "inherit", textDecoration: "underline" } }, text),
    );
  return e(
    "section",
    {
      "aria-label": "Truelog",
      "data-state": state,
      style: {
        border: `1px solid ${color}`,
        borderLeft: `6px solid ${color}`,
        borderRadius: "8px",
        padding: "0.9rem 1.1rem",
        margin: "0.5rem 0",
      },
    },
    e(
      "div",
      { role: "status", style: { fontWeight: 600, marginBottom: "0.5rem" } },
      found ? summary(found) : isLoading ? "Loading…" : `Unknown: ${wrong}`,
    ),
    (found || isLoading) &&
      e(
        "div",
        { style: { display: "flex", gap: "1.5rem", flexWrap: "wrap" } },
        (found ? tiles(found) : emptyTiles()).map(tile),
      ),
    found && found.problems.length > 0 &&
      e("ul", {
        "aria-label": "Problems",
        style: {
          margin: "0.6rem 0 0",
          padding: "0 0 0 1.1rem",
          maxHeight: "12rem",
          overflowY: "auto",
          fontSize: "0.9rem",
        },
      }, found.problems.map(problem)),
    (found || isLoading) &&
      e(
        "div",
        { style: { ...QUIET, marginTop: "0.4rem" } },
        found ? `As of ${new Date(found.as_of).toISOString().slice(11, 19)} UTC` : "\u00a0",
      ),
  );
};
