// The bytes explorer's chart: one accent bar for the cache, grey ones for things one knows.

function draw({ chart, alt }, width) {
  const row = 34;
  const left = width < 380 ? 0 : 122; // where there is no room beside the bars, labels go above them
  const right = 76;
  const lead = left ? 0 : 16;
  const step = row + lead;
  const floor = chart.bars.length * step + 4;
  const x = (along) => left + along * (width - left - right);
  const picture = svg("svg", { role: "img", "aria-label": alt, width, height: floor + 42 });
  for (const tick of chart.ticks) {
    picture.append(
      svg("line", { class: "rule", x1: x(tick.at), x2: x(tick.at), y1: 0, y2: floor }),
      svg("text", { class: "quiet", x: x(tick.at), y: floor + 16, "text-anchor": tick.at ? "middle" : "start" }, tick.text),
    );
  }
  picture.append(
    svg("text", { class: "quiet", x: x(0), y: floor + 36 }, "each mark is a thousand times the one before"),
  );
  chart.bars.forEach((bar, i) => {
    const top = i * step + lead;
    const strong = bar.ours ? "strong" : "";
    picture.append(
      svg("text", { class: strong, x: 0, y: left ? top + 21 : top + 4 }, bar.label),
      svg("rect", { class: bar.ours ? "accent" : "bar", x: x(0), y: top + 9, width: Math.max(1, x(bar.end) - x(0)), height: 16, rx: 2 }),
      svg("text", { class: strong, x: x(bar.end) + 8, y: top + 21 }, bar.text),
    );
  });
  return picture;
}

export default { render: (context) => build(context, draw) };
