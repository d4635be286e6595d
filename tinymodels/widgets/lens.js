// The lens's chart: tokens down, layers across, the first guess in each cell, the marked one in bars.

function draw({ chart, alt }, width) {
  const { columns, rows, here, guesses } = chart;
  const left = width < 420 ? 66 : 92;
  const column = (width - left) / columns.length;
  const row = 21;
  const top = 20;
  const floor = top + rows.length * row;
  const height = floor + 52 + guesses.length * 20;
  const picture = svg("svg", { role: "img", "aria-label": alt, width, height });
  const most = Math.floor(column / 7); // letters that fit
  const short = (word) => (Array.from(word).length > most ? `${Array.from(word).slice(0, most - 1).join("")}…` : word);
  columns.forEach((name, x) => {
    const label = column < 60 ? name.replace("embedding", "embed").replace("layer ", "") : name;
    picture.append(svg("text", { class: "quiet", x: left + (x + 0.5) * column, y: 12, "text-anchor": "middle" }, label));
  });
  rows.forEach((each, y) => {
    const strong = y === here[0] ? "strong" : "";
    picture.append(svg("text", { class: strong, x: left - 8, y: top + y * row + 15, "text-anchor": "end" }, each.label));
    each.cells.forEach((cell, x) => {
      const box = { x: left + x * column + 1, y: top + y * row + 1, width: column - 2, height: row - 2, rx: 2 };
      picture.append(svg("rect", { ...box, class: "soft", "fill-opacity": cell.share }));
      const marked = y === here[0] && x === here[1];
      if (marked) picture.append(svg("rect", { ...box, fill: "none", style: "stroke: var(--kvc-accent); stroke-width: 2" }));
      const text = { x: left + (x + 0.5) * column, y: top + y * row + 15, "text-anchor": "middle", style: "stroke: none" };
      picture.append(svg("text", { ...text, class: cell.final ? "strong" : "" }, short(cell.text)));
    });
  });
  picture.append(svg("text", { class: "quiet", x: 0, y: floor + 20 }, "Bluer: surer. Bold: what the model says in the end."));
  guesses.forEach((guess, i) => {
    const y = floor + 40 + i * 20;
    const long = Math.max(1, guess.end * (width - left - 70));
    picture.append(
      svg("text", { class: i ? "" : "strong", x: left - 8, y: y + 11, "text-anchor": "end" }, guess.label),
      svg("rect", { class: i ? "bar" : "accent", x: left, y, width: long, height: 14, rx: 2 }),
      svg("text", { class: i ? "" : "strong", x: left + long + 8, y: y + 11 }, guess.text),
    );
  });
  return picture;
}

export default { render: (context) => build(context, draw, { side: false }) };
