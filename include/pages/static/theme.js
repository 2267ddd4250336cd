// Follows the light or dark theme of the surrounding Airflow page or, outside Airflow, the system's theme.
export function followTheme() {
  const parent = airflow();
  if (!parent) return;
  const follow = () => {
    document.documentElement.dataset.theme = parent.classList.contains("dark") ? "dark" : "light";
  };
  new MutationObserver(follow).observe(parent, { attributes: true, attributeFilter: ["class"] });
  follow();
}

// Names the page in its heading and in the title of the browser's tab. A page that draws a heading of its own replaces
// ours.
export function showHeading(shown) {
  const own = shown.querySelector("h1");
  document.getElementById("heading").hidden = own !== null;
  nameTab((own ?? document.querySelector("#heading h1")).firstChild.textContent.trim());
}

// Airflow uses one title for all of its pages, so the title is restored when the user leaves this page.
export function nameTab(name) {
  document.title = `${name} · Truelog`;
  const parent = airflow()?.ownerDocument;
  if (!parent) return;
  before ??= parent.title;
  parent.title = document.title;
}

let before = null;
addEventListener("pagehide", () => {
  if (before !== null && airflow().ownerDocument.title === document.title) airflow().ownerDocument.title = before;
});

function airflow() {
  try {
    return window.parent === window ? null : window.parent.document.documentElement;
  } catch {
    return null; // the parent has another origin, so its document cannot be read
  }
}
