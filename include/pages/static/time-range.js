// The choice of a time range: how long it is, and when it ends. Without an end, it ends now and moves on.
import { h } from "./kit.js";
import { choose } from "./list.js";

// `state` has `hours` and `until`, a UTC time without its zone. `change` receives what the user has chosen.
export function timeRange(state, spans, change) {
  const known = spans.some(([hours]) => String(hours) === state.hours);
  const range = choose("Time range", known ? spans : [...spans, [state.hours, `${state.hours} h`]], state.hours, {
    change: () => change({ hours: range.value }),
  });
  const until = h("input", {
    type: "datetime-local",
    step: 1,
    title: "The end of the time range in UTC. If it is empty, the range ends now.",
    value: state.until,
    change: () => change({ until: until.value }),
  });
  return [range, h("label", {}, "Until (UTC) ", until)];
}

// What a request for the range asks for.
export function asked({ hours, until }) {
  return until ? { hours, until: `${until}Z` } : { hours };
}
