// The panel of curves: one plot for each way to adapt, all with the same points and the same cursor.
const Curves = (() => {
  const byId = (id) => document.getElementById(id);
  const { problems, ways } = JSON.parse(byId("explore-data").textContent);
  const { number } = Plot;
  const AXES = ["x", "y"];
  const GRID = 101, HEIGHT = 280, FIRST_EXAMPLE = 8, FIRST_POINTS = 1;
  const NEAR = { mouse: 11, touch: 20, pen: 14 }, STILL = 5; // pixels
  const WHAT = {
    closed_form: "Exact posterior of the last layer’s weights, by linear algebra.",
    descent: "Gradient steps on the distribution of all weights.",
    context: "A second network reads the points; one pass, no steps.",
  };
  const state = { problem: problems[0], number: FIRST_EXAMPLE, example: null, shown: 0, held: null, moving: false, steps: 5, cursor: { x: 0, y: 0 } };
  const prepared = new Map();
  let points, plots, waiting = false;

  const wayOf = (name) => {
    const key = `${state.problem.name}/${name}`;
    if (!prepared.has(key)) prepared.set(key, Ways.prepare(state.problem.learners[name]));
    return prepared.get(key);
  };
  const adapted = (name, given) => wayOf(name).adapt(given, { steps: state.steps });
  const limits = () => ({ x: state.problem.inputs, y: [-state.problem.reach, state.problem.reach] });
  const count = (n) => (n === 0 ? "no point" : n === 1 ? "1 point" : `${n} points`);
  const announce = (words) => { byId("announce").textContent = words; };

  /* Drawing */
  function card(name) {
    const made = document.createElement("div"), title = document.createElement("h3"), what = document.createElement("p");
    made.className = "way";
    title.textContent = ways[name];
    what.className = "what";
    what.textContent = WHAT[name];
    const svg = Plot.element("svg", {
      id: `plot-${name}`, class: "plot", tabindex: 0, role: "application", "aria-describedby": `say-${name} keys`, "aria-label": `${ways[name]}: plot of points and forecast`,
    });
    const say = document.createElement("p");
    say.className = "say";
    say.id = `say-${name}`;
    made.append(title, what, svg, say);
    if (name === "descent") made.append(stepSlider());
    byId("ways").append(made);
    return { name, svg, say, frame: null, posterior: null, prior: null };
  }
  function stepSlider() {
    const { adapt_seeds: seeds, steps } = problems[0].learners.descent;
    const field = document.createElement("div"), label = document.createElement("label");
    const output = document.createElement("output"), slider = document.createElement("input");
    Object.assign(slider, { type: "range", id: "steps", min: 0, max: seeds.length, step: 1, value: steps });
    state.steps = steps;
    field.className = "field";
    label.htmlFor = "steps";
    output.id = "steps-text";
    output.htmlFor = "steps";
    label.append("Steps: ", output);
    const show = () => {
      state.steps = Number(slider.value);
      output.textContent = `${state.steps}${state.steps === steps ? " (as in training)" : ""}`;
      slider.setAttribute("aria-valuetext", `${state.steps} steps`);
    };
    slider.addEventListener("input", () => { show(); schedule(); });
    show();
    field.append(label, slider);
    return field;
  }
  function resize() {
    const { inputs, reach } = state.problem, round = 5 * Math.floor(reach / 5);
    for (const plot of plots) {
      const width = Math.max(240, Math.round(plot.svg.parentElement.clientWidth));
      plot.frame = Plot.frame(plot.svg, {
        width, height: HEIGHT, x: inputs, y: [-reach, reach], xTicks: Plot.range(-4, 4, 2), yTicks: Plot.range(-round, round, 5), xName: "x", yName: "y",
      });
    }
    draw();
  }
  // Adapt and draw at the next frame, once for all changes until then.
  function schedule() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; draw(); });
  }
  function draw() {
    const { inputs } = state.problem, step = (inputs[1] - inputs[0]) / (GRID - 1), xs = Plot.range(inputs[0], inputs[1], step);
    for (const plot of plots) {
      plot.posterior = adapted(plot.name, points.all);
      drawPlot(plot, xs);
    }
    showState();
    showCursor();
  }
  function drawPlot(plot, xs) {
    const { frame, posterior } = plot, found = posterior.at(xs), [low, lower, upper, high] = found.quantiles;
    frame.data.replaceChildren();
    Plot.band(frame, xs, low, high, "band-wide");
    Plot.band(frame, xs, lower, upper, "band-narrow");
    if (posterior.draws && byId("draws").checked) {
      for (const own of posterior.draws(xs, found.mean)) Plot.line(frame, xs, own, "draw");
    }
    if (truthShown()) Plot.line(frame, xs, xs.map(state.example.truth), "truth");
    Plot.line(frame, xs, found.mean, "mean");
    const inside = (x, i) => { const y = state.example.truth(x); return y >= low[i] && y <= high[i]; };
    plot.covered = truthShown() ? xs.filter(inside).length / xs.length : null;
  }
  const truthShown = () => byId("truth").checked;
  function showCursor() {
    const { x, y } = state.cursor;
    for (const { frame, say, ...plot } of plots) {
      frame.front.replaceChildren();
      Plot.element("path", { class: "cross", d: `M${frame.X(x)} ${frame.Y(frame.y[0])}V${frame.Y(frame.y[1])}` }, frame.front);
      Plot.element("path", { class: "cross cross-y", d: `M${frame.X(frame.x[0])} ${frame.Y(y)}H${frame.X(frame.x[1])}` }, frame.front);
      points.all.forEach((point, i) => {
        const at = { cx: frame.X(point.x), cy: frame.Y(point.y) };
        Plot.element("circle", { ...at, r: 18, class: "hit" }, frame.front);
        Plot.element("circle", { ...at, r: i === state.held ? 8 : 6, class: i === state.held ? "point held" : "point" }, frame.front);
      });
      say.textContent = sentence(plot, x);
    }
    byId("python").textContent = pythonText(points.all);
  }

  /* Words */
  function sentence({ name, posterior, prior, covered }, x) {
    const band = (own) => { const { quantiles } = own.at([x]); return [quantiles[0][0], quantiles[quantiles.length - 1][0]]; };
    const [low, high] = band(posterior), [first, last] = band(prior), width = high - low, share = 1 - width / (last - first);
    const between = `between ${number(low)} and ${number(high)}`, n = points.all.length;
    const idle = n === 0 || (name === "descent" && state.steps === 0);
    const words = idle
      ? [`${n ? "Without a step" : "Before any point"} this is the prior: at x = ${number(x)} it expects y ${between}, a 90 % band ${number(width)} wide.`]
      : [`After ${count(n)} it expects y ${between} at x = ${number(x)}: a 90 % band ${number(width)} wide, ${changed(share)} before any point.`];
    if (covered !== null) words.push(`The true curve lies inside the band along ${Math.round(100 * covered)} % of the axis.`);
    return words.join(" ");
  }
  function changed(share) {
    if (Math.abs(share) < 0.005) return "as wide as";
    return `${Math.round(100 * Math.abs(share))} % ${share > 0 ? "narrower" : "wider"} than`;
  }
  function showState() {
    const { all, canUndo } = points, n = all.length;
    byId("undo").disabled = !canUndo;
    byId("clear").disabled = n === 0;
    byId("more").disabled = n >= Points.MOST || state.shown >= state.example.points.length;
    showNumbers(all);
  }
  function pythonText(all) {
    const column = (axis) => `[${all.map((point) => `[${point[axis].toFixed(2)}]`).join(", ")}]`, at = `[[${state.cursor.x.toFixed(2)}]]`;
    const adapt = (name) => (all.length ? `learner.adapt((x, y)${name === "descent" ? `, steps=${state.steps}` : ""})` : "learner.prior_predictive()");
    const given = all.length ? [`x = torch.tensor(${column("x")})`, `y = torch.tensor(${column("y")})`] : [];
    const lines = ["import torch", "from metaprior.explore.problems import load_learner", "", ...given];
    for (const name of Object.keys(ways)) {
      lines.push(`learner = load_learner("${state.problem.name}", "${name}")`, `print(${adapt(name)}.predict(torch.tensor(${at})).interval(0.9))`);
    }
    return lines.join("\n");
  }
  // Rows stay as they are while their number does, so that a field that is being typed in keeps the focus.
  function showNumbers(all) {
    const body = byId("numbers");
    if (body.rows.length !== all.length) body.replaceChildren(...all.map((_, i) => numberRow(i)));
    all.forEach((point, i) => AXES.forEach((axis, column) => {
      const input = body.rows[i].cells[column + 1].firstChild, text = point[axis].toFixed(2);
      if (Number(input.value) !== point[axis]) input.value = text;
    }));
  }
  function numberRow(index) {
    const row = document.createElement("tr"), head = document.createElement("th"), button = document.createElement("button");
    head.scope = "row";
    head.textContent = index + 1;
    row.append(head);
    for (const axis of AXES) {
      const input = document.createElement("input");
      Object.assign(input, { type: "number", step: 0.1 });
      input.setAttribute("aria-label", `${axis} of point ${index + 1}`);
      input.addEventListener("change", () => {
        if (Number.isFinite(input.valueAsNumber)) points.move(index, { ...points.all[index], [axis]: input.valueAsNumber });
      });
      row.insertCell().append(input);
    }
    Object.assign(button, { type: "button", textContent: "Remove" });
    button.setAttribute("aria-label", `Remove point ${index + 1}`);
    button.addEventListener("click", () => {
      remove(index);
      draw();
      const left = byId("numbers").querySelectorAll("button");
      (left[Math.min(index, left.length - 1)] ?? byId("numbers-summary")).focus();
    });
    row.insertCell().append(button);
    return row;
  }
  function showScores() {
    const { scores, title } = state.problem, shots = [...new Set(scores.map((row) => row.points))];
    const cell = (tag, words, scope) => {
      const made = document.createElement(tag);
      made.textContent = words;
      if (scope) made.scope = scope;
      return made;
    };
    const head = document.createElement("tr");
    head.append(cell("th", "Way", "col"), ...shots.map((n) => cell("th", count(n), "col")));
    byId("scores-head").replaceChildren(head);
    byId("scores").replaceChildren(...Object.keys(ways).map((way) => {
      const row = document.createElement("tr"), own = (n) => scores.find((one) => one.way === way && one.points === n);
      row.append(cell("th", ways[way], "row"), ...shots.map((n) => cell("td", `${own(n).rmse.toFixed(2)}, ${Math.round(100 * own(n).coverage)} %`)));
      return row;
    }));
    byId("scores-caption").textContent = `${title}: RMSE and share in the 90 % band, by number of points`;
  }

  /* Changes */
  const letGo = () => { state.held = null; state.moving = false; };
  function add(point) {
    const added = points.add(point), n = points.all.length;
    announce(added ? `Point added at x ${number(point.x)}, y ${number(point.y)}: ${count(n)} now.` : `There are ${n} points, and no more can be added.`);
  }
  function remove(index) {
    letGo();
    points.remove(index);
    announce(`Point removed: ${count(points.all.length)} left.`);
  }
  function newExample(next) {
    state.number = next;
    state.example = Points.example(state.problem, next);
    state.shown = FIRST_POINTS;
    letGo();
    points.restart(state.example.points.slice(0, FIRST_POINTS));
    announce(`Example ${next} with ${count(FIRST_POINTS)}.`);
  }
  function choose(problem) {
    state.problem = problem;
    byId("problem-about").textContent = `${problem.about} Observations have noise with a standard deviation of ${problem.noise}.`;
    points = Points.list(limits(), schedule);
    for (const plot of plots) plot.prior = adapted(plot.name, []);
    showScores();
    newExample(FIRST_EXAMPLE);
    resize();
  }

  /* Pointer: a press on a point drags it or, without a move, removes it; a press elsewhere adds one. */
  function listen(plot) {
    const { svg } = plot;
    let press = null;
    const place = (event) => {
      const box = svg.getBoundingClientRect(), zoom = svg.viewBox.baseVal.width / box.width;
      return { px: (event.clientX - box.left) * zoom, py: (event.clientY - box.top) * zoom };
    };
    const nearest = ({ px, py }, reach) => {
      const far = points.all.map(({ x, y }) => Math.hypot(plot.frame.X(x) - px, plot.frame.Y(y) - py));
      const index = far.indexOf(Math.min(...far));
      return index >= 0 && far[index] <= reach ? index : null;
    };
    svg.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || press) return;
      const at = place(event), index = nearest(at, NEAR[event.pointerType] ?? NEAR.mouse);
      letGo();
      press = { id: event.pointerId, at, index, moved: false };
      if (index !== null) svg.setPointerCapture(event.pointerId);
    });
    // A finger on a point moves it, and does not scroll the page.
    const keep = (event) => { if (press !== null && press.index !== null) event.preventDefault(); };
    svg.addEventListener("touchstart", keep, { passive: false });
    svg.addEventListener("pointermove", (event) => {
      const at = place(event), value = plot.frame.value(at.px, at.py);
      if (press && press.id === event.pointerId) {
        const far = Math.hypot(at.px - press.at.px, at.py - press.at.py) > STILL;
        if (press.index !== null && (far || press.moved)) points.move(press.index, value, press.moved);
        press.moved ||= far;
      }
      moveCursor(value);
    });
    svg.addEventListener("pointerup", (event) => {
      if (!press || press.id !== event.pointerId) return;
      const { index, moved, at } = press, value = plot.frame.value(at.px, at.py);
      press = null;
      if (moved) return;
      moveCursor(value);
      if (index === null) add(value); else remove(index);
    });
    svg.addEventListener("pointercancel", () => { press = null; });
    svg.addEventListener("keydown", (event) => key(event));
    svg.addEventListener("blur", () => { letGo(); showCursor(); });
  }
  function moveCursor(place) {
    state.cursor = Points.within(place, limits());
    showCursor();
  }

  /* Keyboard */
  function shift(event, right, up) {
    const { inputs, reach } = state.problem, faster = event.shiftKey ? 5 : 1;
    const dx = (right * faster * (inputs[1] - inputs[0])) / 100, dy = (up * faster * reach) / 60;
    moveCursor({ x: state.cursor.x + dx, y: state.cursor.y + dy });
    if (state.held === null) return;
    points.move(state.held, state.cursor, state.moving);
    state.moving = true;
  }
  function pickUp(direction) {
    const order = points.all.map((_, i) => i).sort((a, b) => points.all[a].x - points.all[b].x);
    if (!order.length) return;
    const at = order.indexOf(state.held), from = at < 0 ? (direction > 0 ? -1 : 0) : at;
    letGo();
    state.held = order[(from + direction + order.length) % order.length];
    const { x, y } = points.all[state.held];
    moveCursor({ x, y });
    announce(`Point at x ${number(x)}, y ${number(y)} picked up.`);
  }
  function enter() {
    if (state.held === null) return add({ ...state.cursor });
    letGo();
    showCursor();
    return announce("Point let go.");
  }
  function removeNearest() {
    if (!points.all.length) return;
    const { reach, inputs } = state.problem, wide = inputs[1] - inputs[0], { x, y } = state.cursor;
    const far = points.all.map((point) => Math.hypot((point.x - x) / wide, (point.y - y) / (2 * reach)));
    remove(state.held ?? far.indexOf(Math.min(...far)));
  }
  const KEYS = {
    ArrowLeft: (event) => shift(event, -1, 0),
    ArrowRight: (event) => shift(event, 1, 0),
    ArrowUp: (event) => shift(event, 0, 1),
    ArrowDown: (event) => shift(event, 0, -1),
    Enter: enter,
    " ": enter,
    PageDown: () => pickUp(1),
    PageUp: () => pickUp(-1),
    Delete: removeNearest,
    Backspace: removeNearest,
    Escape: () => { letGo(); showCursor(); },
  };
  function key(event) {
    const undo = (event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "z";
    const act = undo ? () => { letGo(); points.undo(); } : !event.ctrlKey && !event.metaKey && !event.altKey && KEYS[event.key];
    if (!act) return;
    event.preventDefault();
    act(event);
  }

  function start() {
    document.documentElement.classList.add("js");
    plots = Object.keys(ways).map(card);
    plots.forEach(listen);
    problems.forEach(({ title }, i) => byId("problem").add(new Option(title, i)));
    byId("problem").addEventListener("change", (event) => choose(problems[event.target.selectedIndex]));
    byId("example").addEventListener("click", () => newExample(state.number + 1));
    byId("more").addEventListener("click", () => add(state.example.points[state.shown++]));
    byId("undo").addEventListener("click", () => { letGo(); points.undo(); });
    byId("clear").addEventListener("click", () => { letGo(); points.clear(); announce("All points removed: this is the prior."); });
    byId("truth").addEventListener("change", schedule);
    byId("draws").addEventListener("change", schedule);
    Plot.onNewWidth(resize);
    choose(problems[0]);
  }
  start();
  // For tests: the forecast of a way as the page computes it.
  return { forecast: (name, given, xs) => adapted(name, given).at(xs), points: () => points.all };
})();
