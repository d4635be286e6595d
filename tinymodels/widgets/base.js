// What all widgets share: native inputs with labels, the number and its lines, the chart's frame.
// No number is computed here: a View comes from Python, and this file puts it on the page.

const SVG = "http://www.w3.org/2000/svg";

/** An SVG element: svg("text", {x: 3}, "hello"). */
function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

/** An HTML element: html("label", {for: "a"}, "layers"). */
function html(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

/** The name of a setting in `views`, as `key` in base.py builds it. */
function keyOf(settings) {
  return JSON.stringify(Object.values(settings));
}

/** An id that nothing else in the page has, however many widgets it shows. */
function unique() {
  return `kvc-${Math.random().toString(36).slice(2)}`;
}

/** A native input for one control: {node, place(settings)}; `moved(value)` on a change. */
function input(control, moved) {
  const id = unique();
  const note = control.note ? [html("span", { class: "kvc-note", id: `${id}-note` }, control.note)] : [];
  const described = control.note ? { "aria-describedby": `${id}-note` } : {};
  const frame = html("div", { class: `kvc-control kvc-${control.kind}`, "data-name": control.name });
  const label = html("label", { for: id }, control.label);
  if (control.kind === "checkbox") {
    const box = html("input", { id, type: "checkbox", ...described });
    box.addEventListener("change", () => moved(box.checked));
    frame.append(box, label, ...note);
    return { node: frame, place: (value) => { box.checked = value; } };
  }
  if (control.kind === "select") {
    const options = control.texts.map((text, i) => html("option", { value: i }, text));
    const list = html("select", { id, ...described }, ...options);
    list.addEventListener("change", () => moved(control.values[Number(list.value)]));
    frame.append(label, list, ...note);
    return { node: frame, place: (value) => { list.value = control.values.indexOf(value); } };
  }
  const last = control.values.length - 1;
  const range = html("input", { id, type: "range", min: 0, max: last, step: 1, ...described });
  const output = html("output", { for: id });
  const name = (i) => {
    output.textContent = control.texts[i];
    range.setAttribute("aria-valuetext", control.texts[i]);
  };
  range.addEventListener("input", () => {
    name(Number(range.value)); // the label follows at once, the picture when its View is there
    moved(control.values[Number(range.value)]);
  });
  frame.append(label, output, range, ...note);
  const place = (value) => {
    const i = control.values.indexOf(value);
    if (Number(range.value) !== i || !output.textContent) range.value = i;
    name(i);
  };
  return { node: frame, place };
}

/**
 * Build a widget in `el`. draw(view, width) returns the chart: an SVG element or a table.
 * side: whether the controls stand beside the result where there is room.
 */
function build({ model, el }, draw, { side = true } = {}) {
  let settings = model.get("shown").settings;
  let view = model.get("shown").view;
  let turn = model.get("shown").turn; // counts what was asked, so that a late answer is known as late
  const root = html("section", { class: `kvc${side ? " kvc-side" : ""}`, "aria-label": model.get("title") });
  // JupyterLab takes arrow keys and letters for its own commands: keys meant for an input stay here.
  root.addEventListener("keydown", (event) => {
    if (event.target.matches("input, select, button")) event.stopPropagation();
  });
  const reset = html("button", { type: "button", class: "kvc-reset" }, "Reset");
  const head = html("header", {}, html("span", { class: "kvc-title" }, model.get("title")), reset);
  const form = html("div", { class: "kvc-controls" });
  const number = html("span", { class: "kvc-number" });
  const unit = html("span", { class: "kvc-unit" });
  const lines = html("div", { class: "kvc-lines" });
  const chart = html("div", { class: "kvc-chart" });
  const say = html("p", { class: "kvc-say", "aria-live": "polite" });
  const result = html("div", { class: "kvc-result" }, html("p", { class: "kvc-head" }, number, unit), lines, chart);
  root.append(head, html("div", { class: "kvc-body" }, form, result), say);
  el.append(root);

  let speaking = 0;
  let painted = ""; // the settings whose View is on the page
  const paint = (speak, of = settings) => {
    painted = keyOf(of);
    number.textContent = view.number;
    unit.textContent = view.unit;
    lines.replaceChildren(...view.lines.map((line) => html("p", {}, line)));
    const width = Math.floor(chart.clientWidth) || 480;
    chart.replaceChildren(draw(view, width));
    if (!speak) return;
    clearTimeout(speaking); // one sentence after the last of many key presses
    speaking = setTimeout(() => { say.textContent = view.say; }, 300);
  };
  const inputs = model.get("controls").map((control) => ({
    name: control.name,
    ...input(control, (value) => move({ ...settings, [control.name]: value }, control.name)),
  }));
  form.append(...inputs.map((each) => each.node));
  const place = () => inputs.forEach((each) => each.place(settings[each.name]));

  function move(wanted, changed) {
    const at = keyOf(wanted);
    const views = model.get("views");
    const known = views[model.get("leads")[at + changed] ?? at] ?? model.get("shown").ahead[at + changed];
    settings = wanted;
    if (known) {
      ({ settings, view } = known);
      place();
      paint(true);
    }
    turn += 1;
    model.set("asked", { settings: wanted, changed, turn });
    model.save_changes();
  }
  const answered = () => {
    const shown = model.get("shown");
    const right = painted === keyOf(settings); // the page shows what was asked for last
    if (shown.turn < turn) {
      if (right) return;
      view = shown.view; // better than what is there; the controls have moved on and stay
      paint(false, shown.settings);
    } else {
      const same = right && painted === keyOf(shown.settings);
      ({ settings, view, turn } = shown);
      if (same) return;
      place();
      paint(true);
    }
  };
  model.on("change:shown", answered);
  reset.addEventListener("click", () => move(model.get("start"), "reset"));

  let width = 0;
  const watch = new ResizeObserver(() => {
    if (chart.clientWidth && chart.clientWidth !== width) {
      width = chart.clientWidth;
      paint(false);
    }
  });
  watch.observe(chart);
  place();
  paint(false);
  return () => {
    watch.disconnect();
    clearTimeout(speaking);
    model.off("change:shown", answered);
  };
}
