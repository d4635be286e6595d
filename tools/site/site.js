// The theme's button, the search, and the widgets that live without a kernel.
(() => {
  const root = document.documentElement;

  // ---- light and dark
  const button = document.querySelector("button.theme");
  const show = () => {
    button.setAttribute("aria-pressed", String(root.dataset.jpThemeLight === "false"));
  };
  button.addEventListener("click", () => {
    const dark = root.dataset.jpThemeLight !== "false";
    root.dataset.jpThemeLight = String(!dark);
    try { localStorage.setItem("course-theme", dark ? "dark" : "light"); } catch { /* not kept */ }
    show();
  });
  show();
  if (matchMedia("(max-width: 1100px)").matches) {
    document.querySelector(".contents details")?.removeAttribute("open");
  }

  // ---- paper shows what is folded
  const folded = [];
  addEventListener("beforeprint", () => {
    folded.push(...document.querySelectorAll("main details:not([open])"));
    for (const one of folded) one.open = true;
  });
  addEventListener("afterprint", () => { for (const one of folded.splice(0)) one.open = false; });

  // ---- search
  const box = document.getElementById("search");
  const panel = document.getElementById("found");
  const base = root.dataset.root;
  let loading = null;
  const index = () => loading ??= new Promise((done, failed) => {
    const script = document.createElement("script");
    script.src = `${base}search.js`;
    script.onload = () => done(finder(window.courseIndex, root.lang));
    script.onerror = failed;
    document.head.append(script);
  });
  const element = (name, attributes, ...children) => {
    const node = Object.assign(document.createElement(name), attributes);
    node.append(...children);
    return node;
  };
  const plain = (w) => w.replace(/[.*+?^${}()|[\]\\]/g, "\\$&").replace(/\d(?=(\d{3})+$)/g, "$&,?");
  function excerpt(text, words) {
    const low = text.toLowerCase();
    const places = words.map((w) => low.search(new RegExp(`(?<![a-z0-9])${plain(w)}`))).filter((i) => i >= 0);
    const first = places.length ? Math.min(...places) : 0;
    const from = Math.max(0, first - 50);
    const gap = text.indexOf(" ", from);
    const at = from && gap >= 0 && gap < first ? gap + 1 : from; // Chinese has few gaps
    let end = at + 170;
    if (/[a-z0-9]/i.test(text[end] ?? "")) { // no half words
      end = Math.max(at + 100, text.lastIndexOf(" ", end));
    }
    const cut = (at ? "… " : "") + text.slice(at, end).trim() + (end < text.length ? " …" : "");
    const marked = new Uint8Array(cut.length); // pairs of Chinese characters overlap
    for (const w of words) {
      const pattern = new RegExp(/^[a-z0-9]/.test(w) ? `\\b${plain(w)}[a-z0-9]*` : plain(w), "gi");
      for (const { 0: met, index: from } of cut.matchAll(pattern)) marked.fill(1, from, from + met.length);
    }
    const pieces = [];
    for (let from = 0, to = 0; from < cut.length; from = to) {
      while (to < cut.length && marked[to] === marked[from]) to += 1;
      const piece = cut.slice(from, to);
      pieces.push(marked[from] ? element("mark", { textContent: piece }) : piece);
    }
    return pieces;
  }
  async function search() {
    const asked = box.value;
    panel.hidden = !asked.trim();
    if (panel.hidden) return;
    const find = await index();
    if (asked !== box.value) return;
    const { hits, whole, heard } = find(asked);
    panel.querySelector("p").textContent = told(hits, whole, heard);
    panel.querySelector("ol").replaceChildren(...hits.slice(0, 20).map(({ entry, words }) => {
      const href = `${base}${entry.u}${entry.a ? `#${entry.a}` : ""}`;
      const name = entry.h && !entry.t.endsWith(entry.h) ? `${entry.t}: ${entry.h}` : entry.t;
      const link = element("a", { href, textContent: name });
      link.addEventListener("click", () => { panel.hidden = true; });
      return element("li", {}, link, element("p", {}, ...excerpt(said(entry), words)));
    }));
  }
  const said = ({ w, h }) => (w.startsWith(h) && w.length > h.length ? w.slice(h.length).replace(/^[ ·]+/, "") : w);
  function told(hits, whole, heard) {
    if (!hits.length) return "Nothing has these words.";
    const instead = heard.map(([typed, found]) => `Nothing has “${typed}”; shown is “${found}”. `).join("");
    const few = whole ? "" : "No place has all of these words; the nearest: ";
    const places = `${hits.length} ${hits.length === 1 ? "place" : "places"}`;
    return `${instead}${few}${places}${hits.length > 20 ? ", the first 20:" : ":"}`;
  }
  box.addEventListener("input", search);
  box.addEventListener("focus", index, { once: true });
  box.form.addEventListener("submit", (event) => {
    event.preventDefault();
    panel.querySelector("a")?.focus();
  });
  document.addEventListener("pointerdown", (event) => {
    if (!panel.contains(event.target) && !box.form.contains(event.target)) panel.hidden = true;
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !panel.hidden) {
      panel.hidden = true;
      box.focus();
    }
    const typing = event.target.matches?.("input, select, textarea, button");
    if (event.key === "/" && !typing) {
      event.preventDefault();
      box.focus();
    }
  });

  // ---- widgets: the notebook's own files, answered by a script in Python's place
  function stub(live, start) {
    const key = (settings) => JSON.stringify(Object.values(settings));
    const seen = live.look ? live.look(start, "reset") : live.state.views[key(start)];
    const state = { ...live.state, start, shown: { ...seen, turn: 0, ahead: {} } };
    const heard = new Set();
    return {
      get: (name) => state[name],
      set: (name, value) => { state[name] = value; },
      on: (name, call) => heard.add(call),
      off: (name, call) => heard.delete(call),
      save_changes: () => {
        const { settings, changed, turn } = state.asked;
        const at = key(settings);
        const answer = live.look ? live.look(settings, changed)
          : live.state.views[live.state.leads[at + changed] ?? at];
        state.shown = { ...answer, turn, ahead: {} };
        heard.forEach((call) => call());
      },
    };
  }
  for (const figure of document.querySelectorAll("figure.live")) {
    const live = window.kvcLive?.[figure.dataset.widget];
    if (!live) continue;
    const place = document.createElement("div");
    figure.prepend(place);
    live.render({ model: stub(live, JSON.parse(figure.dataset.start)), el: place });
    for (const still of figure.querySelectorAll(":scope > :is(img, .wide)")) still.remove();
    figure.querySelector(":scope > details")?.remove();
    figure.dataset.alive = "true";
  }
})();
