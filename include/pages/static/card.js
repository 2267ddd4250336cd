// A card on Airflow's dashboard: the three numbers that matter. Airflow brings React and calls what we leave behind.
const SECONDS = 10;
const DATA = new URL("../data/vitals", import.meta.url);
const PAGES = new URL("../../plugin/", import.meta.url);

function duration(seconds) {
  if (seconds === null) return "unknown";
  for (const [unit, size] of [["days", 172800, 86400], ["h", 7200, 3600], ["min", 120, 60]].map(([u, from, s]) => [u, [from, s]])) {
    if (seconds >= size[0]) return `${(seconds / size[1]).toFixed(seconds / size[1] < 10 ? 1 : 0)} ${unit}`;
  }
  return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
}

globalThis.TruelogVitals = function TruelogVitals() {
  const { createElement: e, useEffect, useState } = globalThis.React;
  const [state, setState] = useState({ found: null, wrong: "" });

  useEffect(() => {
    let gone = false;
    async function look() {
      try {
        const answer = await fetch(DATA, { headers: { accept: "application/json" } });
        if (!answer.ok) throw new Error(answer.status === 403 ? "you may not see the streams" : `no answer (${answer.status})`);
        const found = await answer.json();
        if (!gone) setState({ found, wrong: "" });
      } catch (error) {
        if (!gone) setState((before) => ({ found: before.found, wrong: error.message }));
      }
    }
    look();
    const timer = setInterval(look, SECONDS * 1000);
    return () => { gone = true; clearInterval(timer); };
  }, []);

  const { found, wrong } = state;
  const number = (title, sign, text, page) => e("a", { key: title, href: new URL(page, PAGES).href, style: { flex: "1 1 12rem", color: "inherit", textDecoration: "none" } },
    e("div", { style: { opacity: 0.7, fontSize: "0.85rem" } }, title),
    e("div", { style: { fontSize: "1.6rem", fontWeight: 600, fontVariantNumeric: "tabular-nums" } }, found ? text : "…"),
    e("div", { style: { opacity: 0.7, fontSize: "0.85rem" } }, found && sign.view ? sign.view : "\u00a0"));
  const { freshness, lag, proof } = found ?? { freshness: {}, lag: {}, proof: {} };
  const asOf = found ? `as of ${new Date(found.as_of).toISOString().slice(11, 19)} UTC` : "";
  return e("section", { "aria-label": "Truelog", style: { border: "1px solid var(--chakra-colors-border)", borderRadius: "8px", padding: "0.9rem 1.1rem", margin: "0.5rem 0" } },
    e("div", { style: { display: "flex", gap: "1.5rem", flexWrap: "wrap" } },
      number("Freshness: the oldest record not counted yet", freshness, found && duration(freshness.value), "truelog-streams"),
      number("Lag: records not counted yet", lag, found && (lag.value === null ? "unknown" : lag.value.toLocaleString("en")), "truelog-lag"),
      number("Age of the oldest certificate", proof, found && (proof.value === null ? "no certificate" : duration(proof.value)), "truelog-reconciliations")),
    e("div", { role: "status", style: { opacity: 0.7, fontSize: "0.8rem", marginTop: "0.4rem" } }, wrong ? `${wrong}; ${asOf}` : asOf));
};
