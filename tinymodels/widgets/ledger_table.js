// The ledger: a real table, so that it can be read cell by cell, with a bar in each row.

function draw({ chart, alt }, width) {
  const narrow = width < 560;
  const long = narrow ? 70 : 150;
  const heads = ["ch", "bytes a token of", "", "formula", "measured", "published"];
  const head = html("tr", {}, ...heads.map((text, i) => html("th", { scope: "col", class: i === 3 || i === 4 ? "right" : "" }, text)));
  const body = chart.rows.map((row, i) => {
    const newest = i === chart.rows.length - 1;
    const end = row.end * long;
    const bar = svg("svg", { "aria-hidden": "true", width: long, height: 14 });
    bar.append(svg("rect", { class: "track", x: 0, y: 6, width: long, height: 2 }));
    if (end) bar.append(svg("rect", { class: newest ? "accent" : "bar", x: 0, y: 0, width: Math.max(1, end), height: 14, rx: 2 }));
    const what = html("th", { scope: "row" }, row.what, html("span", { class: "kvc-note" }, row.formula));
    return html(
      "tr",
      { class: newest ? "newest" : "" },
      html("td", { class: "quiet" }, row.chapter),
      what,
      html("td", {}, bar),
      html("td", { class: "right" }, row.rate),
      html("td", { class: "right" }, row.measured),
      html("td", {}, row.published),
    );
  });
  const table = html("table", {}, html("caption", { class: "kvc-hidden" }, alt), html("thead", {}, head), html("tbody", {}, ...body));
  return html("div", { class: "kvc-table", tabindex: narrow ? 0 : -1, role: "group", "aria-label": "the ledger" }, table);
}

export default { render: (context) => build(context, draw, { side: false }) };
