// The time axis of charts: its width on this screen, and ticks at round UTC times.
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];
const DAY = 86400;
const NARROWEST = 300, TICK = 110; // CSS pixels

// The width of a chart: that of the page. A drawing that the browser scales has texts of another size than the page.
export function chartWidth() {
  const style = getComputedStyle(document.body);
  const room = document.body.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
  return Math.max(NARROWEST, Math.floor(room));
}

// Round times between two times in seconds, as many as fit the width. More than a day apart, they are whole days.
export function roundTimes(first, last, width) {
  const most = Math.max(2, Math.floor(width / TICK)), span = last - first;
  const step = STEPS.find((each) => span / each <= most) ?? DAY * Math.ceil(span / DAY / most);
  const times = [];
  for (let time = Math.ceil(first / step) * step; time <= last; time += step) times.push(time);
  return { step, times };
}

// A tick's text: the day at midnight, else the time of day, with seconds only if the ticks are closer than a minute.
export function tickText(seconds, step) {
  const text = new Date(seconds * 1000).toISOString();
  return seconds % DAY === 0 ? text.slice(5, 10) : text.slice(11, step < 60 ? 19 : 16);
}

// The time of a point, with its day if that is not today.
export function pointText(seconds) {
  const text = new Date(seconds * 1000).toISOString();
  const today = text.slice(0, 10) === new Date().toISOString().slice(0, 10);
  return today ? text.slice(11, 19) : text.slice(0, 19).replace("T", " ");
}
