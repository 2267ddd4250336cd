// A card on Airflow's dashboard: what is wrong now, and the three numbers that matter. Airflow brings React and calls what
// we leave behind. Without an answer the state is Unknown and no earlier number is shown: it would look current.
const SECONDS = 10;
const TIMEOUT_SECONDS = 30;
const DATA = new URL("../data/vitals", import.meta.url);
const PAGES = new URL("../../plugin/", import.meta.url);
const COLORS = { "All good": "#1f8a4c", Warning: "#b97700", Unknown: "#7a858f", Critical: "#d1293d" };
const QUIET = { opacity: 0.75, fontSize: "0.85rem" };

function duration(seconds) {
  if (seconds === null) return "unknown";
  for (const [unit, size] of [["days", 172800, 86400], ["h", 7200, 3600], ["min", 120, 60]].map(([u, from, s]) => [u, [from, s]])) {
    if (seconds >= size[0]) return `${(seconds / size[1]).toFixed(seconds / size[1] < 10 ? 1 : 0)} ${unit}`;
  }
  return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
}

async function ask() {
  const answer = await fetch(DATA, { headers: { accept: "application/json" }, signal: AbortSignal.timeout(TIMEOUT_SECONDS * 1000) });
  if (!answer.ok) throw new Error(answer.status === 403 ? "you may not see the streams" : `no answer (${answer.status})`);
  return answer.json();
}

// One request at a time: an answer that is late never replaces a newer one.
function useVitals({ useEffect, useState }) {
  const [state, setState] = useState({ found: null, wrong: "" });
  useEffect(() => {
    let gone = false, timer;
    async function look() {
      const next = await ask().then((found) => ({ found, wrong: "" }), (error) => ({ found: null, wrong: error.message }));
      if (gone) return;
      setState(next);
      timer = setTimeout(look, SECONDS * 1000);
    }
    look();
    return () => { gone = true; clearTimeout(timer); };
  }, []);
  return state;
}

// Title, text, line below and page of each tile.
function tiles({ alerts, freshness, lag, proof }) {
  return [
    ["Open alerts", alerts.count.toLocaleString("en"), alerts.worst ? `${alerts.severity}: ${alerts.worst}` : "none", "truelog-alerts"],
    ["Freshness: the oldest record not counted yet", duration(freshness.value), freshness.view, "truelog-streams"],
    ["Lag: records not counted yet", lag.value === null ? "unknown" : lag.value.toLocaleString("en"), lag.view, "truelog-lag"],
    ["Age of the oldest certificate", proof.value === null ? "no certificate" : duration(proof.value), proof.view, "truelog-reconciliations"],
  ];
}

function summary({ state, alerts, problems, views, unmade }) {
  const count = (n, what) => `${n} ${what}${n === 1 ? "" : "s"}`;
  const made = `${views - unmade} of ${count(views, "view")} made`;
  return `${state}: ${count(alerts.count, "open alert")}, ${count(problems.length, "other problem")}, ${made}`;
}

globalThis.TruelogVitals = function TruelogVitals() {
  const e = globalThis.React.createElement;
  const { found, wrong } = useVitals(globalThis.React);
  const state = found ? found.state : "Unknown";
  const color = COLORS[state] ?? COLORS.Unknown;
  const href = (page) => new URL(page, PAGES).href;
  const tile = ([title, text, below, page]) => e("a", { key: title, href: href(page), style: { flex: "1 1 12rem", color: "inherit", textDecoration: "none" } },
    e("div", { style: QUIET }, title),
    e("div", { style: { fontSize: "1.6rem", fontWeight: 600, fontVariantNumeric: "tabular-nums" } }, text),
    e("div", { style: { ...QUIET, overflowWrap: "anywhere" } }, below ?? "\u00a0"));
  const problem = ({ state: how, text, page }) => e("li", { key: `${text} ${page}` },
    e("strong", {}, `${how}: `), e("a", { href: href(page), style: { color: "inherit", textDecoration: "underline" } }, text));
  return e("section", { "aria-label": "Truelog", "data-state": state, style: { border: `1px solid ${color}`, borderLeft: `6px solid ${color}`, borderRadius: "8px", padding: "0.9rem 1.1rem", margin: "0.5rem 0" } },
    e("div", { role: "status", style: { fontWeight: 600, marginBottom: "0.5rem" } }, found ? summary(found) : `Unknown: ${wrong || "waiting for the first answer"}`),
    found && e("div", { style: { display: "flex", gap: "1.5rem", flexWrap: "wrap" } }, tiles(found).map(tile)),
    found && found.problems.length > 0 && e("ul", { "aria-label": "Problems", style: { margin: "0.6rem 0 0", padding: "0 0 0 1.1rem", maxHeight: "12rem", overflowY: "auto", fontSize: "0.9rem" } }, found.problems.map(problem)),
    found && e("div", { style: { ...QUIET, marginTop: "0.4rem" } }, `as of ${new Date(found.as_of).toISOString().slice(11, 19)} UTC`));
};
