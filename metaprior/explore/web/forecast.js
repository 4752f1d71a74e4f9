// A forecast: a mixture of Gaussians at each x, as metaprior.forecasts.GaussianForecast and metaprior.mixture have it.
const Forecast = (() => {
  const STEP = 1e-9, MOST_STEPS = 100; // of the search for a quantile, in standard deviations

  function erf(x) {
    if (x < 0) return -erf(-x);
    if (x > 6) return 1;
    if (x < 2.5) { // all terms are positive: no digits are lost
      let term = x, sum = x;
      for (let n = 1; term > 1e-17 * sum; n++) sum += term *= (2 * x * x) / (2 * n + 1);
      return (2 / Math.sqrt(Math.PI)) * Math.exp(-x * x) * sum;
    }
    let fraction = 0; // Laplace's continued fraction of erfc
    for (let n = 60; n > 0; n--) fraction = n / 2 / (x + fraction);
    return 1 - Math.exp(-x * x) / (Math.sqrt(Math.PI) * (x + fraction));
  }
  const cumulative = (z) => 0.5 + 0.5 * erf(z * Math.SQRT1_2);
  function normalQuantile(level) {
    let low = -9, high = 9;
    while (high - low > 1e-14) {
      const middle = (low + high) / 2;
      if (middle === low || middle === high) break;
      if (cumulative(middle) < level) low = middle; else high = middle;
    }
    return (low + high) / 2;
  }
  const Z = new Map();
  const z = (level) => Z.get(level) ?? Z.set(level, normalQuantile(level)).get(level);

  // Moments of one mixture. Weights null: equally probable samples, whose variance has S - 1 in its denominator.
  function moments(means, scales, weights) {
    const count = means.length, weight = (s) => (weights ? weights[s] : 1 / count);
    let mean = 0, between = 0, within = 0;
    for (let s = 0; s < count; s++) mean += weight(s) * means[s];
    for (let s = 0; s < count; s++) {
      between += weight(s) * (means[s] - mean) ** 2;
      within += weight(s) * scales[s] ** 2;
    }
    if (!weights) between *= count / (count - 1);
    return { mean, std: Math.sqrt(between + within), epistemic: Math.sqrt(between) };
  }

  // Newton's method in a bracket; a step that leaves it, or does not shrink, becomes a bisection.
  function quantile(means, scales, weights, level, { mean, std }) {
    const parts = means.map((m, s) => m + z(level) * scales[s]);
    let low = Math.min(...parts), high = Math.max(...parts), moved = high - low;
    let x = Math.min(high, Math.max(low, mean + z(level) * std));
    for (let count = 0; count < MOST_STEPS && moved > STEP * std; count++) {
      let excess = -level, density = 0;
      for (let s = 0; s < means.length; s++) {
        const weight = weights ? weights[s] : 1 / means.length, u = (x - means[s]) / scales[s];
        excess += weight * cumulative(u);
        density += (weight * Math.exp(-0.5 * u * u)) / (scales[s] * Math.sqrt(2 * Math.PI));
      }
      if (excess > 0) high = x; else low = x;
      const step = excess / density, newton = x - step;
      const good = newton >= low && newton <= high && Math.abs(step) <= moved / 2;
      const following = good ? newton : (low + high) / 2;
      moved = Math.abs(following - x);
      x = following;
    }
    return x;
  }

  // Return the summary of mixtures in the network's units, one for each x, in the units of the targets and calibrated.
  // Each mixture is {means, scales}; `factor` multiplies the spread around the mean.
  function summary(mixtures, weights, { loc, scale, factor, levels }) {
    const found = { mean: [], std: [], quantiles: levels.map(() => []), factor };
    for (const mixture of mixtures) {
      const own = moments(mixture.means, mixture.scales, weights), mean = loc + scale * own.mean;
      found.mean.push(mean);
      found.std.push(scale * factor * own.std);
      levels.forEach((level, i) => {
        const inside = quantile(mixture.means, mixture.scales, weights, level, own);
        found.quantiles[i].push(mean + scale * factor * (inside - own.mean));
      });
    }
    return found;
  }

  // Return the factor of the spread after so many examples: linear in log(1 + n), constant beyond what was fitted.
  function spread({ examples, factors }, count) {
    const at = Math.log1p(Math.min(Math.max(count, examples[0]), examples[examples.length - 1]));
    for (let i = 1; i < examples.length; i++) {
      const low = Math.log1p(examples[i - 1]), high = Math.log1p(examples[i]);
      if (at > high) continue;
      const start = Math.log(factors[i - 1]), end = Math.log(factors[i]);
      return Math.exp(start + ((end - start) * (at - low)) / (high - low));
    }
    return factors[factors.length - 1];
  }

  return { erf, cumulative, moments, summary, spread };
})();
