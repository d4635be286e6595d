// Rank and error: a bar for what each layer misses, and the loss against the bytes that are kept.

function draw({ chart, alt }, width) {
  const left = 56;
  const right = 48;
  const across = width - left - right;
  const row = 22;
  const top = 22;
  const under = top + chart.errors.length * row + 34;
  const tall = 130;
  const picture = svg("svg", { role: "img", "aria-label": alt, width, height: under + tall + 40 });
  const words = (text, x, y, style = "quiet", anchor = "start") =>
    svg("text", { class: style, x, y, "text-anchor": anchor }, text);

  picture.append(words("missing from the rows of each layer", 0, 12, "strong"));
  chart.errors.forEach((bar, i) => {
    const y = top + i * row;
    const long = Math.max(1, bar.end * across);
    picture.append(
      words(bar.label, 0, y + 12),
      svg("rect", { class: "bar", x: left, y, width: long, height: 15, rx: 2 }),
      svg("text", { x: left + long + 6, y: y + 12 }, bar.text),
    );
  });

  const x = (mark) => left + mark.at * across;
  const y = (mark) => under + tall * (1 - mark.end);
  const line = (marks, on, dashed) =>
    svg("polyline", {
      points: marks.map((mark) => `${x(mark)},${y(mark)}`).join(" "),
      fill: "none",
      stroke: on ? "var(--kvc-accent)" : "var(--kvc-quiet)",
      "stroke-width": 2,
      ...(dashed ? { "stroke-dasharray": "6 4" } : {}),
    });
  const [here] = chart.here;
  const [uncut] = chart.uncut;
  picture.append(
    words("loss; whole line: cut before RoPE, dashed: after", 0, under - 10, "strong"),
    svg("line", { class: "rule", x1: left, x2: left + across, y1: under + tall, y2: under + tall }),
    svg("line", { stroke: "currentColor", x1: left, x2: left + across, y1: y(uncut), y2: y(uncut) }),
    svg("text", { x: left + across + 8, y: y(uncut) + 4 }, uncut.text),
    line(chart.before, !chart.turned, false),
    line(chart.after, chart.turned, true),
    svg("circle", { class: "accent", cx: x(here), cy: y(here), r: 5 }),
    words(chart.most, left - 8, under + 8, "quiet", "end"),
    words("0", left - 8, under + tall + 4, "quiet", "end"),
    words("0 bytes a token", left, under + tall + 18),
    words(chart.bytes, left + across, under + tall + 18, "quiet", "middle"),
  );
  return picture;
}

export default { render: (context) => build(context, draw) };
