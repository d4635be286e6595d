// The bill: one bar for the memory with weights and caches in it, and a bar for each thing waited for.

function draw({ chart, alt }, width) {
  const narrow = width < 420;
  const left = narrow ? 0 : 176; // where there is no room beside the bars, labels go above them
  const right = 72;
  const high = 26;
  const step = narrow ? 44 : 28;
  const first = 44;
  const second = first + high + 56;
  const picture = svg("svg", { role: "img", "aria-label": alt, width, height: second + chart.times.length * step });
  const x = (share) => share * (width - 4);
  const room = chart.room[0];

  picture.append(svg("rect", { class: "track", x: 0, y: first, width: x(room.at), height: high }));
  chart.parts.forEach((part, i) => {
    const style = i ? "accent" : "bar";
    picture.append(
      svg("rect", { class: style, x: x(part.at), y: first, width: Math.max(1, x(part.end) - x(part.at)), height: high }),
      svg("rect", { class: style, x: i * 150, y: 4, width: 12, height: 12, rx: 2 }),
      svg("text", { x: i * 150 + 18, y: 14 }, `${part.what} ${part.text}`),
    );
  });
  picture.append(
    svg("line", { stroke: "currentColor", "stroke-width": 2, x1: x(room.at), x2: x(room.at), y1: first - 6, y2: first + high + 6 }),
    svg("text", { class: "quiet", x: x(room.at), y: first + high + 20, "text-anchor": room.at > 0.4 ? "end" : "start" }, room.text),
    svg("text", { class: "strong", x: 0, y: second - 10 }, "what one step waits for"),
  );
  chart.times.forEach((bar, i) => {
    const top = second + i * step + (narrow ? 16 : 0);
    const long = Math.max(1, bar.end * (width - left - right));
    const strong = bar.most ? "strong" : "";
    picture.append(
      svg("text", { class: strong, x: 0, y: narrow ? top : top + 15 }, bar.label),
      svg("rect", { class: bar.most ? "accent" : "bar", x: left, y: narrow ? top + 6 : top + 4, width: long, height: 16, rx: 2 }),
      svg("text", { class: strong, x: left + long + 8, y: narrow ? top + 18 : top + 16 }, bar.text),
    );
  });
  return picture;
}

export default { render: (context) => build(context, draw) };
