// What the user may not do, said once in the header of every page. Users with all rights see nothing.
import { ask } from "./live.js";
import { h } from "./kit.js";

export async function showRights(place) {
  const { rights } = await ask("data/rights");
  const missing = rights.filter((each) => !each.granted);
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
        missing.map((each) => h("div", {}, h("dt", {}, each.action), h("dd", {}, `Requires: ${each.requires}`))),
      ),
    ),
  );
  place.hidden = false;
}
