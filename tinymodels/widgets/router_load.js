// Router load: a bar an expert, under each its bias, and the busiest expert's load step by step.

function draw({ chart, alt }, width) {
  const left = 34;
  const right = width < 420 ? 34 : 70;
  const across = width - left - right;
  const [high, low, path] = [120, 56, 84];
  const [first, second, third] = [22, 22 + high + 34, 22 + high + 34 + low + 40];
  const fourth = third + path + 52;
  const picture = svg("svg", { role: "img", "aria-label": alt, width, height: fourth + 18 });
  const each = across / chart.loads.length;
  const thick = Math.max(2, each * 0.7);
  const line = (style, y) => svg("line", { class: style, x1: left, x2: left + across, y1: y, y2: y });
  const words = (text, y, style = "quiet") => svg("text", { class: style, x: 0, y }, text);

  picture.append(words("load of each expert, in fair shares", 12, "strong"));
  chart.loads.forEach((bar, i) => {
    const tall = Math.max(1, bar.end * high);
    picture.append(
      svg("rect", { class: bar.over ? "accent" : "bar", x: left + (i + 0.15) * each, y: first + high - tall, width: thick, height: tall }),
    );
  });
  for (const mark of chart.fair) {
    const y = first + high * (1 - mark.at);
    picture.append(
      svg("line", { stroke: "currentColor", x1: left, x2: left + across, y1: y, y2: y }),
      svg("text", { x: left + across + 6, y: y + 4 }, width < 420 ? "1" : mark.text),
    );
  }
  picture.append(svg("text", { class: "quiet", x: 0, y: first + 10 }, chart.most.toFixed(1)));

  picture.append(words("its bias", second - 8, "strong"), line("rule", second), line("rule", second + low));
  chart.biases.forEach((bar, i) => {
    picture.append(
      svg("rect", { class: "bar", x: left + (i + 0.15) * each, y: second + low * (1 - bar.end), width: thick, height: Math.max(1, low * (bar.end - bar.at)) }),
    );
  });
  picture.append(
    svg("line", { stroke: "currentColor", x1: left, x2: left + across, y1: second + low / 2, y2: second + low / 2 }),
    svg("text", { class: "quiet", x: left + across + 6, y: second + 6 }, `+${chart.widest}`),
    svg("text", { class: "quiet", x: left + across + 6, y: second + low + 4 }, `−${chart.widest}`),
  );

  const x = (mark) => left + mark.at * across;
  const y = (mark) => third + path * (1 - mark.end);
  const points = chart.path.map((mark) => `${x(mark)},${y(mark)}`).join(" ");
  const newest = chart.path[chart.path.length - 1];
  const fair = third + path * (1 - chart.fair[0].at);
  picture.append(
    words("the busiest expert, step by step", third - 8, "strong"),
    line("rule", third + path),
    svg("line", { stroke: "currentColor", x1: left, x2: left + across, y1: fair, y2: fair }),
    svg("polyline", { points, fill: "none", stroke: "var(--kvc-accent)", "stroke-width": 2 }),
    svg("circle", { class: "accent", cx: x(newest), cy: y(newest), r: 4 }),
    svg("text", { class: "quiet", x: left, y: third + path + 16 }, "0"),
    svg("text", { class: "quiet", x: left + across, y: third + path + 16, "text-anchor": "middle" }, chart.steps),
  );

  picture.append(words("weights of the tokens that keep their experts", fourth - 10, "strong"));
  for (const bar of chart.weights) {
    const long = bar.end * across * 0.5;
    picture.append(
      svg("rect", { class: "accent", x: left, y: fourth, width: Math.max(1, long), height: 14, rx: 2 }),
      svg("text", { x: left + long + 8, y: fourth + 11 }, bar.text),
    );
  }
  return picture;
}

export default { render: (context) => build(context, draw) };
