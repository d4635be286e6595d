// Light or dark, before the first pixel: as chosen here before, else as the system says.
(() => {
  const root = document.documentElement;
  let chosen = null;
  try { chosen = localStorage.getItem("course-theme"); } catch { /* a browser that keeps nothing */ }
  const dark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.jpThemeLight = String(!dark);
})();
