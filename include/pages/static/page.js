// One document serves all pages. The last part of the path is the name of the page and of the module that fills it.
import { h, link } from "./kit.js";
import { loadRights, showRights } from "./rights.js";
import { followTheme, nameTab } from "./theme.js";

const TABS = {
  flow: "Flow",
  streams: "Streams",
  views: "Views",
  analytics: "Analytics",
  rules: "Rules",
  reconciliations: "Reconciliations",
  certificates: "Certificates",
  quality: "Quality",
  "dead-letters": "Dead letters",
  backfills: "Backfills",
  lag: "Lag",
  alerts: "Alerts",
  timeline: "Timeline",
  operations: "Operations",
};
const PARENTS = {
  view: "views",
  reconciliation: "reconciliations",
  record: "views",
  explain: "views",
  freshness: "lag",
  pattern: "rules",
  search: "rules",
};
const TITLES = { ...TABS, components: "Components" }; // a page for contributors, which no tab leads to

const name = location.pathname.split("/").pop();
const tab = PARENTS[name] ?? name;

followTheme();
document.getElementById("heading").append(h("h1", {}, TITLES[tab]));
nameTab(TITLES[tab]);
document.getElementById("pages").append(
  ...Object.entries(TABS).map(([page, title]) => link(page, {}, title, page === tab ? { "aria-current": "page" } : {})),
);
document.querySelector("nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
const rights = loadRights().then(() => showRights(document.getElementById("rights"))).catch(() => {});
const [{ show }] = await Promise.all([import(`./${name}.js`), rights]);
show(new URLSearchParams(location.search), {
  shown: document.getElementById("shown"),
  form: document.getElementById("form"),
});
