// Changes a part of the page into newly drawn nodes in place, so that focus, selections, opened details, scroll
// positions and half-typed inputs survive. `data-key` or `id` identifies a node among its siblings; nodes without a key
// match by place.
import { adopt } from "./kit.js";

export function patch(parent, drawn) {
  const wanted = [...drawn];
  const old = new Map([...parent.childNodes].filter(keyOf).map((child) => [keyOf(child), child]));
  const kept = new Set(wanted.map(keyOf));
  for (const [key, child] of old) if (!kept.has(key)) child.remove();
  let here = parent.firstChild;
  for (const next of wanted) {
    const key = keyOf(next), known = key ? old.get(key) : here;
    old.delete(key);
    if (!known || !isSame(known, next)) parent.insertBefore(next, here);
    else {
      if (known === here) here = here.nextSibling;
      else move(parent, known, here);
      update(known, next);
    }
  }
  while (here) {
    const rest = here.nextSibling;
    here.remove();
    here = rest;
  }
}

function keyOf(node) {
  return node.dataset?.key || node.id || "";
}

function isSame(known, next) {
  return known.nodeName === next.nodeName && keyOf(known) === keyOf(next);
}

// `moveBefore` keeps the focus. Browsers without it move the node with `insertBefore`, which does not.
function move(parent, node, before) {
  if (parent.moveBefore) parent.moveBefore(node, before);
  else parent.insertBefore(node, before);
}

// A node with `data-own` belongs to a script that changes it between two refreshes.
function update(known, next) {
  if (known.nodeType === Node.TEXT_NODE) {
    if (known.data !== next.data) known.data = next.data;
  } else if (!known.hasAttribute("data-own")) {
    adopt(known, next);
    attributes(known, next);
    patch(known, next.childNodes);
  }
}

// Only attributes change, never properties, so a form field keeps what the user has entered. Users open and close
// details.
function attributes(known, next) {
  for (const { name, value } of next.attributes) {
    if (known.getAttribute(name) !== value) known.setAttribute(name, value);
  }
  for (const name of known.getAttributeNames()) {
    if (!next.hasAttribute(name) && !(name === "open" && known.nodeName === "DETAILS")) known.removeAttribute(name);
  }
}
