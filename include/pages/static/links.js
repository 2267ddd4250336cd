// Links from the names of things to the pages that show them.
import { h, link, outward, seen } from "./kit.js";

const PAGES = "plugin/truelog/truelog/"; // where Airflow shows the pages, as alerts name them

// The page of an alert or a card is relative to Airflow's root. Our own pages open in the frame, Airflow's in its
// window.
export function toPage(path, text) {
  return path.startsWith(PAGES) ? h("a", { href: path.slice(PAGES.length) }, text) : outward(path, text);
}

export function toDag(dag, text = `DAG ${dag}`) {
  return outward(`dags/${encodeURIComponent(dag)}`, text);
}

// A reader is a view, or the archive, which is an application.
export function toReader(name) {
  return name === "archive" ? toApplication(name) : link("view", { name }, seen(name));
}

export function toApplication(application) {
  return link("streams", { application }, seen(application));
}

const TARGETS = {
  launch: toApplication,
  restart: toApplication,
  stop: toApplication,
  start: toApplication,
  release: toApplication,
  repair: toReader,
  compare: toReader,
  cut_over: toReader,
  explain: toReader,
  different: toReader,
  unknown: toReader,
  verify: (certificate) => link("certificates", { view: certificate.split("-")[0] }, seen(certificate)),
  validate: (of) => link("quality", { of }, seen(of)),
  rejudge: (of) => link("quality", { of }, seen(of)),
  alert: toAlert,
  acknowledge: toAlert,
  silence: toAlert,
  unsilence: toAlert,
  read: (topic) => link("record", { topic }, seen(topic)),
  backfill: (subject) => link("backfills", {}, seen(subject)),
  replay: (subject) => link("dead-letters", {}, seen(subject)),
};

// The target of an operation or of an entry in the timeline.
export function toTarget(kind, subject) {
  return subject && TARGETS[kind] ? TARGETS[kind](subject) : seen(subject);
}

// The address of what a mark in the timeline shows: a run of Airflow, a comparison, an alert, or else the target's
// page.
export function markAddress({ kind, subject, about }) {
  if (kind === "backfill") return `../dags/recompute/runs/${encodeURIComponent(about.split(": ")[0])}`;
  const comparison = ["different", "unknown"].includes(kind)
    ? about
    : ["repair", "compare"].includes(kind)
    ? /reconciliation (\d+)/.exec(about)?.[1]
    : null;
  return comparison ? `reconciliation?id=${comparison}` : toTarget(kind, subject).getAttribute("href");
}

export function toAlert(key) {
  return link("alerts", { match: key.replaceAll("*", "") }, seen(key));
}

// Hashes of code and certificates are cut to the length that is enough to compare them.
export function brief(text) {
  return seen(text.replace(/\b[0-9a-f]{20,}\b/g, (hash) => `${hash.slice(0, 12)}…`));
}
