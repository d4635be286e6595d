// The frontier: a row a model, its cost as a bar, its seeds as marks; a line down the best so far.

function draw({ chart, alt }, width) {
  const narrow = width < 460;
  const row = narrow ? 58 : 30;
  const top = 28;
  const left = 74;
  const cost = narrow ? width - left - 172 : Math.round(width * 0.17);
  const from = narrow ? left : left + cost + 78; // where the marks begin
  const across = width - from - (narrow ? 20 : 128);
  const bottom = top + chart.rows.length * row;
  const picture = svg("svg", { role: "img", "aria-label": alt, width, height: bottom + 40 });
  const words = (text, x, y, style = "", anchor = "start") =>
    svg("text", { class: style, x, y, "text-anchor": anchor }, text);
  const x = (mark) => from + mark.at * across;
  const middle = (number) => top + number * row + (narrow ? 38 : 14);

  picture.append(words(chart.weigh, 0, 12, "strong"));
  picture.append(words(chart.asked, narrow ? width : from, 12, "strong", narrow ? "end" : "start"));
  const path = chart.line.flatMap((p) => [
    `${x(p)},${top + p.row * row}`,
    `${x(p)},${top + (p.row + 1) * row}`,
  ]);
  picture.append(
    svg("polyline", {
      points: path.join(" "), fill: "none", stroke: "currentColor", "stroke-width": 1.5,
      "stroke-dasharray": "5 3",
    }),
  );
  chart.rows.forEach((line, number) => {
    const y = top + number * row;
    const style = line.here ? "strong" : "";
    const colour = line.here ? "var(--kvc-accent)" : "currentColor";
    const long = Math.max(1, line.end * cost);
    picture.append(
      words(line.label, 0, y + 18, style),
      svg("rect", { class: line.here ? "accent" : "bar", x: left, y: y + 7, width: long, height: 14, rx: 2 }),
      words(line.cost, left + long + 6, y + 18, style),
      svg("line", { class: "rule", x1: from, x2: from + across, y1: middle(number), y2: middle(number) }),
      words(line.stands, width, narrow ? y + 18 : middle(number) + 4, style, "end"),
    );
    line.marks.forEach((mark) =>
      picture.append(
        svg("circle", {
          cx: x(mark), cy: middle(number), r: line.here ? 6 : 4.5, stroke: colour, "stroke-width": 2,
          fill: line.how === "on" ? colour : "var(--jp-layout-color0, var(--kvc-ground))",
        }),
      ),
    );
  });
  picture.append(
    words(chart.ends[0], from, bottom + 16, "quiet"),
    words(chart.ends[1], from + across, bottom + 16, "quiet", "end"),
    words("further right is better; filled: on the frontier", from, bottom + 34, "quiet"),
  );
  return picture;
}

export default { render: (context) => build(context, draw) };
