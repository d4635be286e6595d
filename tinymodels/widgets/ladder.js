// The ladder's chart: a bar for every rung that has been reached, the newest in the accent colour.

function draw({ chart, alt }, width) {
  const row = 36;
  const left = width < 380 ? 78 : 96;
  const right = width < 380 ? 92 : 150;
  const floor = chart.rows.length * row;
  const x = (along) => left + along * (width - left - right);
  const picture = svg("svg", { role: "img", "aria-label": alt, width, height: floor + 42 });
  for (const [i, tick] of chart.ticks.entries()) {
    picture.append(svg("line", { class: "rule", x1: x(tick.at), x2: x(tick.at), y1: 0, y2: floor }));
    if (width < 480 && i % 2) continue; // every second number where they would touch
    picture.append(
      svg("text", { class: "quiet", x: x(tick.at), y: floor + 16, "text-anchor": "middle" }, tick.text),
    );
  }
  const axis = "bytes a token; each mark is ten times the one before";
  picture.append(svg("text", { class: "quiet", x: width < 480 ? 0 : x(0), y: floor + 36 }, axis));
  chart.rows.forEach((each, i) => {
    const middle = i * row + row / 2;
    const strong = each.here ? "strong" : "";
    const reached = each.end !== null;
    picture.append(svg("text", { class: reached ? strong : "quiet", x: 0, y: middle + 4 }, each.label));
    if (!reached) return;
    const end = x(each.end);
    picture.append(
      svg("rect", { class: each.here ? "accent" : "bar", x: x(0), y: middle - 8, width: end - x(0), height: 16, rx: 2 }),
      svg("text", { class: strong, x: end + 8, y: middle - 1 }, each.text),
      svg("text", { class: "quiet", x: end + 8, y: middle + 13, "font-size": 11 }, each.model),
    );
  });
  return picture;
}

export default { render: (context) => build(context, draw) };
