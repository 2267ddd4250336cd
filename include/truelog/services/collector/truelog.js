// Sends events of a page to a collector of Truelog: docs/tracker.md.
try {
  (() => {
    const { src, dataset } = document.currentScript;
    const { key, to = new URL("browser", src), store, views } = dataset;
    const address = `${to}?key=${encodeURIComponent(key)}`;
    const page = random();
    const memory = new Map(); // where nothing can be stored
    const event = "truelog:event:";
    let disk, seen, timer, busy, sequence = 0, dropped = 0, flying = 0, bytes = 0, most = 500, pause = 0;

    const quiet = (work) => (...given) => {
      try {
        return work(...given);
      } catch {
        // The page goes on.
      }
    };

    function random() {
      return [...crypto.getRandomValues(new Uint8Array(16))].map((each) => each.toString(16).padStart(2, 0)).join("");
    }

    const size = (text) => new Blob([text]).size;
    const offset = () => Date.now() - performance.now(); // grows while the device sleeps, shrinks if its clock is put back
    const read = (name) => memory.get(name) ?? disk?.getItem(name);

    function write(name, text) {
      try {
        disk.setItem(name, text);
        memory.delete(name);
      } catch {
        memory.set(name, text);
      }
    }

    function drop(name) {
      memory.delete(name);
      disk?.removeItem(name);
    }

    // Events of script 3 have no key.
    const waiting = (end = address) =>
      [...memory.keys(), ...Object.keys(disk || {})].filter((name) =>
        name.startsWith(event) && (name.endsWith(end) || !name.includes("?"))
      ).sort();

    // If the visitor opts out, all is deleted.
    function refused() {
      if (!navigator.globalPrivacyControl && (navigator.doNotTrack || window.doNotTrack) != 1) return;
      memory.clear();
      quiet(() =>
        Object.keys(localStorage).forEach((name) => /^truelog:/.test(name) && localStorage.removeItem(name))
      )();
      return true;
    }

    function visitor() {
      if (!read("truelog:visitor")) write("truelog:visitor", random());
      return read("truelog:visitor");
    }

    function session(now) {
      let [id, last] = (read("truelog:session") || "").split(" ");
      if (!id || now - last > 18e5) id = random();
      write("truelog:session", `${id} ${now}`);
      return id;
    }

    const truelog = quiet((type, fields) => {
      if (refused()) return;
      const now = Date.now();
      const made = { visitor_id: visitor(), session_id: session(now), event_id: random(), ...fields, type };
      if (dropped) made.dropped = dropped;
      const text = JSON.stringify([page, now, offset(), made]);
      if (size(text) > 16e3) return void dropped++;
      dropped = 0;
      write(event + now.toString(36) + String(sequence++).padStart(6, 0) + page + address, text);
      bound();
      if (!pause) later(0);
      return made.event_id;
    });

    function bound() {
      let left = 256e3, room = 500;
      for (const name of waiting("").reverse()) {
        const text = read(name) || "";
        left -= text.length;
        if (room-- > 0 && left >= 0) continue;
        quiet(() => dropped += JSON.parse(text)[3].dropped || 0)(); // what it would have said
        dropped++;
        drop(name);
      }
    }

    // The event as it is sent. If the clock was put back since, so is its time.
    function stamped(name) {
      try {
        const [from, at, was, made] = JSON.parse(read(name)), now = Date.now();
        const back = from == page ? Math.min(0, offset() - was) : 0;
        made.occurred_at = new Date(Math.min(at + back, now)).toISOString();
        made.sent_at = new Date(now).toISOString();
        return JSON.stringify(made);
      } catch {
        drop(name);
      }
    }

    function batch() {
      const names = [], texts = [];
      let left = 6e4;
      for (const name of waiting().slice(0, most)) {
        const text = stamped(name);
        if (!text) continue;
        if ((left -= size(text) + 1) < 0) break;
        names.push(name), texts.push(text);
      }
      return [names, `[${texts}]`];
    }

    async function request(body, keepalive) {
      const length = size(body);
      flying++, bytes += length;
      try {
        return await fetch(address, {
          method: "POST",
          body,
          keepalive,
          credentials: "omit",
          signal: AbortSignal.timeout?.(3e4),
        });
      } finally {
        flying--, bytes -= length;
      }
    }

    async function post(body) {
      if (flying < 8 && bytes + size(body) < 6e4) {
        try {
          return await request(body, true);
        } catch {
          // The page's quota may be used up, or the visitor opted out.
          if (refused()) throw 0;
        }
      }
      return request(body, false);
    }

    async function flush() {
      for (let [names, body] = batch(); !refused() && names.length; [names, body] = batch()) {
        const { status, json } = await post(body).then(async (found) => ({
          status: found.status,
          json: await found.json(),
        }))
          .catch(() => ({ status: 503 }));
        if (status == 408 || status == 429 || status >= 500) return later(pause = Math.min(2 * pause || 1e3, 6e4));
        pause = 0;
        truelog.token = json?.token;
        if (status < 400 || status == 401 || status == 422 || names.length < 2) names.forEach(drop), most = 500;
        else most = names.length >> 1; // one event of these is refused
      }
    }

    // One tab at a time sends. Only secure pages have locks. A page with a lock is not kept for the way back.
    async function alone(work) {
      if (navigator.locks) return navigator.locks.request("truelog", work);
      const now = Date.now(), [holder, until] = (read("truelog:lease") || "").split(" ");
      if (holder && holder != page && until > now && until < now + 6e4) return later(1e3);
      write("truelog:lease", `${page} ${now + 35e3}`);
      await work();
      drop("truelog:lease");
    }

    function later(wait) {
      clearTimeout(timer);
      timer = setTimeout(send, wait);
    }

    async function send() {
      if (refused() || !waiting()[0]) return;
      if (busy) return busy = 2;
      busy = 1;
      await alone(flush).catch(() => {});
      if (busy > 1 && !pause) later(0);
      busy = 0;
    }

    // The answer is never known, so the next page sends the events again.
    function beacon(names) {
      const texts = names.map(stamped).filter(Boolean), half = names.length >> 1;
      return navigator.sendBeacon(address, `[${texts}]`) ||
        half > 0 && beacon(names.slice(0, half)) && beacon(names.slice(half));
    }

    const leave = quiet(() => {
      const names = waiting(page + address);
      if (names.length && navigator.onLine && !refused()) beacon(names);
    });

    const look = quiet(() => {
      const url = location.href.split("#")[0];
      if (url == seen) return;
      const { userAgent, language } = navigator;
      const browser = /Edg|OPR|Firefox|Chrome|Safari/.exec(userAgent)?.[0];
      truelog("page_view", {
        url: url.slice(0, 8192),
        referrer: (seen || document.referrer).slice(0, 4096) || undefined,
        browser,
        language,
      });
      seen = url;
    });

    function watch() {
      look();
      addEventListener("pageshow", (shown) => shown.persisted && (seen = "", look()));
      if (window.navigation) return navigation.addEventListener("currententrychange", look);
      for (const name of ["pushState", "replaceState"]) {
        const own = history[name];
        history[name] = function () {
          own.apply(this, arguments);
          look();
        };
      }
      addEventListener("popstate", look);
    }

    quiet(() => {
      const early = window.truelog?.q || [];
      if (window.truelog?.page) return; // this script is already here
      if (store != "no") quiet(() => disk = localStorage)();
      window.truelog = Object.assign(truelog, { page });
      early.forEach((given) => truelog(...given));
      addEventListener("pagehide", leave);
      addEventListener("visibilitychange", () => send());
      addEventListener("online", () => later(pause = 0));
      later(0);
      if (views == "no" || !location.protocol.startsWith("http")) return;
      if (document.prerendering) document.addEventListener("prerenderingchange", quiet(watch));
      else watch();
    })();
  })();
} catch {
  // The page goes on.
}
