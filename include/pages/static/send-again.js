// Sends dead letters again: counts what would be sent, and asks before it sends.
import { act } from "./live.js";
import { count, h, seen } from "./kit.js";
import { confirmAction, openDialog } from "./dialog.js";
import { reasonFor, rightButton } from "./rights.js";

// `what` names one dead letter or a filter. Calls `again` when events were sent.
export function sendAgain({ may, label, what, again }) {
  return h(
    "p",
    { class: "buttons" },
    rightButton("replay", may, label, { "data-act": "replay", click: () => preview(label, what, again) }),
    reasonFor("replay", may),
  );
}

async function preview(label, what, again) {
  openDialog([h("h2", {}, label), h("p", {}, "Counting the events that are valid now…")], null, "Cancel");
  const found = await act("dead-letters/replay", { ...what, dry_run: true }).catch(({ message }) => ({ message }));
  if (!document.getElementById("ask").open) return; // the user has cancelled
  if (found.message) return openDialog([h("h2", {}, label), h("p", { role: "alert" }, found.message)], null, "Close");
  if (!found.sent) return openDialog(shown(label, "No event would be sent.", found, "are"), null, "Close");
  confirmAction({
    title: label,
    text: `${count(found.sent, "event is", "events are")} valid now and will be sent. Your name is recorded.`,
    details: counts(found, "are"),
    label: `Send ${count(found.sent, "event")}`,
    act: async () => {
      const done = await act("dead-letters/replay", { ...what, dry_run: false });
      return () => {
        openDialog(shown(`Sent ${count(done.sent, "event")}`, null, done, "were"), null, "Close");
        again();
      };
    },
  });
}

function shown(title, text, found, verb) {
  return [h("h2", {}, title), text && h("p", {}, text), ...counts(found, verb)].filter(Boolean);
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
