// The shop's page: it sends events with the tracker, changes the cart by commands, and reads views with scoped tokens.

const api = document.currentScript.dataset.api;
const find = (id) => document.getElementById(id);
const say = (text) => find("status").textContent = text;
let products = [];
let found; // the search whose results are shown

/** An element with children, which are elements or text. No text of a visitor ever becomes HTML. */
function element(tag, properties, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

// --- Reading: a view, by the visitor's own token ---

/**
 * Shows rows now, and again whenever they have changed, until `signal` aborts. Live push says when they have. A view that
 * does not publish its changes is read each second, and so is any view while the API has no changes of it.
 */
async function follow(name, show, signal) {
  let granted, tag, changes, due, wake;
  const tell = () => {
    due = true;
    wake?.();
  };
  const read = async () => {
    granted ??= await (await fetch(`/tokens/${name}`, { method: "POST", signal })).json();
    if (!granted.token) return granted = undefined;
    const headers = { Authorization: `Bearer ${granted.token}`, ...(tag && { "If-None-Match": tag }) };
    const answer = await fetch(api + granted.path, { headers, cache: "no-store", signal });
    if (answer.status === 401) granted = undefined; // it has expired
    if (answer.status === 200) {
      tag = answer.headers.get("ETag");
      show((await answer.json()).rows);
    }
    return answer.status === 200 || answer.status === 304;
  };
  const isOpen = () => changes && changes.readyState !== EventSource.CLOSED;
  const listen = () => {
    if (!granted.changes || isOpen() || document.hidden) return;
    changes = new EventSource(`${api}${granted.changes.path}?token=${granted.changes.token}`);
    // Each of these says that the rows may differ. After `resync`, changes are missing, so the page reads, too.
    for (const each of ["rows", "change", "resync"]) changes.addEventListener(each, tell);
    // The browser comes back by itself after most errors. An expired token ends the stream.
    changes.onerror = () => isOpen() || setTimeout(tell, 1000);
  };
  // A browser opens few streams to one server, so a hidden page has none.
  document.addEventListener("visibilitychange", () => document.hidden ? changes?.close() : tell(), { signal });
  while (!signal?.aborted) {
    due = false;
    const isRead = !document.hidden && await read().catch(() => false); // no network: try again later
    if (isRead) listen();
    if (due) continue;
    await new Promise((resolve) => {
      wake = resolve;
      if (!isRead || !isOpen()) setTimeout(resolve, 1000);
    });
  }
  changes?.close();
}

// --- Writing: a command is decided, and may be refused ---

async function command(name, fields) {
  // The same key in each attempt, so that the command counts once however often it is sent.
  const headers = { "Content-Type": "application/json", "Idempotency-Key": crypto.randomUUID() };
  for (let attempt = 0; attempt < 60; attempt++) {
    const answer = await fetch(`/commands/${name}`, { method: "POST", headers, body: JSON.stringify(fields) })
      .catch(() => undefined);
    if (answer && answer.status < 500) {
      const decided = await answer.json();
      return say(answer.ok ? "" : decided.refused ?? decided.reason ?? decided.error);
    }
    say("No connection. The change is sent when there is one.");
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}

// --- The parts of the page ---

function button(label, click) {
  return element("button", { type: "button", onclick: click }, label);
}

function showProducts(words) {
  const matches = products.filter((each) => each.name.toLowerCase().includes(words.toLowerCase()));
  const url = (each) => `${location.origin}/products/${each.id}`;
  found = words && truelog("search", { query: words, results: matches.map(url) });
  find("products").replaceChildren(...matches.map((each) => {
    const open = (event) => {
      event.preventDefault();
      if (found) truelog("click", { search_id: found, url: url(each) });
      history.pushState({}, "", url(each));
      showPlace();
    };
    return element("article", {}, element("a", { href: url(each), onclick: open }, each.name), `${each.price} €`);
  }));
}

let left = new AbortController();

/** The page of a product, or the list: what the address says. */
function showPlace() {
  left.abort();
  left = new AbortController();
  const product = products.find((each) => location.pathname === `/products/${each.id}`);
  find("products").hidden = Boolean(product);
  find("product").hidden = !product;
  if (!product) return;
  const likes = element("span", {}, "0 likes");
  const like = (verb) => () => truelog("like", { target_id: product.id, person_id: person(), verb });
  find("product").replaceChildren(
    element("h1", {}, product.name),
    element("p", {}, `${product.price} €`),
    button("Add to cart", () => command("add_to_cart", { product: product.id, quantity: 1 })),
    button("Like", like("liked")),
    button("Unlike", like("unliked")),
    likes,
  );
  follow(product.id, ([row]) => likes.textContent = `${row?.likes ?? 0} likes`, left.signal);
}

/** Who likes: an id of this browser. A like is what a browser says, and no proof. */
function person() {
  return localStorage.person ??= crypto.randomUUID();
}

follow("cart", (rows) => {
  const open = rows.filter((each) => !each.checked_out_at);
  find("cart").replaceChildren(...open.map((each) =>
    element(
      "li",
      {},
      `${products.find((one) => one.id === each.product)?.name ?? each.product} (${each.quantity}) `,
      button("Remove", () => command("remove_from_cart", { product: each.product })),
    )
  ));
});

follow("timeline", (rows) => {
  const newest = rows.sort((one, other) => one.tweeted_at < other.tweeted_at ? 1 : -1);
  find("timeline").replaceChildren(...newest.map((each) => element("li", {}, each.text)));
});

find("check-out").onclick = () => command("check_out_cart", {});
find("search").onsubmit = (event) => {
  event.preventDefault();
  history.pushState({}, "", "/");
  showPlace();
  showProducts(new FormData(event.target).get("words"));
};
find("say").onsubmit = async (event) => {
  event.preventDefault();
  const body = JSON.stringify({ text: new FormData(event.target).get("text") });
  const headers = { "Content-Type": "application/json" };
  const answer = await fetch("/tweets", { method: "POST", headers, body }).catch(() => undefined);
  if (!answer?.ok) return say("That was not sent. Please try again.");
  event.target.reset();
};
addEventListener("popstate", showPlace);
fetch("/files/products.json").then((answer) => answer.json()).then((list) => {
  products = list;
  showProducts("");
  showPlace();
});
