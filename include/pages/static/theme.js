// Light or dark as Airflow around us is; by itself, as the system is.
export function followTheme() {
  const around = airflow();
  if (!around) return;
  const follow = () => {
    document.documentElement.dataset.theme = around.classList.contains("dark") ? "dark" : "light";
  };
  new MutationObserver(follow).observe(around, { attributes: true, attributeFilter: ["class"] });
  follow();
}

function airflow() {
  try {
    return window.parent === window ? null : window.parent.document.documentElement;
  } catch {
    return null; // a frame of somebody else, whose document is not ours to read
  }
}
