// Group leak: groups, their tokens, and the outputs; what moved before the changed token is marked.

function draw({ chart, alt }, width) {
  const left = width < 420 ? 0 : 58;
  const across = width - left - 2;
  const each = across / chart.tokens.length;
  const tall = 28;
  const gap = left ? 8 : 24;
  const picture = svg("svg", { role: "img", "aria-label": alt, width, height: 3 * (tall + gap) + 30 });
  const fills = {
    still: "var(--kvc-track)",
    later: "var(--kvc-soft)",
    changed: "none; stroke: currentColor; stroke-width: 2.5",
    earlier: "none; stroke: var(--kvc-accent); stroke-width: 2.5",
  };
  const top = (row) => (left ? 2 : 18) + row * (tall + gap);
  const name = (row, text) =>
    svg("text", { class: "quiet", x: 0, y: left ? top(row) + 18 : top(row) - 5 }, text);

  picture.append(name(0, "groups"), name(1, "tokens"), name(2, "outputs"));
  for (const group of chart.groups) {
    const x = left + group.at * across + 1.5;
    const wide = (group.end - group.at) * across - 3;
    const open = group.text === "open" ? { "stroke-dasharray": "4 3" } : {};
    picture.append(
      svg("rect", { x, y: top(0), width: wide, height: tall, rx: 3, fill: "none", stroke: "var(--kvc-quiet)", ...open }),
    );
    if (wide > 32 || group.text !== "open") {
      picture.append(svg("text", { x: x + wide / 2, y: top(0) + 18, "text-anchor": "middle" }, group.text));
    }
  }
  for (const [row, marks] of [[1, chart.tokens], [2, chart.outputs]]) {
    for (const mark of marks) {
      const x = left + mark.at * across + 1;
      const strong = mark.kind === "changed" || mark.kind === "earlier";
      picture.append(
        svg("rect", { x, y: top(row), width: each - 2, height: tall, rx: 2, style: `fill: ${fills[mark.kind]}` }),
        svg("text", {
          x: x + each / 2 - 1, y: top(row) + 18, "text-anchor": "middle",
          style: `font-size: ${each < 22 ? 10 : 12}px;${strong ? " font-weight: bold;" : ""}${mark.kind === "earlier" ? " fill: var(--kvc-accent)" : ""}`,
        }, mark.text),
      );
      if (mark.kind === "earlier") {
        picture.append(svg("text", { x: x + each / 2 - 1, y: top(row) + tall + 16, "text-anchor": "middle" }, "!"));
      }
    }
  }
  return picture;
}

export default { render: (context) => build(context, draw) };
