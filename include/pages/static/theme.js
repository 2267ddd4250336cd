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

// Names the page in its heading and in the title of the browser's tab. Until there is data, the heading is above the
// form. A drawing without a heading of its own gets a copy, because all content of a page is in its landmarks.
export function withHeading(drawn) {
  const general = document.getElementById("heading");
  if (!drawn.querySelector("h1")) drawn.prepend(general.firstChild.cloneNode(true));
  general.hidden = true;
  nameTab(drawn.querySelector("h1").firstChild.textContent.trim());
  return drawn;
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
