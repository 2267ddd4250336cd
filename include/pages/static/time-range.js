// The choice of a time range: its length and its end, or its beginning and its end. Without an end, it ends now and
// moves on.
import { h } from "./kit.js";
import { choose } from "./list.js";

const HOUR = 3_600_000; // milliseconds

// `state` has `hours` and `until`, a UTC time without its zone. `change` receives what the user has chosen, and writes it
// into the state. The longest of the spans is the longest range.
export function timeRange(state, spans, change) {
  const range = choose("Time range", [], "", { change: () => apply({ hours: range.value }) });
  const from = time("The beginning of the time range in UTC. The range then ends at a fixed time.", begin);
  const until = time(
    "The end of the time range in UTC. If it is empty, the range ends now.",
    () => apply({ until: until.value }),
  );
  show();
  return [range, h("label", {}, "From (UTC) ", from), h("label", {}, "Until (UTC) ", until)];

  function begin() {
    const ends = state.until || utc(Date.now()), hours = (millis(ends) - millis(from.value)) / HOUR;
    const [most, longest] = spans.at(-1);
    const wrong = hours <= 0 ? "The range must begin before it ends." : hours > most ? `At most ${longest}.` : "";
    from.setCustomValidity(wrong);
    if (wrong) from.reportValidity();
    else if (from.value) apply({ hours: String(hours), until: ends });
    else show();
  }

  function apply(changes) {
    change(changes);
    show();
  }

  function show() {
    const known = spans.some(([hours]) => String(hours) === state.hours);
    const other = [state.hours, `${Number(Number(state.hours).toFixed(2))} h`];
    const offered = known ? spans : [...spans, other];
    if (!known || range.length !== offered.length) range.replaceChildren(...choose("", offered, "").children);
    range.value = state.hours;
    until.value = state.until;
    from.value = state.until ? utc(millis(state.until) - state.hours * HOUR) : "";
    from.setCustomValidity("");
  }
}

// What a request for the range asks for.
export function asked({ hours, until }) {
  return until ? { hours, until: `${until}Z` } : { hours };
}

function time(title, change) {
  return h("input", { type: "datetime-local", step: 1, title, change });
}

function millis(utcTime) {
  return Date.parse(`${utcTime}Z`);
}

function utc(at) {
  return new Date(at).toISOString().slice(0, 19);
}
