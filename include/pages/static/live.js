// Live data: a page refreshes every few seconds and shows the time of its data. If there is no answer, old data is
// greyed out. Screen readers announce only errors and changes of state.
import { h, sentence, since } from "./kit.js";
import { patch } from "./patch.js";
import { withHeading } from "./theme.js";

const asOf = document.getElementById("as-of");
const trouble = document.getElementById("trouble");
const changes = document.getElementById("changes");

export async function ask(path, parameters = {}) {
  const query = new URLSearchParams(parameters).toString();
  return answered(await request(query ? `${path}?${query}` : path, { headers: { accept: "application/json" } }));
}

export async function act(path, body = {}, method = "POST") {
  const headers = { "x-truelog": "page", "content-type": "application/json" };
  return answered(await request(path, { method, headers, body: JSON.stringify(body) }));
}

function request(path, options) {
  return fetch(path, options).catch(() => {
    throw new Error("Airflow did not answer");
  });
}

async function answered(response) {
  if (response.ok) return response.json();
  const body = await response.json().catch(() => ({}));
  const why = typeof body.detail === "string" ? body.detail : body.detail?.[0]?.msg ?? wayOut(response);
  const message = response.status === 401
    ? "You are signed out. Reload the Airflow page and sign in again"
    : sentence(why);
  throw Object.assign(new Error(message), { status: response.status });
}

// An answer without a reason comes from a proxy, or from Airflow itself.
function wayOut({ status, statusText }) {
  const name = [status, statusText].filter(Boolean).join(" ");
  return status < 500
    ? `The request was refused (${name}). Reload the page`
    : `The request failed (${name}). The page asks again by itself. If it goes on, the log of Airflow's API server has the reason`;
}

// Asks so that only the latest question gets its answer or its error. Those of earlier questions never come, and after
// `drop` neither does that of the latest.
export function latest(fetchData) {
  let turn = 0;

  function asked(...question) {
    const own = ++turn;
    return new Promise((answer, fail) => {
      const ifLatest = (settle) => (found) => own === turn && settle(found);
      fetchData(...question).then(ifLatest(answer), ifLatest(fail));
    });
  }

  function drop() {
    turn += 1;
  }

  return Object.assign(asked, { drop });
}

// Fetches at once and again every `seconds`, and patches the page if the data has changed. `state` describes the data
// in a few words for screen readers, which announce it when it changes. Returns a function that fetches at once; its
// `redraw` draws the latest data again, for choices that need no other data.
export function live(shown, fetchData, seconds, draw, state = () => "") {
  let last = null, before = "", timer = null, turn = 0;

  async function round() {
    clearTimeout(timer);
    const own = ++turn;
    try {
      const found = await fetchData();
      if (own !== turn) return; // the user has chosen other data in the meantime
      announce(last && state(last), state(found));
      last = found;
      drawIfChanged(found);
      report("");
      shown.classList.remove("old");
    } catch (error) {
      if (own !== turn) return;
      const old = last ? ` The data below is from ${clock(last.as_of)} UTC.` : "";
      report(`${error.message.replace(/\.$/, "")}.${old}`);
      shown.classList.add("old");
      if (!last) shown.replaceChildren();
    }
    shown.setAttribute("aria-busy", "false");
    showAge();
    timer = setTimeout(round, seconds * 1000);
  }

  // Ages change every second, so most pages change each time.
  function drawIfChanged(found) {
    const text = JSON.stringify(found);
    if (text === before) return;
    before = text;
    patch(shown, withHeading(h("div", {}, draw(found))).childNodes);
  }

  function redraw() {
    before = "";
    if (last) drawIfChanged(last);
  }

  function showAge() {
    const age = last ? (Date.now() - new Date(last.as_of)) / 1000 : 0;
    asOf.replaceChildren(
      ...(last
        ? [
          h("time", { datetime: last.as_of }, `As of ${clock(last.as_of)} UTC`),
          age > 2 * seconds + 5 ? ` (${since(last.as_of, new Date())} ago)` : ` · refreshes every ${seconds} s`,
        ]
        : []),
    );
  }

  document.addEventListener("visibilitychange", () => document.hidden || round());
  addEventListener("resize", redraw); // charts are drawn at the width of the page
  round();
  return Object.assign(round, { redraw });
}

// Screen readers repeat a message whenever its element changes, so an unchanged message is not written again.
function report(message) {
  trouble.hidden = !message;
  if (trouble.textContent !== message) trouble.textContent = message;
}

function announce(before, now) {
  if (before !== null && before !== now) changes.textContent = now;
}

function clock(moment) {
  return new Date(moment).toISOString().slice(11, 19);
}
