// What the user has chosen on a page is in the page's address, so that reloads, bookmarks and copied links keep it.

// Airflow copies the frame's address into the browser's address bar whenever the frame reports `load`. A choice changes
// the address without loading anything, so this function reports `load` itself.
export function keepInAddress(choices) {
  const query = new URLSearchParams(pairs(choices)).toString();
  history.replaceState(null, "", query ? `?${query}` : location.pathname);
  window.frameElement?.dispatchEvent(new Event("load"));
}

// The parameters of an address. A list has a parameter for each value, and empty values are left out.
export function pairs(choices) {
  return Object.entries(choices).flatMap(([name, given]) =>
    [given].flat().filter((each) => each !== "" && each !== null).map((each) => [name, String(each)])
  );
}
