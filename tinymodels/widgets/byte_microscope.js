// Byte microscope: the bytes of a row, one of them marked, and the block that shares its scale.

function draw({ chart, alt }, width) {
  const across = 32;
  const cell = Math.min(18, width / across);
  const lines = Math.ceil(chart.bytes / across);
  const top = 22;
  const under = top + lines * cell + 34;
  const tall = 130;
  const left = 48;
  const each = (width - left - 12) / chart.marks.length;
  const picture = svg("svg", { role: "img", "aria-label": alt, width, height: under + tall + 32 });
  const words = (text, x, y, style = "quiet", anchor = "start") =>
    svg("text", { class: style, x, y, "text-anchor": anchor }, text);

  picture.append(words(`${chart.bytes} bytes: codes, then scales`, 0, 12, "strong"));
  for (let i = 0; i < chart.bytes; i += 1) {
    const here = i === chart.byte || i === chart.scale;
    const kind = here ? "accent" : i >= chart.codes ? "soft" : "track";
    const place = { x: (i % across) * cell, y: top + Math.floor(i / across) * cell };
    const size = { width: cell * 0.86, height: cell * 0.86 };
    picture.append(svg("rect", { ...place, ...size, style: `fill: var(--kvc-${kind})` }));
  }

  const y = (share) => under + tall * (1 - share);
  picture.append(
    words("its block: circle before, dash after", 0, under - 12, "strong"),
    svg("line", { class: "rule", x1: left, x2: width - 12, y1: y(0.5), y2: y(0.5) }),
    words(chart.most, left - 8, y(1) + 4, "quiet", "end"),
    words("0", left - 8, y(0.5) + 4, "quiet", "end"),
    words(`−${chart.most}`, left - 8, y(0) + 4, "quiet", "end"),
  );
  chart.marks.forEach((mark, i) => {
    const x = left + (i + 0.5) * each;
    const colour = `var(--kvc-${mark.here ? "accent" : "bar"})`;
    const line = { stroke: colour, "stroke-width": mark.here ? 3 : 2 };
    picture.append(
      svg("line", { x1: x, x2: x, y1: y(mark.at), y2: y(mark.end), stroke: colour }),
      svg("circle", { cx: x, cy: y(mark.at), r: 4, fill: "none", ...line }),
      svg("line", { x1: x - 7, x2: x + 7, y1: y(mark.end), y2: y(mark.end), ...line }),
    );
  });
  picture.append(
    words(String(chart.first), left + 0.5 * each, under + tall + 22, "quiet", "middle"),
    words(
      String(chart.first + chart.marks.length - 1),
      left + (chart.marks.length - 0.5) * each, under + tall + 22, "quiet", "middle",
    ),
  );
  return picture;
}

export default { render: (context) => build(context, draw) };
