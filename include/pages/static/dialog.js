// The page's dialog: a message, or a question with one button that says yes.
import { h } from "./kit.js";

export function openDialog(content, yes = null, close = "OK") {
  const dialog = document.getElementById("ask");
  dialog.replaceChildren(
    ...[content].flat(),
    h("p", { class: "buttons" }, yes, h("button", { type: "button", click: () => dialog.close() }, close)),
  );
  if (!dialog.open) dialog.showModal();
}

// Asks before an action, and shows why if it is refused. `act` returns what to do when it has succeeded. `details`
// follow the question.
export function confirmAction({ title, text, details = [], label, act, why = (error) => error.message }) {
  const refused = h("p", { role: "alert" });
  const yes = h("button", {
    type: "button",
    class: "yes",
    click: async () => {
      yes.disabled = true;
      try {
        const done = await act();
        document.getElementById("ask").close();
        done?.();
      } catch (error) {
        refused.replaceChildren(why(error));
        yes.disabled = false;
      }
    },
  }, label);
  openDialog([h("h2", {}, title), h("p", {}, text), ...details, refused].filter(Boolean), yes, "Cancel");
}
