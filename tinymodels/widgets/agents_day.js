// An agent's day: a curve a model for what is found again; under them, a row a model, what a memory
// of that size holds, finds and costs.

function draw({ chart, alt }, width) {
  const left = 44;
  const right = 26;
  const across = Math.max(60, width - left - right);
  const top = 24;
  const tall = 150;
  const under = top + tall + 66;
  const row = 22;
  const picture = svg("svg", {
    role: "img",
    "aria-label": alt,
    width,
    height: under + chart.bill.length * row + 4,
  });
  const words = (text, x, y, style = "", anchor = "start") =>
    svg("text", { class: style, x, y, "text-anchor": anchor }, text);
  const x = (mark) => left + mark.at * across;
  const y = (mark) => top + tall * (1 - mark.end);
  const stroke = (curve, i) => ({
    fill: "none",
    stroke: curve.on ? "var(--kvc-accent)" : "var(--kvc-quiet)",
    "stroke-width": 2,
    "stroke-dasharray": ["", "8 4", "8 4 2 4", "2 4"][i],
  });

  picture.append(
    words("tokens found again, by memory", 0, 12, "strong"),
    svg("line", { class: "rule", x1: left, x2: left + across, y1: top + tall, y2: top + tall }),
    words("100 %", left - 8, top + 5, "quiet", "end"),
    words("0", left - 8, top + tall + 4, "quiet", "end"),
  );
  const crowded = across < 60 * (chart.ticks.length - 1);
  chart.ticks.forEach((tick, i) => {
    picture.append(
      svg("line", { class: "rule", x1: x(tick), x2: x(tick), y1: top + tall, y2: top + tall + 5 }),
    );
    if (crowded && i % 2) return;
    picture.append(words(tick.text, x(tick), top + tall + 19, "quiet", "middle"));
  });
  chart.curves.forEach((curve, i) => {
    const points = curve.marks.map((mark) => `${x(mark)},${y(mark)}`).join(" ");
    picture.append(svg("polyline", { points, ...stroke(curve, i) }));
  });
  picture.append(svg("circle", { class: "accent", cx: x(chart.here[0]), cy: y(chart.here[0]), r: 5 }));

  // The rows are the curves' key as well: each begins with a piece of its line.
  const heldEnds = width < 300 ? 0 : 156; // no room for this column, no column
  const foundEnds = (heldEnds || 104) + 52;
  const begin = foundEnds + 12;
  const longest = Math.max(4, width - begin - 50);
  if (heldEnds) picture.append(words("tokens held", heldEnds, under - 8, "quiet", "end"));
  picture.append(
    words("found", foundEnds, under - 8, "quiet", "end"),
    words(heldEnds ? "the day costs" : "costs", begin, under - 8, "quiet"),
  );
  chart.bill.forEach((bar, i) => {
    const at = under + i * row;
    const style = bar.on ? "strong" : "";
    const long = Math.max(1, bar.end * longest);
    const curve = chart.curves.findIndex((each) => each.label === bar.label);
    if (curve >= 0) {
      const line = { x1: 0, x2: 24, y1: at + 8, y2: at + 8 };
      picture.append(svg("line", { ...line, ...stroke(chart.curves[curve], curve) }));
    }
    if (heldEnds) picture.append(words(bar.held, heldEnds, at + 12, style, "end"));
    picture.append(
      words(bar.label, 32, at + 12, style),
      words(bar.found, foundEnds, at + 12, style, "end"),
      svg("rect", { class: bar.on ? "accent" : "bar", x: begin, y: at, width: long, height: 15, rx: 2 }),
      words(bar.text, begin + long + 6, at + 12, style),
    );
  });
  return picture;
}

export default { render: (context) => build(context, draw) };
