// What the user may do. A button that the user may not use is disabled and says what it requires and who has that.
import { ask } from "./live.js";
import { h } from "./kit.js";

let known = new Map();

// Called once, before the page is drawn. The page's own data says why there is no answer.
export async function loadRights() {
  const { rights } = await ask("data/rights");
  known = new Map(rights.map((each) => [each.name, each]));
}

// The action that a right allows, as its name in `data/rights`.
export function granted(right) {
  return Boolean(known.get(right)?.granted);
}

function why(right) {
  const found = known.get(right);
  return found
    ? `Requires permission to ${found.requires}. By default, the roles ${found.roles} have it.`
    : "You may not do this.";
}

// A button for an action. `may` is whether this user may do it to this thing.
export function rightButton(right, may, label, properties = {}) {
  const refused = may ? {} : { disabled: true, title: why(right) };
  return h("button", { type: "button", ...properties, ...refused }, label);
}

// The same reason as text, because a phone and a keyboard show no title. A page shows it once for each group of buttons.
export function reasonFor(right, may, action = "") {
  return may ? null : h("small", { class: "refused" }, action ? `${action}: ` : "", why(right));
}

// Users who may stop applications also have a shell on the platform's host, in which Truelog's commands run.
export function hasShell() {
  return granted("stop");
}

// What to check if a service does not run.
export function checkService(name) {
  return hasShell()
    ? `Check with \`truelog status\` that the \`${name}\` service is READY. Its log is logs/${name}.log in the home.`
    : `An administrator can check whether the \`${name}\` service is running.`;
}

// Who can run the commands that a text names, for users who cannot.
export function whoRunsCommands() {
  return hasShell() ? null : h(
    "p",
    { class: "refused" },
    "Commands in a text need a shell on the host of the platform. An administrator can run them.",
  );
}

// What the user may not do, in the header of every page. Users with all rights see nothing.
export function showRights(place) {
  const rights = [...known.values()], missing = rights.filter((each) => !each.granted);
  if (!missing.length) return;
  place.append(
    h("summary", {}, missing.length === rights.length ? "Read only" : "Some actions are not yours"),
    h(
      "div",
      {},
      h("p", {}, "You may not do this. Ask an administrator of Airflow for the permission."),
      h(
        "dl",
        {},
        missing.map((each) =>
          h(
            "div",
            {},
            h("dt", {}, each.action),
            h("dd", {}, `Requires: ${each.requires} (by default ${each.roles})`),
          )
        ),
      ),
      whoRunsCommands(),
    ),
  );
  place.hidden = false;
}
