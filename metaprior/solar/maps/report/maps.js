// The maps of a page: an example, a layer and a lead time are chosen, and the values under the pointer are shown.
(() => {
  const byId = (id) => document.getElementById(id);
  const { colours, examples } = JSON.parse(byId("maps-data").textContent);
  const UNKNOWN_CODE = 65535;
  const LAYERS = [
    { name: "target", label: "Target", title: "Target (what happened)", kind: "value" },
    { name: "mean", label: "Mean", title: "Mean of the forecast", kind: "value" },
    { name: "std", label: "Std", title: "Standard deviation of the forecast", kind: "std" },
    { name: "error", label: "Error (mean − target)", title: "Error (mean − target)", kind: "error" },
    { name: "sample", label: "Sample", title: "Sample", kind: "value" },
    { name: "input", label: "Last input", title: "Last input frame", kind: "value" },
  ];
  const tables = Object.fromEntries(
    ["value", "std", "error"].map((kind) => [kind, colours[kind].match(/../g).map((pair) => parseInt(pair, 16))]),
  );
  const state = { example: 0, lead: 0, layer: LAYERS[1], sample: 0, row: 0, column: 0, timer: null };
  const map = byId("map"), slider = byId("lead"), play = byId("play"), strip = byId("strip");

  /* Values: decoded once for each layer, NaN where unknown. */
  const decoded = new Map(examples.flatMap(({ scales }) => [[scales.value, new Map()], [scales.std, new Map()]]));
  function decode(text, scale) {
    const known = decoded.get(scale);
    if (!known.has(text)) {
      const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
      const view = new DataView(bytes.buffer); // little-endian on every machine
      const values = new Float64Array(bytes.length / 2);
      for (let i = 0; i < values.length; i++) {
        const code = view.getUint16(2 * i, true);
        values[i] = code === UNKNOWN_CODE ? NaN : scale.low + scale.step * code;
      }
      known.set(text, values);
    }
    return known.get(text);
  }
  const shown = () => examples[state.example];
  function values(layer, lead) {
    const one = shown(), size = one.height * one.width, part = [lead * size, (lead + 1) * size];
    const value = (text) => decode(text, one.scales.value).subarray(...part);
    if (layer.name === "std") return decode(one.std, one.scales.std).subarray(...part);
    if (layer.name === "sample") return value(one.samples[state.sample]);
    if (layer.name === "input") return decode(one.input, one.scales.value);
    if (layer.name !== "error") return value(one[layer.name]);
    const target = value(one.target);
    return value(one.mean).map((mean, i) => mean - target[i]);
  }
  const available = (layer) =>
    layer.name === "sample" ? shown().samples.length > 0 : layer.name !== "input" || shown().input !== null;
  const limits = (kind) => shown().limits[kind];
  const decimals = (kind) => Math.max(0, shown().scales[kind === "std" ? "std" : "value"].decimals);
  function text(number, digits) {
    if (Number.isNaN(number)) return "unknown";
    const plain = number.toFixed(digits);
    return Number(plain) === 0 ? plain.replace("-", "") : plain.replace("-", "−");
  }

  /* Drawing */
  function paint(canvas, layer, lead) {
    const { height, width } = shown(), [low, high] = limits(layer.kind), table = tables[layer.kind];
    canvas.width = width;
    canvas.height = height;
    const context = canvas.getContext("2d"), image = context.createImageData(width, height);
    values(layer, lead).forEach((value, i) => {
      if (Number.isNaN(value)) return; // stays transparent: the hatched ground shows
      const entry = Math.min(255, Math.max(0, Math.floor(((value - low) / (high - low)) * 256)));
      for (let channel = 0; channel < 3; channel++) image.data[4 * i + channel] = table[3 * entry + channel];
      image.data[4 * i + 3] = 255;
    });
    context.putImageData(image, 0, 0);
  }
  function drawBar() {
    const bar = byId("bar"), context = bar.getContext("2d"), image = context.createImageData(256, 1);
    const { kind } = state.layer, [low, high] = limits(kind), table = tables[kind];
    for (let i = 0; i < 256; i++) image.data.set([...table.slice(3 * i, 3 * i + 3), 255], 4 * i);
    context.putImageData(image, 0, 0);
    byId("ticks").replaceChildren(...roundNumbers(low, high).map(([number, label]) => {
      const tick = document.createElement("span");
      tick.textContent = label;
      tick.style.left = `${(100 * (number - low)) / (high - low)}%`;
      return tick;
    }));
    const what = { value: "Values", std: "Standard deviation", error: "Error (mean − target)" }[kind];
    const beyond = state.layer.name === "sample" ? " (values beyond the ends have the colours of the ends)" : "";
    byId("bar-title").textContent = `${what}, ${shown().units}${beyond}`;
  }
  function roundNumbers(low, high) {
    const rough = (high - low) / 7, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
    const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
    const ticks = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++) ticks.push([i * step, text(i * step, digits)]);
    return ticks;
  }
  function fitMap() {
    // As large as fits, so that every pixel of the map is the same number of pixels of the screen where that is possible.
    const { height, width } = shown(), room = byId("panel").querySelector(".stage").clientWidth;
    const ratio = window.devicePixelRatio || 1, widest = Math.min(room, (width / height) * 560, 640);
    const zoom = Math.floor((widest * ratio) / width), wide = zoom >= 3 ? (zoom * width) / ratio : widest;
    map.style.width = `${wide}px`;
    map.style.height = `${(wide * height) / width}px`;
    byId("bar").parentElement.style.width = `${wide}px`;
    drawCursor();
  }
  function drawCursor() {
    const { height, width } = shown(), wide = parseFloat(map.style.width) / width, high = parseFloat(map.style.height) / height;
    const size = Math.max(wide, 7), tall = Math.max(high, 7), style = byId("cursor").style;
    style.width = `${size + 4}px`;
    style.height = `${tall + 4}px`;
    style.left = `${(state.column + 0.5) * wide - size / 2 - 2}px`;
    style.top = `${(state.row + 0.5) * high - tall / 2 - 2}px`;
  }

  /* Words */
  function place() {
    const { latitude, longitude } = shown(), parts = [];
    const degrees = (value, positive, negative) => `${Math.abs(value).toFixed(3)}° ${value < 0 ? negative : positive}`;
    parts.push(latitude ? degrees(latitude[state.row], "N", "S") : `row ${state.row}`);
    parts.push(longitude ? degrees(longitude[state.column], "E", "W") : `column ${state.column}`);
    return parts.join(", ");
  }
  function showValues() {
    const { width, units } = shown();
    for (const layer of LAYERS) {
      const cell = byId(`value-${layer.name}`);
      if (!cell) continue;
      const value = values(layer, state.lead)[state.row * width + state.column];
      cell.textContent = Number.isNaN(value) ? "unknown" : `${text(value, decimals(layer.kind))} ${units}`;
    }
    byId("place").textContent = `at ${place()}`;
    drawCursor();
  }
  function showTitles() {
    const one = shown(), { layer, lead } = state;
    const number = layer.name === "sample" ? ` ${state.sample + 1} of ${one.samples.length}` : "";
    const when = layer.name === "input" ? one.issued : `t+${one.leads[lead]} min, valid ${one.valid[lead]}`;
    byId("layer-title").textContent = layer.title + number;
    byId("time-title").textContent = when;
    byId("lead-text").textContent = `+${one.leads[lead]} min, issued ${one.issued}`;
    slider.setAttribute("aria-valuetext", `${one.leads[lead]} minutes`);
    map.setAttribute("aria-label", `Map of ${one.name}: ${layer.title}${number}, ${when}`);
  }

  /* Controls */
  function build() {
    const one = shown();
    slider.max = one.leads.length - 1;
    state.lead = Math.min(state.lead, one.leads.length - 1);
    state.sample = Math.min(state.sample, Math.max(0, one.samples.length - 1));
    state.row = Math.floor(one.height / 2);
    state.column = Math.floor(one.width / 2);
    if (!available(state.layer)) state.layer = LAYERS[1];
    byId("layers").replaceChildren(...LAYERS.filter(available).map(layerRow));
    byId("sample-note").hidden = !one.samples.length;
    strip.hidden = one.leads.length < 2;
    strip.replaceChildren(...one.leads.map(thumbnail));
    const { value, std } = one.scales;
    byId("precision").textContent =
      `Shown to within ${text(value.precision, decimals("value"))} ${one.units}, the standard deviation to within ` +
      `${text(std.precision, decimals("std"))} ${one.units}.`;
    draw();
    fitMap();
  }
  function layerRow(layer) {
    const row = document.createElement("tr"), head = document.createElement("th"), cell = document.createElement("td");
    const label = document.createElement("label"), radio = document.createElement("input");
    Object.assign(radio, { type: "radio", name: "layer", id: `layer-${layer.name}`, checked: layer === state.layer });
    radio.addEventListener("change", () => { state.layer = layer; draw(); });
    label.append(radio, document.createTextNode(layer.label));
    if (layer.name === "sample") label.append(sampleChooser());
    head.scope = "row";
    head.append(label);
    cell.id = `value-${layer.name}`;
    row.append(head, cell);
    return row;
  }
  function sampleChooser() {
    const select = document.createElement("select");
    select.id = "sample";
    select.setAttribute("aria-label", "Number of the sample");
    shown().samples.forEach((_, i) => select.add(new Option(`${i + 1} of ${shown().samples.length}`, i)));
    select.selectedIndex = state.sample;
    select.addEventListener("change", () => {
      state.sample = select.selectedIndex;
      state.layer = LAYERS.find((layer) => layer.name === "sample");
      byId("layer-sample").checked = true;
      draw();
    });
    return select;
  }
  function thumbnail(minutes, lead) {
    const button = document.createElement("button");
    button.type = "button";
    button.setAttribute("aria-label", `Lead time ${minutes} minutes`);
    button.append(document.createElement("canvas"), document.createTextNode(`+${minutes} min`));
    button.addEventListener("click", () => goTo(lead));
    return button;
  }
  function draw() {
    [...strip.children].forEach((button, lead) => paint(button.firstChild, state.layer, lead));
    for (const row of byId("layers").rows) row.classList.toggle("shown", row.querySelector("[type=radio]").checked);
    drawBar();
    goTo(state.lead);
  }
  function goTo(lead) {
    state.lead = Math.min(shown().leads.length - 1, Math.max(0, lead));
    slider.value = state.lead;
    paint(map, state.layer, state.lead);
    [...strip.children].forEach((button, i) => button.setAttribute("aria-pressed", i === state.lead));
    showTitles();
    showValues();
  }
  function pointAt(row, column) {
    state.row = Math.min(shown().height - 1, Math.max(0, row));
    state.column = Math.min(shown().width - 1, Math.max(0, column));
    showValues();
  }
  function toggle() {
    const playing = state.timer === null;
    if (playing) state.timer = setInterval(() => goTo((state.lead + 1) % shown().leads.length), 700);
    else { clearInterval(state.timer); state.timer = null; }
    play.textContent = playing ? "Pause" : "Play";
    play.setAttribute("aria-pressed", playing);
  }

  const example = byId("example");
  examples.forEach((one, i) => example.add(new Option(one.name, i)));
  example.addEventListener("change", () => { state.example = example.selectedIndex; build(); });
  slider.addEventListener("input", () => goTo(Number(slider.value)));
  play.addEventListener("click", toggle);
  const follow = (event) => {
    const box = map.getBoundingClientRect(), { height, width } = shown();
    pointAt(Math.floor(((event.clientY - box.top) / box.height) * height), Math.floor(((event.clientX - box.left) / box.width) * width));
  };
  map.addEventListener("pointermove", follow);
  map.addEventListener("pointerdown", follow);
  const keys = {
    ArrowUp: () => pointAt(state.row - 1, state.column),
    ArrowDown: () => pointAt(state.row + 1, state.column),
    ArrowLeft: () => pointAt(state.row, state.column - 1),
    ArrowRight: () => pointAt(state.row, state.column + 1),
    PageUp: () => goTo(state.lead + 1),
    PageDown: () => goTo(state.lead - 1),
    " ": toggle,
  };
  map.addEventListener("keydown", (event) => {
    if (!keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });
  window.addEventListener("resize", fitMap);
  build();
})();
