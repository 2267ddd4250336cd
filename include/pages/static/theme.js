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

// Airflow uses one title for all of its pages, so the title is restored when the user leaves this page.
export function nameTab(title) {
  const parent = airflow()?.ownerDocument;
  if (!parent) return;
  const before = parent.title;
  parent.title = title;
  addEventListener("pagehide", () => { if (parent.title === title) parent.title = before; });
}

function airflow() {
  try {
    return window.parent === window ? null : window.parent.document.documentElement;
  } catch {
    return null; // the parent has another origin, so its document cannot be read
  }
}
