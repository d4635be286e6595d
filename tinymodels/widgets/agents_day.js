// An agent's day: a curve a model for what is found again, and the bill in three bars.

function draw({ chart, alt }, width) {
  const left = 64;
  const right = 60;
  const across = width - left - right;
  const top = 24;
  const tall = 150;
  const under = top + tall + 62;
  const row = 22;
  const picture = svg("svg", {
    role: "img",
    "aria-label": alt,
    width,
    height: under + chart.bill.length * row + 6,
  });
  const words = (text, x, y, style = "quiet", anchor = "start") =>
    svg("text", { class: style, x, y, "text-anchor": anchor }, text);
  const x = (mark) => left + mark.at * across;
  const y = (mark) => top + tall * (1 - mark.end);
  const dashes = ["", "8 4", "8 4 2 4", "2 4"];

  picture.append(
    words("tokens found again, by memory", 0, 12, "strong"),
    svg("line", { class: "rule", x1: left, x2: left + across, y1: top + tall, y2: top + tall }),
    words("100 %", left - 8, top + 5, "quiet", "end"),
    words("0", left - 8, top + tall + 4, "quiet", "end"),
  );
  chart.ticks.forEach((tick) => {
    picture.append(
      svg("line", { class: "rule", x1: x(tick), x2: x(tick), y1: top + tall, y2: top + tall + 5 }),
      words(tick.text, x(tick), top + tall + 19, "quiet", "middle"),
    );
  });
  chart.curves.forEach((curve, i) => {
    picture.append(
      svg("polyline", {
        points: curve.marks.map((mark) => `${x(mark)},${y(mark)}`).join(" "),
        fill: "none",
        stroke: curve.on ? "var(--kvc-accent)" : "var(--kvc-quiet)",
        "stroke-width": 2,
        "stroke-dasharray": dashes[i],
      }),
    );
    const key = top + tall - 12 - 17 * (chart.curves.length - 1 - i);
    picture.append(
      svg("line", {
        x1: left + across - 128, x2: left + across - 96, y1: key - 4, y2: key - 4,
        stroke: curve.on ? "var(--kvc-accent)" : "var(--kvc-quiet)",
        "stroke-width": 2,
        "stroke-dasharray": dashes[i],
      }),
      words(curve.label, left + across - 88, key, curve.on ? "strong" : "quiet"),
    );
  });
  picture.append(svg("circle", { class: "accent", cx: x(chart.here[0]), cy: y(chart.here[0]), r: 5 }));

  picture.append(words(chart.whole, 0, under - 12, "strong"));
  chart.bill.forEach((bar, i) => {
    const at = under + i * row;
    const long = Math.max(1, bar.end * across);
    picture.append(
      words(bar.label, 0, at + 12),
      svg("rect", { class: "bar", x: left, y: at, width: long, height: 15, rx: 2 }),
      svg("text", { x: left + long + 6, y: at + 12 }, bar.text),
    );
  });
  return picture;
}

export default { render: (context) => build(context, draw) };
