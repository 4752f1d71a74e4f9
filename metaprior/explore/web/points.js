// The points of a task: added, moved and removed, with undo; and examples of tasks with points and truth of their own.
const Points = (() => {
  const MOST = 30, EXAMPLE_POINTS = 20;

  // Return a place within limits {x, y}, with two decimals, so that numbers that are shown are exact.
  function within({ x, y }, limits) {
    const clamp = (value, [low, high]) => Math.round(100 * Math.min(high, Math.max(low, value))) / 100;
    return { x: clamp(x, limits.x), y: clamp(y, limits.y) };
  }

  // Return a list of points within limits; `changed` is called after every change.
  function list(limits, changed) {
    let points = [], past = [];
    const placed = (point) => within(point, limits);
    const change = (following, continues = false) => {
      if (!continues) past.push(points);
      points = following;
      changed();
    };
    return {
      get all() { return points; },
      get canUndo() { return past.length > 0; },
      add(point) {
        if (points.length >= MOST) return false;
        change([...points, placed(point)]);
        return true;
      },
      // A move that continues the one before it is undone together with it.
      move(index, point, continues = false) {
        change(points.map((own, i) => (i === index ? placed(point) : own)), continues);
      },
      remove(index) { change(points.filter((_, i) => i !== index)); },
      clear() { if (points.length) change([]); },
      restart(following) {
        past = [];
        points = following.map(placed);
        changed();
      },
      undo() {
        if (!past.length) return;
        points = past.pop();
        changed();
      },
    };
  }

  // Return the example with a number: its truth, a function of x, and points of it with noise. It is always the same.
  // Curves that leave the plot are left out.
  function example(problem, number) {
    const uniform = Numbers.uniforms(number), between = ([low, high]) => low + (high - low) * uniform();
    const drawn = () => {
      const family = problem.families[Math.floor(uniform() * problem.families.length)];
      return TRUTHS[family.kind](family, between);
    };
    const fits = (curve) => problem.inputs.every((x) => Math.abs(curve(x)) < 0.9 * problem.reach);
    let truth = drawn();
    while (!fits(truth)) truth = drawn();
    const noises = Numbers.normals(number + 1000, EXAMPLE_POINTS);
    const points = Array.from({ length: EXAMPLE_POINTS }, (_, i) => {
      const x = between(problem.inputs);
      return { x, y: truth(x) + problem.noise * noises[i] };
    });
    return { truth, points };
  }
  const TRUTHS = {
    sine({ amplitude, phase }, between) {
      const a = between(amplitude), b = between(phase);
      return (x) => a * Math.sin(x + b);
    },
    line({ slope, intercept }, between) {
      const a = between(slope), c = between(intercept);
      return (x) => a * x + c;
    },
  };

  return { within, list, example, MOST };
})();
