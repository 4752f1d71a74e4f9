// Plots as SVG: axes, bands and lines, in units of the data.
const Plot = (() => {
  const SPACE = "http://www.w3.org/2000/svg";
  const MARGIN = { left: 34, right: 8, top: 8, bottom: 34 };

  function element(name, attributes = {}, parent = null) {
    const made = document.createElementNS(SPACE, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (parent) parent.append(made);
    return made;
  }
  // Return a number with so many decimals and a true minus sign.
  function number(value, digits = 1) {
    const plain = value.toFixed(digits);
    return Number(plain) === 0 ? plain.replace("-", "") : plain.replace("-", "−");
  }

  // Draw axes into an emptied SVG and return the frame: X and Y to pixels, `value` back, and layers from back to front.
  function frame(svg, { width, height, x, y, xTicks, yTicks, xName, yName, tickText = (value) => number(value, 0) }) {
    const right = width - MARGIN.right, bottom = height - MARGIN.bottom;
    const X = (value) => MARGIN.left + ((value - x[0]) / (x[1] - x[0])) * (right - MARGIN.left);
    const Y = (value) => bottom - ((value - y[0]) / (y[1] - y[0])) * (bottom - MARGIN.top);
    const value = (px, py) => ({
      x: x[0] + ((px - MARGIN.left) / (right - MARGIN.left)) * (x[1] - x[0]),
      y: y[0] + ((bottom - py) / (bottom - MARGIN.top)) * (y[1] - y[0]),
    });
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.replaceChildren();
    const clip = `${svg.id}-clip`, definitions = element("defs", {}, svg);
    element("rect", { x: MARGIN.left, y: MARGIN.top, width: right - MARGIN.left, height: bottom - MARGIN.top }, element("clipPath", { id: clip }, definitions));
    const axes = element("g", { "aria-hidden": "true" }, svg);
    for (const tick of yTicks) {
      element("path", { class: "grid", d: `M${MARGIN.left} ${Y(tick)}H${right}` }, axes);
      element("text", { x: MARGIN.left - 6, y: Y(tick) + 4, "text-anchor": "end" }, axes).textContent = number(tick, 0);
    }
    for (const tick of xTicks) {
      element("text", { x: X(tick), y: bottom + 15, "text-anchor": "middle" }, axes).textContent = tickText(tick);
    }
    element("path", { class: "axis", d: `M${MARGIN.left} ${bottom}H${right}` }, axes);
    element("text", { x: (MARGIN.left + right) / 2, y: height - 4, "text-anchor": "middle" }, axes).textContent = xName;
    element("text", { x: MARGIN.left + 4, y: MARGIN.top + 10 }, axes).textContent = yName;
    const data = element("g", { "clip-path": `url(#${clip})` }, svg), front = element("g", {}, svg);
    return { X, Y, value, data, front, x, y };
  }

  // Values beyond the frame are cut off there, because some drawing programs fail on numbers that are far outside.
  function path(frame, xs, ys) {
    const far = frame.y[1] - frame.y[0], inside = (v) => Math.min(frame.y[1] + far, Math.max(frame.y[0] - far, v));
    return xs.map((x, i) => `${i ? "L" : "M"}${frame.X(x).toFixed(1)} ${frame.Y(inside(ys[i])).toFixed(1)}`).join("");
  }
  function line(frame, xs, ys, name) {
    return element("path", { class: name, d: path(frame, xs, ys) }, frame.data);
  }
  function band(frame, xs, low, high, name) {
    const back = path(frame, [...xs].reverse(), [...high].reverse()).replace("M", "L");
    return element("path", { class: `band ${name}`, d: `${path(frame, xs, low)}${back}Z` }, frame.data);
  }
  // Call back when the window has another width; another height alone, as phones make by scrolling, changes no plot.
  function onNewWidth(callback) {
    let width = window.innerWidth;
    window.addEventListener("resize", () => {
      if (window.innerWidth === width) return;
      width = window.innerWidth;
      callback();
    });
  }
  const range = (from, to, step) => Array.from({ length: Math.round((to - from) / step) + 1 }, (_, i) => from + i * step);

  return { element, number, frame, line, band, range, onNewWidth };
})();
