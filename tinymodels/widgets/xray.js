// The X-ray's chart: a grid of layers by tokens, with a cache and without one.
// A cell's letter: n computed now, a computed again, r read, k kept and not read, . not there yet.

const MEANING = { n: "computed now", a: "computed again", r: "read from the cache", k: "kept, not read" };

function stripes() {
  const id = unique();
  const pattern = svg("pattern", { id, width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" });
  pattern.append(svg("rect", { class: "accent", width: 2, height: 5 }));
  return { id, node: svg("defs", {}, pattern) };
}

function cell(letter, x, y, size, pattern) {
  const box = { x: x + 1, y: y + 1, width: size.width - 2, height: size.height - 2, rx: 2 };
  if (letter === "n") return svg("rect", { ...box, class: "accent" });
  if (letter === "r") return svg("rect", { ...box, class: "soft" });
  if (letter === "k") return svg("rect", { ...box, class: "track" });
  if (letter === "a") return svg("rect", { ...box, class: "again", fill: `url(#${pattern})` });
  return svg("rect", { ...box, class: "empty" });
}

function draw({ chart, alt }, width) {
  const { labels, panels, given, totals } = chart;
  const left = 58;
  const size = { width: Math.min(34, (width - left - 24) / labels.length), height: 18 };
  const named = size.width >= 11; // narrower columns have no room for a word each
  const longest = Math.max(...labels.map((label) => Array.from(label).length));
  const head = named ? 14 + Math.min(60, longest * 5) : 10;
  const tall = panels[0].rows.length * size.height;
  const step = head + 26 + tall + 14;
  const height = panels.length * step + 34 + totals.length * 24;
  const picture = svg("svg", { role: "img", "aria-label": alt, width, height });
  const pattern = stripes();
  picture.append(pattern.node);
  panels.forEach((panel, at) => {
    const title = svg("text", { class: "strong", x: 0, y: at * step + 12 }, panel.title);
    const count = svg("text", { class: "quiet", x: width < 420 ? 0 : 118, y: at * step + (width < 420 ? 27 : 12) }, panel.count);
    const top = at * step + head + 26;
    picture.append(title, count);
    if (named) {
      labels.forEach((label, i) => {
        if (i >= given[1]) return;
        const x = left + (i + 0.65) * size.width;
        const now = i >= given[0];
        picture.append(
          svg("text", { class: now ? "strong" : "quiet", transform: `translate(${x} ${top - 5}) rotate(-55)`, "font-size": 11 }, label.trim() || "␣"),
        );
      });
    }
    panel.rows.forEach((row, y) => {
      picture.append(svg("text", { class: "quiet", x: 0, y: top + y * size.height + 13, "font-size": 11 }, panel.names[y]));
      Array.from(row).forEach((letter, x) => {
        picture.append(cell(letter, left + x * size.width, top + y * size.height, size, pattern.id));
      });
    });
  });
  picture.append(key(panels, panels.length * step + 2, pattern.id), bars(totals, panels.length * step + 36, width));
  return picture;
}

/** What the cells mean, for those that are on the page. */
function key(panels, y, pattern) {
  const group = svg("g");
  let x = 0;
  for (const [letter, words] of Object.entries(MEANING)) {
    if (!panels.some((panel) => panel.rows.some((row) => row.includes(letter)))) continue;
    group.append(
      cell(letter, x, y, { width: 16, height: 16 }, pattern),
      svg("text", { class: "quiet", x: x + 22, y: y + 12 }, words),
    );
    x += 40 + words.length * 7.2;
  }
  return group;
}

/** Rows computed so far, each way, against the most that will be. */
function bars(totals, y, width) {
  const group = svg("g");
  const left = 192;
  totals.forEach((total, i) => {
    const long = Math.max(1, total.end * (width - left - 60));
    group.append(
      svg("text", { x: 0, y: y + i * 24 + 13 }, total.label),
      svg("rect", { class: i ? "bar" : "accent", x: left, y: y + i * 24 + 2, width: long, height: 14, rx: 2 }),
      svg("text", { class: i ? "" : "strong", x: left + long + 8, y: y + i * 24 + 13 }, total.text),
    );
  });
  return group;
}

export default { render: (context) => build(context, draw, { side: false }) };
