// Live: a page asks again every few seconds, and says of which moment it is; what it cannot learn anew it shows as old.
import { h, since } from "./kit.js";

const asOf = document.getElementById("as-of");
const trouble = document.getElementById("trouble");

export async function ask(path, parameters = {}) {
  const query = new URLSearchParams(parameters).toString();
  return answered(await fetch(query ? `${path}?${query}` : path, { headers: { accept: "application/json" } }));
}

export async function act(path, body = {}, method = "POST") {
  const headers = { "x-truelog": "page", "content-type": "application/json" };
  return answered(await fetch(path, { method, headers, body: JSON.stringify(body) }));
}

async function answered(response) {
  if (response.ok) return response.json();
  const said = await response.json().catch(() => ({}));
  const why = typeof said.detail === "string" ? said.detail : said.detail?.[0]?.msg ?? response.statusText;
  const told = response.status === 401 ? "you are signed out: reload Airflow's page and sign in" : why;
  throw Object.assign(new Error(told), { status: response.status });
}

// Ask for `path()` now and every so many seconds, and draw what changed. Returns what asks at once.
export function live(shown, path, seconds, draw) {
  let last = null, before = "", timer = null, turn = 0;

  async function round() {
    clearTimeout(timer);
    const mine = ++turn;
    try {
      const found = await path();
      if (mine !== turn) return; // somebody chose otherwise meanwhile
      last = found;
      draw_if_changed(found);
      trouble.hidden = true;
      shown.classList.remove("old");
    } catch (error) {
      if (mine !== turn) return;
      trouble.hidden = false;
      const old = last ? ` What is shown is of ${clock(last.as_of)}.` : "";
      trouble.replaceChildren(`${error.message}.${old}`);
      shown.classList.add("old");
      if (!last) shown.replaceChildren();
    }
    shown.setAttribute("aria-busy", "false");
    tell();
    timer = setTimeout(round, seconds * 1000);
  }

  function draw_if_changed(found) {
    // Ages are told to the second, so a page that shows any is drawn anew each time; it keeps what was opened.
    const text = JSON.stringify(found);
    if (text === before) return;
    before = text;
    const open = new Set([...shown.querySelectorAll("details[open]")].map((each) => each.id));
    const top = shown.querySelector(".wide")?.scrollLeft ?? 0;
    shown.replaceChildren(...[draw(found)].flat(Infinity).filter(Boolean));
    for (const each of shown.querySelectorAll("details")) if (open.has(each.id)) each.open = true;
    if (top) shown.querySelector(".wide")?.scrollTo(top, 0);
  }

  function tell() {
    const age = last ? (Date.now() - new Date(last.as_of)) / 1000 : 0;
    asOf.replaceChildren(...(last ? [
      h("time", { datetime: last.as_of }, `as of ${clock(last.as_of)} UTC`),
      age > 2 * seconds + 5 ? `, ${since(last.as_of, new Date())} ago` : `, asked again every ${seconds} s`,
    ] : []));
  }

  document.addEventListener("visibilitychange", () => document.hidden || round());
  round();
  return round;
}

function clock(moment) {
  return new Date(moment).toISOString().slice(11, 19);
}
