// What the user has chosen on a page is in the page's address, so that reloads, bookmarks and copied links keep it.

// Airflow copies the frame's address into the browser's address bar whenever the frame reports `load`. A choice changes the
// address without loading anything, so this function reports `load` itself.
export function keepInAddress(choices) {
  const query = new URLSearchParams(Object.entries(choices).filter(([, value]) => value !== "" && value !== null)).toString();
  history.replaceState(null, "", query ? `?${query}` : location.pathname);
  window.frameElement?.dispatchEvent(new Event("load"));
}
