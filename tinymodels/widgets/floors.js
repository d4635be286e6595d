// Who owns, who borrows: two towers of twenty layers. A bar is what a layer adds to the cache; a
// whole line leads from the chosen layer to its owner, a dotted one to the layer that chose for it.

function draw({ chart, alt }, width) {
  const half = chart.floors.length / 2;
  const row = 18;
  const top = 22;
  const column = width / 2;
  const height = top + half * row + 24;
  const picture = svg("svg", { role: "img", "aria-label": alt, width, height });
  const left = (i) => (i < half ? 0 : column);
  const y = (i) => top + (half - 1 - (i % half)) * row; // layer 0 is the lowest
  const bar = column < 190 ? 92 : 110;
  const across = column - bar - (column < 190 ? 44 : 64);

  ["encoder", "decoder"].forEach((name, i) =>
    picture.append(svg("text", { class: "strong", x: i * column + 18, y: 13 }, name)));
  chart.floors.forEach((floor, i) => {
    const x = left(i);
    const strong = floor.here ? "strong" : "";
    if (floor.shares) {
      picture.append(svg("rect", { fill: "var(--kvc-track)", x: x + 14, y: y(i), width: column - 26, height: row }));
    }
    if (floor.here) {
      picture.append(svg("rect", { fill: "none", stroke: "currentColor", x: x + 14.5, y: y(i) + 0.5, width: column - 27, height: row - 1 }));
    }
    picture.append(
      svg("text", { class: strong, x: x + 36, y: y(i) + 13, "text-anchor": "end" }, floor.label),
      svg("text", { class: strong, x: x + 44, y: y(i) + 13 }, floor.mode),
    );
    if (!floor.text) return;
    const long = Math.max(1, floor.end * across);
    picture.append(
      svg("rect", { class: floor.shares ? "accent" : "bar", x: x + bar, y: y(i) + 3, width: long, height: row - 6, rx: 2 }),
      svg("text", { class: strong, x: x + bar + long + 5, y: y(i) + 13 }, floor.text),
    );
  });

  const lead = (to, at, dashed) => {
    if (to === null || to === chart.here) return;
    const x = left(chart.here);
    const [from, end] = [y(chart.here) + row / 2, y(to) + row / 2];
    picture.append(
      svg("path", {
        d: `M ${x + 14} ${from} H ${x + at} V ${end} H ${x + 13}`,
        fill: "none",
        stroke: "var(--kvc-accent)",
        "stroke-width": 2,
        ...(dashed ? { "stroke-dasharray": "2 3" } : {}),
      }),
    );
  };
  lead(chart.owner, 2, false);
  lead(chart.chooser, 8, true);
  const words = width < 420
    ? "bars: bytes a token; lines: owner, choice (dotted)"
    : "bars: bytes a layer adds with each token; whole line: its owner, dotted: who chose for it";
  picture.append(svg("text", { class: "quiet", x: 0, y: height - 4 }, words));
  return picture;
}

export default { render: (context) => build(context, draw) };
