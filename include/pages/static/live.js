// Live data: a page refreshes every few seconds and shows the time of its data. If there is no answer, old data is greyed out.
import { h, sentence, since } from "./kit.js";

const asOf = document.getElementById("as-of");
const trouble = document.getElementById("trouble");

export async function ask(path, parameters = {}) {
  const query = new URLSearchParams(parameters).toString();
  return answered(await request(query ? `${path}?${query}` : path, { headers: { accept: "application/json" } }));
}

export async function act(path, body = {}, method = "POST") {
  const headers = { "x-truelog": "page", "content-type": "application/json" };
  return answered(await request(path, { method, headers, body: JSON.stringify(body) }));
}

function request(path, options) {
  return fetch(path, options).catch(() => { throw new Error("Airflow did not answer"); });
}

async function answered(response) {
  if (response.ok) return response.json();
  const body = await response.json().catch(() => ({}));
  const why = typeof body.detail === "string" ? body.detail : body.detail?.[0]?.msg ?? response.statusText;
  const message = response.status === 401 ? "You are signed out. Reload the Airflow page and sign in again" : sentence(why);
  throw Object.assign(new Error(message), { status: response.status });
}

// Fetches at once and again every `seconds`, and redraws if the data has changed. Returns a function that fetches at once.
export function live(shown, fetchData, seconds, draw) {
  let last = null, before = "", timer = null, turn = 0;

  async function round() {
    clearTimeout(timer);
    const own = ++turn;
    try {
      const found = await fetchData();
      if (own !== turn) return; // the user has chosen other data in the meantime
      last = found;
      drawIfChanged(found);
      trouble.hidden = true;
      shown.classList.remove("old");
    } catch (error) {
      if (own !== turn) return;
      trouble.hidden = false;
      const old = last ? ` The data below is from ${clock(last.as_of)} UTC.` : "";
      trouble.replaceChildren(`${error.message.replace(/\.$/, "")}.${old}`);
      shown.classList.add("old");
      if (!last) shown.replaceChildren();
    }
    shown.setAttribute("aria-busy", "false");
    showAge();
    timer = setTimeout(round, seconds * 1000);
  }

  function drawIfChanged(found) {
    // Ages change every second, so most pages redraw each time. Opened details and the scroll position survive.
    const text = JSON.stringify(found);
    if (text === before) return;
    before = text;
    const open = new Set([...shown.querySelectorAll("details[open]")].map((each) => each.id));
    const top = shown.querySelector(".wide")?.scrollLeft ?? 0;
    shown.replaceChildren(...[draw(found)].flat(Infinity).filter(Boolean));
    for (const each of shown.querySelectorAll("details")) if (open.has(each.id)) each.open = true;
    if (top) shown.querySelector(".wide")?.scrollTo(top, 0);
  }

  function showAge() {
    const age = last ? (Date.now() - new Date(last.as_of)) / 1000 : 0;
    asOf.replaceChildren(...(last ? [
      h("time", { datetime: last.as_of }, `As of ${clock(last.as_of)} UTC`),
      age > 2 * seconds + 5 ? ` (${since(last.as_of, new Date())} ago)` : ` · refreshes every ${seconds} s`,
    ] : []));
  }

  document.addEventListener("visibilitychange", () => document.hidden || round());
  round();
  return round;
}

function clock(moment) {
  return new Date(moment).toISOString().slice(11, 19);
}
