// The lines of the flow: from each node to the nodes that it comes from. `data-from` of a node names them, one a line.
import { s } from "./kit.js";

// On a phone the columns are stacked, without lines.
export function connect(shown) {
  const flow = shown.querySelector(".flow"), edges = flow?.querySelector(".edges");
  if (!edges) return;
  const box = flow.getBoundingClientRect();
  const nodes = new Map([...flow.querySelectorAll("[data-node]")].map((node) => [node.dataset.node, node]));
  const lines = [...nodes.values()].flatMap((to) =>
    (to.dataset.from ?? "").split("\n").filter((from) => nodes.has(from)).map((from) => line(nodes.get(from), to, box))
  );
  edges.setAttribute("viewBox", `0 0 ${Math.round(box.width)} ${Math.round(box.height)}`);
  edges.replaceChildren(...(getComputedStyle(flow).flexDirection === "row" ? lines : []));
}

function line(from, to, box) {
  const a = from.getBoundingClientRect(), b = to.getBoundingClientRect();
  const [x1, y1, x2, y2] = [
    a.right - box.left,
    a.top + a.height / 2 - box.top,
    b.left - box.left,
    b.top + b.height / 2 - box.top,
  ];
  const middle = (x1 + x2) / 2;
  return s("path", {
    class: "edge",
    "data-ends": `${from.dataset.node}\n${to.dataset.node}`,
    d: `M${x1} ${y1}C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}`,
  });
}

// Highlights the lines of a node and their other ends; null highlights nothing.
export function light(flow, node) {
  const lines = [...flow.querySelectorAll(".edge")];
  const own = new Set(lines.filter((each) => each.dataset.ends.split("\n").includes(node)));
  const near = new Set([...own].flatMap((each) => each.dataset.ends.split("\n")));
  for (const each of lines) each.classList.toggle("lit", own.has(each));
  for (const each of flow.querySelectorAll("[data-node]")) {
    each.classList.toggle("lit", own.size > 0 && near.has(each.dataset.node));
  }
}
