// Sends dead letters again: counts what would be sent, and asks before it sends.
import { act } from "./live.js";
import { count, h, seen } from "./kit.js";
import { openDialog } from "./dialog.js";

const NO_RIGHT = "This requires permission to trigger the reconcile DAG.";

// `what` names one dead letter or a filter. Calls `again` when events were sent.
export function sendAgain({ may, label, what, again }) {
  return h(
    "p",
    { class: "buttons" },
    h(
      "button",
      { type: "button", "data-act": "replay", disabled: !may, click: () => preview(label, what, again) },
      label,
    ),
    may ? null : h("small", {}, NO_RIGHT),
  );
}

async function preview(label, what, again) {
  openDialog([h("h2", {}, label), h("p", {}, "Counting the events that are valid now…")], null, "Cancel");
  const found = await act("dead-letters/replay", { ...what, dry_run: true }).catch(({ message }) => ({ message }));
  if (!document.getElementById("ask").open) return; // the user has cancelled
  if (found.message) return openDialog([h("h2", {}, label), h("p", { role: "alert" }, found.message)], null, "Close");
  const refused = h("p", { role: "alert" });
  const yes = h("button", {
    type: "button",
    class: "yes",
    click: async () => {
      yes.disabled = true;
      try {
        const done = await act("dead-letters/replay", { ...what, dry_run: false });
        openDialog([h("h2", {}, `Sent ${count(done.sent, "event")}`), ...counts(done, "were")], null, "Close");
        again();
      } catch (error) {
        refused.replaceChildren(error.message);
        yes.disabled = false;
      }
    },
  }, `Send ${count(found.sent, "event")}`);
  const question = found.sent
    ? `${count(found.sent, "event is", "events are")} valid now and will be sent. Your name is recorded.`
    : "No event would be sent.";
  openDialog(
    [h("h2", {}, label), h("p", {}, question), ...counts(found, "are"), refused],
    found.sent ? yes : null,
    "Close",
  );
}

// The others, with the reasons of the present event types.
function counts({ already_sent: already, invalid, skipped }, verb) {
  const reasons = (title, by) =>
    Object.keys(by).length
      ? [
        h("p", {}, title),
        h("ul", {}, Object.entries(by).slice(0, 10).map(([reason, n]) => h("li", {}, `${n} · `, seen(reason)))),
      ]
      : [];
  return [
    already ? h("p", {}, `${count(already, "event")} ${verb} sent already.`) : null,
    ...reasons("Still invalid:", invalid),
    ...reasons("Left out:", skipped),
  ];
}
