// The panel of a plant: days of its power are chosen, and a time of issue; bands and scores are stored numbers.
const Plants = (() => {
  const byId = (id) => document.getElementById(id);
  const { days, leads, step, weeks, plants } = JSON.parse(byId("explore-data").textContent).plants;
  const { number } = Plot;
  const HEIGHT = 300, HOURS = 48, ROWS = 5, FIRST_ISSUE = 10, TALKED_OF = 3; // rows: mean and four quantiles
  const state = { plant: plants[0], days: 2, issue: FIRST_ISSUE };
  const svg = byId("plant-plot");
  let frame;

  const decoded = new Map();
  function shares(text) { // of the capacity, in %
    if (!decoded.has(text)) {
      const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)), view = new DataView(bytes.buffer);
      decoded.set(text, Float64Array.from({ length: bytes.length / 2 }, (_, i) => 100 * step * view.getUint16(2 * i, true)));
    }
    return decoded.get(text);
  }
  const place = () => (byId("place").checked ? "known" : "unknown");
  // Return mean and quantiles of the hours after the time of issue.
  function issued() {
    const all = shares(state.plant.forecasts[place()][days[state.days]]), start = state.issue * ROWS * leads;
    return Array.from({ length: ROWS }, (_, row) => [...all.subarray(start + row * leads, start + (row + 1) * leads)]);
  }
  const clock = (hour) => `${String(((hour % 24) + 24) % 24).padStart(2, "0")}:00`;
  const daysText = (n) => (n === 1 ? "1 day" : `${n} days`);

  function resize() {
    const width = Math.max(280, Math.round(svg.parentElement.clientWidth)), every = width < 560 ? 12 : 6;
    frame = Plot.frame(svg, {
      width, height: HEIGHT, x: [-state.plant.before, HOURS + leads], y: [0, 110], xTicks: Plot.range(0, HOURS, every),
      yTicks: Plot.range(0, 100, 25), xName: "hour of the sun’s clock, two days", yName: "% of capacity", tickText: clock,
    });
    draw();
  }
  function draw() {
    const { plant, issue } = state, power = [...shares(plant.power)], middles = power.map((_, i) => i - plant.before + 0.5);
    const [mean, low, lower, upper, high] = issued(), ahead = mean.map((_, i) => issue + i + 0.5), now = issue + plant.before;
    frame.data.replaceChildren();
    Plot.band(frame, ahead, low, high, "band-wide");
    Plot.band(frame, ahead, lower, upper, "band-narrow");
    Plot.line(frame, ahead, mean, "mean");
    Plot.line(frame, middles.slice(Math.max(0, now - 1)), power.slice(Math.max(0, now - 1)), "truth");
    Plot.line(frame, middles.slice(0, now), power.slice(0, now), "known");
    Plot.line(frame, [issue, issue], [0, 110], "now");
    showWords(low, high, power, now);
    showScores();
  }
  function showWords(low, high, power, now) {
    const { plant, issue } = state, known = daysText(days[state.days]), when = `${clock(issue)} of day ${Math.floor(issue / 24) + 1}`;
    const hour = Array.from({ length: leads }, (_, i) => i).find((i) => i >= TALKED_OF - 1 && power[now + i] + high[i] > 0);
    const row = plant.scores[place()][state.days];
    const told = hour === undefined
      ? "The next hours are dark, and the forecast says so."
      : `Between ${clock(issue + hour)} and ${clock(issue + hour + 1)} it expects ${number(low[hour], 0)} to ${number(high[hour], 0)} % of the capacity in 9 of 10 cases; ${number(power[now + hour], 0)} % was recorded.`;
    byId("plant-say").textContent = `Issued at ${when} with ${known} of its power. ${told} Over ${weeks} weeks the error with ${known} is ${number(row.rmse)} % of the capacity, and the 90 % band held ${number(row.coverage, 0)} % of the hours.`;
    byId("days-text").textContent = known;
    byId("days").setAttribute("aria-valuetext", `${known} of power`);
    byId("issue-text").textContent = when;
    byId("issue").setAttribute("aria-valuetext", when);
    svg.setAttribute("aria-label", `Power of the plant over two days and the forecast issued at ${when} with ${known} of its power`);
  }
  function showScores() {
    const rows = state.plant.scores[place()].map((own, i) => {
      const row = document.createElement("tr"), head = document.createElement("th");
      head.scope = "row";
      head.textContent = own.days;
      row.append(head);
      for (const text of [number(own.rmse), number(own.width), number(own.coverage)]) {
        row.append(Object.assign(document.createElement("td"), { textContent: text }));
      }
      row.classList.toggle("ours", i === state.days);
      row.addEventListener("click", () => { byId("days").value = i; chooseDays(); });
      return row;
    });
    byId("plant-scores").replaceChildren(...rows);
    byId("plant-caption").textContent = `${state.plant.title}, its place ${place()}: forecasts 1 to ${leads} hours ahead, by day, over ${weeks} weeks`;
  }
  function chooseDays() {
    state.days = Number(byId("days").value);
    draw();
  }

  function start() {
    plants.forEach(({ title }, i) => byId("site").add(new Option(title, i)));
    Object.assign(byId("days"), { max: days.length - 1, value: state.days });
    Object.assign(byId("issue"), { max: HOURS - 1, value: state.issue });
    byId("site").addEventListener("change", (event) => { state.plant = plants[event.target.selectedIndex]; resize(); });
    byId("place").addEventListener("change", draw);
    byId("days").addEventListener("input", chooseDays);
    byId("issue").addEventListener("input", (event) => { state.issue = Number(event.target.value); draw(); });
    Plot.onNewWidth(resize);
    resize();
  }
  start();
  return { issued };
})();
