// Who runs when: the encoder below, the decoder above, tokens from left to right. Strong areas run
// now, soft ones have run, grey ones have not. An area's size is its layer-tokens.

function draw({ chart, alt }, width) {
  const left = width < 420 ? 62 : 92;
  const tall = 96;
  const gap = 16;
  const top = 4;
  const words = 3;
  const word = Math.max(10, Math.round(width * 0.04));
  const prompt = width - left - words * (word + 3) - 12;
  const height = top + 2 * tall + gap + 42;
  const picture = svg("svg", { role: "img", "aria-label": alt, width, height });
  const y = { decoder: top, encoder: top + tall + gap };
  const wordAt = (i) => left + prompt + 10 + i * (word + 3);

  for (const [half, names] of [["decoder", "20-39"], ["encoder", "0-19"]]) {
    picture.append(
      svg("text", { class: "strong", x: 0, y: y[half] + tall / 2 - 3 }, half),
      svg("text", { class: "quiet", x: 0, y: y[half] + tall / 2 + 13 }, width < 420 ? names : `layers ${names}`),
      svg("rect", { fill: "var(--kvc-track)", x: left, y: y[half], width: prompt, height: tall }),
    );
    for (let i = 0; i < words; i += 1) {
      picture.append(svg("rect", { fill: "var(--kvc-track)", x: wordAt(i), y: y[half], width: word, height: tall }));
    }
  }
  for (const area of chart.areas) {
    const at = area.word === null ? left + area.at * prompt : wordAt(area.word);
    const wide = area.word === null ? Math.max(1, (area.end - area.at) * prompt) : word;
    picture.append(svg("rect", {
      fill: area.now ? "var(--kvc-accent)" : "var(--kvc-soft)",
      x: at, y: y[area.half], width: wide, height: tall,
    }));
  }
  for (const half of ["decoder", "encoder"]) {
    for (let layer = 1; layer < 20; layer += 1) {
      const line = y[half] + (layer * tall) / 20;
      picture.append(svg("path", {
        d: `M ${left} ${line} H ${wordAt(words - 1) + word}`, stroke: "var(--kvc-ground)", "stroke-width": 0.6,
      }));
    }
  }
  if (chart.projects) {
    const now = chart.areas.filter((area) => area.now);
    const middle = left + ((now[0].at + chart.known) / 2) * prompt;
    const [from, to] = [y.encoder, y.decoder + tall - 12];
    picture.append(svg("path", {
      d: `M ${middle} ${from} V ${to} M ${middle - 5} ${to + 7} L ${middle} ${to} L ${middle + 5} ${to + 7}`,
      fill: "none", stroke: "currentColor", "stroke-width": 2,
    }));
  }
  const low = y.encoder + tall;
  picture.append(
    svg("text", { x: left + prompt / 2, y: low + 15, "text-anchor": "middle" }, chart.prompt),
    svg("text", { x: wordAt(words - 1) + word, y: low + 15, "text-anchor": "end" }, "words"),
    svg("text", { class: "quiet", x: 0, y: height - 4 },
      width < 420 ? "strong: runs now; soft: has run; grey: has not" : "strong: runs now; soft: has run; grey: has not. Area: layer-tokens"),
  );
  return picture;
}

export default { render: (context) => build(context, draw) };
