// One document for all pages: the address says which, and a module of that name fills it.
import { h, link } from "./kit.js";
import { followTheme } from "./theme.js";

const TABS = { streams: "Streams", views: "Views", reconciliations: "Reconciliations", quality: "Quality", backfills: "Backfills", lag: "Lag", alerts: "Alerts", operations: "Operations" };
const PARENTS = { view: "views", reconciliation: "reconciliations" };

const name = location.pathname.split("/").pop();
const tab = PARENTS[name] ?? name;

followTheme();
document.title = `${TABS[tab]} · Truelog`;
document.getElementById("pages").append(
  ...Object.entries(TABS).map(([page, title]) =>
    link(page, {}, title, page === tab ? { "aria-current": "page" } : {})),
);
const { show } = await import(`./${name}.js`);
show(new URLSearchParams(location.search), {
  shown: document.getElementById("shown"),
  form: document.getElementById("form"),
});
