// Which entries: a strip of the text for each layer; what is read is marked, the answer stands out.

function draw({ chart, alt }, width) {
  const left = 58;
  const right = 52;
  const across = width - left - right;
  const row = 26;
  const top = 26;
  const bottom = top + chart.layers.length * row;
  const picture = svg("svg", { role: "img", "aria-label": alt, width, height: bottom + 44 });
  const words = (text, x, y, style = "quiet", anchor = "start") =>
    svg("text", { class: style, x, y, "text-anchor": anchor }, text);
  const x = (mark) => left + mark.at * across;
  const [asked] = chart.asked;
  const [needle] = chart.needle;
  const one = Math.max(2, chart.one * across);

  picture.append(
    words("what is read, layer by layer", 0, 12, "strong"),
    words("attention on it", width, 12, "quiet", "end"),
  );
  chart.layers.forEach((layer, i) => {
    const y = top + i * row;
    picture.append(
      words(layer.label, 0, y + 14),
      svg("rect", {
        x: left, y, width: asked.at * across, height: 18,
        fill: "var(--kvc-quiet)", "fill-opacity": 0.15,
      }),
      svg("text", { x: width, y: y + 14, "text-anchor": "end" }, layer.text),
    );
  });
  picture.append(
    svg("line", {
      stroke: "var(--kvc-accent)",
      x1: x(needle) + one / 2, x2: x(needle) + one / 2, y1: top - 4, y2: bottom + 2,
    }),
  );
  chart.reads.forEach((mark) => {
    const y = top + mark.layer * row;
    picture.append(
      svg("rect", {
        class: mark.needle ? "accent" : "bar",
        x: x(mark), y: mark.needle ? y - 3 : y, width: one, height: mark.needle ? 24 : 18,
      }),
    );
  });
  const end = x(needle) > left + across / 2 ? "end" : "start";
  picture.append(
    words("the answer's row", x(needle), bottom + 16, "strong", end),
    words("token 0", left, bottom + 34),
    words("asked here", x(asked), bottom + 34, "quiet", "end"),
  );
  return picture;
}

export default { render: (context) => build(context, draw) };
