// What the user has chosen on a page is in the page's address, so that reloads, bookmarks and copied links keep it.

// Airflow copies the address of a page that has loaded into the browser's address bar. It does so a moment later, and
// reloads the frame if the frame has another address by then. So a choice, which loads nothing, is not reported to
// Airflow: text typed fast would be lost.
export function keepInAddress(choices) {
  const query = new URLSearchParams(pairs(choices)).toString();
  const search = query ? `?${query}` : "";
  keep(window, search);
  if (isInAirflow()) keep(window.parent, search);
}

function keep({ history, location }, search) {
  history.replaceState(history.state, "", `${location.pathname}${search}`);
}

// Until Airflow has copied this page's address, its own does not end like this one.
function isInAirflow() {
  return window.parent !== window && window.parent.location.pathname.endsWith(location.pathname);
}

// The parameters of an address. A list has a parameter for each value, and empty values are left out.
export function pairs(choices) {
  return Object.entries(choices).flatMap(([name, given]) =>
    [given].flat().filter((each) => each !== "" && each !== null).map((each) => [name, String(each)])
  );
}
