// What each layer adds: a bar a piece, from top to bottom, each beginning where the last one ended.

function draw({ chart, alt }, width) {
  const step = 24;
  const left = 124;
  const right = 52;
  const head = 26;
  const floor = head + chart.bars.length * step;
  const x = (along) => left + along * (width - left - right);
  const picture = svg("svg", { role: "img", "aria-label": alt, width, height: floor + 34 });
  picture.append(svg("text", { class: "strong", x: 0, y: 13 }, chart.title));
  for (const zero of chart.zero) {
    picture.append(svg("line", { class: "rule", x1: x(zero.at), x2: x(zero.at), y1: head - 4, y2: floor }));
  }
  chart.bars.forEach((bar, i) => {
    const top = head + i * step;
    const last = bar.label === "all together";
    const words = bar.changed ? "strong" : last ? "strong" : "";
    picture.append(
      svg("text", { class: words, x: 0, y: top + 15 }, bar.changed ? `${bar.label} ◂` : bar.label),
      svg("rect", { class: bar.kind === "for" ? "accent" : "bar", x: x(bar.at), y: top + 3, width: Math.max(1, x(bar.end) - x(bar.at)), height: 15, rx: 2 }),
      svg("text", { class: words, x: x(bar.end) + 6, y: top + 15 }, bar.text),
    );
  });
  picture.append(key(chart, floor + 12));
  return picture;
}

/** What the colours mean, where both are there. */
function key(chart, y) {
  const group = svg("g");
  if (!chart.bars.some((bar) => bar.kind === "against")) return group;
  let place = 0;
  for (const [style, words] of [["accent", "adds to the lead"], ["bar", "takes from it"]]) {
    group.append(
      svg("rect", { class: style, x: place, y, width: 16, height: 14, rx: 2 }),
      svg("text", { class: "quiet", x: place + 22, y: y + 11 }, words),
    );
    place += 42 + words.length * 7.2;
  }
  return group;
}

export default { render: (context) => build(context, draw) };
