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

  // ---- search: every word must be there; headings weigh more
  const box = document.getElementById("search");
  const panel = document.getElementById("found");
  const base = root.dataset.root;
  let loading = null;
  const index = () => loading ??= new Promise((done, failed) => {
    const script = document.createElement("script");
    script.src = `${base}search.js`;
    script.onload = () => done(window.courseIndex);
    script.onerror = failed;
    document.head.append(script);
  });
  const element = (name, attributes, ...children) => {
    const node = Object.assign(document.createElement(name), attributes);
    node.append(...children);
    return node;
  };
  function excerpt(text, words) {
    const low = text.toLowerCase();
    const at = Math.max(0, Math.min(...words.map((w) => low.indexOf(w)).filter((i) => i >= 0), 1e9) % 1e9 - 50);
    const cut = (at ? "… " : "") + text.slice(at, at + 170).trim() + (at + 170 < text.length ? " …" : "");
    const pattern = words.map((w) => w.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("|");
    return cut.split(new RegExp(`(${pattern})`, "gi"))
      .map((piece, i) => (i % 2 ? element("mark", { textContent: piece }) : piece));
  }
  async function search() {
    const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    panel.hidden = !words.length;
    if (!words.length) return;
    const asked = box.value;
    const entries = await index();
    if (asked !== box.value) return;
    const hits = [];
    for (const entry of entries) {
      const heading = `${entry.t} ${entry.h}`.toLowerCase();
      const text = entry.w.toLowerCase();
      if (!words.every((w) => heading.includes(w) || text.includes(w))) continue;
      const starts = entry.u === "docs/glossary.html" && words.every((w, i) => i || text.startsWith(w));
      const weight = words.reduce((sum, w) => sum + (heading.includes(w) ? 5 : 0)
        + Math.min(4, text.split(w).length - 1), starts ? 50 : 0);
      hits.push([weight, entry]);
    }
    hits.sort((one, other) => other[0] - one[0]);
    panel.querySelector("p").textContent = hits.length
      ? `${hits.length} ${hits.length === 1 ? "place" : "places"}${hits.length > 20 ? ", the first 20:" : ":"}`
      : "Nothing has these words.";
    panel.querySelector("ol").replaceChildren(...hits.slice(0, 20).map(([, entry]) => {
      const href = `${base}${entry.u}${entry.a ? `#${entry.a}` : ""}`;
      const name = entry.h && !entry.t.endsWith(entry.h) ? `${entry.t}: ${entry.h}` : entry.t;
      const link = element("a", { href, textContent: name });
      link.addEventListener("click", () => { panel.hidden = true; });
      return element("li", {}, link, element("p", {}, ...excerpt(entry.w, words)));
    }));
  }
  box.addEventListener("input", search);
  box.addEventListener("focus", index, { once: true });
  box.form.addEventListener("submit", (event) => {
    event.preventDefault();
    panel.querySelector("a")?.focus();
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
    figure.querySelector(":scope > img")?.remove();
    figure.querySelector(":scope > details")?.remove();
    figure.dataset.alive = "true";
  }
})();
