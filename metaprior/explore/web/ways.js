// The ways to adapt, computed in the page from the weights of learners that metaprior has trained. A way is
// `prepare(learner)`, which decodes weights once, and `adapt(points, {steps})` of what it returns: {at(xs), draws(xs, mean) or null}.
const Ways = (() => {
  const { decoded, softplus, sigmoid, layer, linear, network, ACTIVATIONS } = Numbers;
  const LEVELS = [0.05, 0.25, 0.75, 0.95];
  const DRAWS = 8;
  const layersOf = (given) => given.map(({ weight, bias }) => layer(weight, bias));

  /* Closed form: the exact posterior of the last layer under a mixture of Gaussians (adaptation/closed_form). */
  function closedForm(learner) {
    const trunk = layersOf(learner.trunk), noise = softplus(decoded(learner.noise)[0]);
    const [components, size, rank] = learner.factor.shape;
    const means = decoded(learner.mean), factors = decoded(learner.factor), logScales = decoded(learner.log_scale);
    const logWeights = decoded(learner.logits);
    const features = (x) => [...network(trunk, learner.activation, [x], true), 1];
    const prior = Array.from({ length: components }, (_, k) => ({
      mean: means.subarray(k * size, (k + 1) * size),
      factor: factors.slice(k * size * rank, (k + 1) * size * rank).map((value) => value * Math.exp(logScales[k])),
      logWeight: logWeights[k],
    }));
    // Return phi^T w0 and L^T phi.
    const project = ({ mean, factor }, phi) => {
      const white = new Float64Array(rank);
      let centre = 0;
      phi.forEach((value, i) => {
        centre += mean[i] * value;
        for (let j = 0; j < rank; j++) white[j] += factor[i * rank + j] * value;
      });
      return { centre, white };
    };
    const dot = (a, b) => a.reduce((sum, value, i) => sum + value * b[i], 0);

    // B = I + Psi Psi^T, m = Psi^T B^-1 rho, log p(S|k) = -(n log 2 pi s^2 + log|B| + rho^T B^-1 rho) / 2
    function condition(component, phis, targets) {
      const rows = phis.map((phi) => project(component, phi)), n = rows.length;
      const psi = rows.map(({ white }) => white.map((value) => value / noise));
      const matrix = new Float64Array(n * n);
      for (let i = 0; i < n; i++) for (let j = 0; j < n; j++) matrix[i * n + j] = (i === j) + dot(psi[i], psi[j]);
      const lower = Numbers.cholesky(matrix, n);
      const solve = (rho) => Numbers.solveUpper(lower, n, Numbers.solveLower(lower, n, rho));
      const rho = rows.map(({ centre }, i) => (targets[i] - centre) / noise);
      const combine = (solved) => {
        const sum = new Float64Array(rank);
        psi.forEach((row, i) => row.forEach((value, j) => { sum[j] += value * solved[i]; }));
        return sum;
      };
      const half = Numbers.solveLower(lower, n, rho);
      let evidence = -0.5 * dot(half, half) - 0.5 * n * Math.log(2 * Math.PI * noise * noise);
      for (let i = 0; i < n; i++) evidence -= Math.log(lower[i * n + i]);
      const m = combine(solve(rho));
      const at = ({ centre, white }) => {
        const known = Numbers.solveLower(lower, n, psi.map((row) => dot(row, white)));
        return { mean: centre + dot(white, m), variance: Math.max(0, dot(white, white) - dot(known, known)) };
      };
      // A draw from the posterior out of one from the prior, z, and one of the noise, e (Matheron's rule).
      const draw = (z, e) => {
        const move = combine(solve(rho.map((value, i) => value - dot(psi[i], z) - e[i])));
        return z.map((value, j) => value + move[j]);
      };
      return { evidence, at, draw };
    }

    function adapt(points) {
      const phis = points.map(({ x }) => features(x)), targets = points.map(({ y }) => (y - learner.loc) / learner.scale);
      const posteriors = prior.map((component) => condition(component, phis, targets));
      const logs = posteriors.map(({ evidence }, k) => prior[k].logWeight + evidence), highest = Math.max(...logs);
      const total = logs.reduce((sum, value) => sum + Math.exp(value - highest), 0);
      const weights = logs.map((value) => Math.exp(value - highest) / total);
      const factor = Forecast.spread(learner.calibration, points.length);
      const projected = (xs) => xs.map((x) => features(x)).map((phi) => prior.map((component) => project(component, phi)));
      const at = (xs) => {
        const mixtures = projected(xs).map((own) => {
          const parts = own.map((one, k) => posteriors[k].at(one));
          const scales = parts.map(({ variance }) => Math.sqrt(variance + noise * noise));
          return { means: parts.map(({ mean }) => mean), scales };
        });
        return Forecast.summary(mixtures, weights, { ...learner, factor, levels: LEVELS });
      };
      const draws = (xs) => {
        const own = projected(xs), uniform = Numbers.uniforms(learner.draw_seed);
        return Array.from({ length: DRAWS }, (_, number) => {
          let u = uniform(), k = 0;
          while (k < components - 1 && u > weights[k]) u -= weights[k++];
          const noises = Numbers.normals(learner.draw_seed + 1 + number, rank + Math.max(16, points.length));
          const z = posteriors[k].draw(noises.slice(0, rank), noises.slice(rank));
          return own.map((rows) => rows[k].centre + dot(rows[k].white, z));
        });
      };
      return finished(learner, factor, at, draws);
    }
    return { adapt };
  }

  /* Descent: steps on the means and scales of all weights (metagrad/inner_step), with the library's random numbers. */
  function descent(learner) {
    const mu0 = decoded(learner.mu), rho0 = decoded(learner.rho), variance = learner.noise ** 2;
    const sizes = learner.shapes.map((shape) => shape.reduce((a, b) => a * b, 1)), tensors = sizes.length;
    const rates = decoded(learner.log_lr).map(Math.exp);
    const owner = sizes.flatMap((size, tensor) => Array(size).fill(tensor));
    const sigma0 = rho0.map(softplus), dimension = mu0.length;
    const sampled = new Map();
    const normals = (seed) => sampled.get(seed) ?? sampled.set(seed, Numbers.normals(seed, dimension)).get(seed);
    const starts = sizes.map((_, i) => sizes.slice(0, i).reduce((a, b) => a + b, 0));

    function layersAt(phi) {
      return Array.from({ length: tensors / 2 }, (_, i) => ({
        weight: phi.subarray(starts[2 * i], starts[2 * i] + sizes[2 * i]),
        bias: phi.subarray(starts[2 * i + 1], starts[2 * i + 1] + sizes[2 * i + 1]),
        outputs: learner.shapes[2 * i][0],
        inputs: learner.shapes[2 * i][1],
      }));
    }
    // Add the gradient of f(x) times `upstream` with respect to phi, for tanh between the layers.
    function backward(layers, hidden, upstream, into) {
      let delta = [upstream];
      for (let i = layers.length - 1; i >= 0; i--) {
        const { weight, inputs, outputs } = layers[i], h = hidden[i], next = new Float64Array(inputs);
        for (let o = 0; o < outputs; o++) {
          into[starts[2 * i + 1] + o] += delta[o];
          for (let j = 0; j < inputs; j++) {
            into[starts[2 * i] + o * inputs + j] += delta[o] * h[j];
            next[j] += delta[o] * weight[o * inputs + j];
          }
        }
        delta = next.map((value, j) => value * (1 - h[j] * h[j])); // behind the first layer this is not used
      }
    }
    const sample = (mu, rho, noise) => mu.map((value, j) => value + softplus(rho[j]) * noise[j]);

    // One step: G_mu = g + w p (mu - mu0), G_rho = s' (eps g + w (s p - 1/s)), means damped by their pull to the prior.
    function step(state, points, number) {
      const { mu, rho } = state, n = points.length, w = learner.kl_weight / n;
      const noise = normals(learner.adapt_seeds[number]), phi = sample(mu, rho, noise), layers = layersAt(phi);
      const g = new Float64Array(dimension);
      for (const { x, y } of points) {
        const hidden = [[x]];
        layers.slice(0, -1).forEach((one) => hidden.push(linear(one, hidden[hidden.length - 1]).map(Math.tanh)));
        const off = linear(layers[layers.length - 1], hidden[hidden.length - 1])[0] - y;
        backward(layers, hidden, off / (variance * n), g);
      }
      const following = { mu: new Float64Array(dimension), rho: new Float64Array(dimension) };
      for (let j = 0; j < dimension; j++) {
        const own = softplus(rho[j]), p = 1 / sigma0[j] ** 2, alpha = rates[owner[j]];
        const byMu = g[j] + w * p * (mu[j] - mu0[j]);
        const byRho = sigmoid(rho[j]) * (noise[j] * g[j] + w * (own * p - 1 / own));
        following.mu[j] = mu[j] - (alpha / (1 + alpha * w * p)) * byMu;
        following.rho[j] = rho[j] - rates[tensors + owner[j]] * byRho;
      }
      return following;
    }

    function adapt(points, { steps }) {
      const examples = points.map(({ x, y }) => ({ x, y: (y - learner.loc) / learner.scale }));
      const taken = points.length ? steps : 0;
      let state = { mu: mu0, rho: rho0 };
      for (let number = 0; number < taken; number++) state = step(state, examples, number);
      const samples = learner.predict_seeds.map((seed) => layersAt(sample(state.mu, state.rho, normals(seed))));
      const factor = Forecast.spread(learner.calibration, steps ? points.length : 0);
      const outputs = (layers, xs) => xs.map((x) => network(layers, learner.activation, [x])[0]);
      const at = (xs) => {
        const found = samples.map((layers) => outputs(layers, xs)), scales = samples.map(() => learner.noise);
        const mixtures = xs.map((_, i) => ({ means: found.map((own) => own[i]), scales }));
        return Forecast.summary(mixtures, null, { ...learner, factor, levels: LEVELS });
      };
      const draws = (xs) => samples.slice(0, DRAWS).map((layers) => outputs(layers, xs));
      return finished(learner, factor, at, draws);
    }
    return { adapt };
  }

  /* Context: a summary of the points that the network reads in its hidden layers (adaptation/context). */
  function context(learner) {
    const embed = layersOf(learner.embed), summarise = layersOf(learner.summary), layers = layersOf(learner.layers);
    const reading = decoded(learner.reading), size = learner.reading.shape[1], silu = ACTIVATIONS.silu;

    function contextOf(points) {
      const mean = new Float64Array(size), largest = new Float64Array(size).fill(points.length ? -Infinity : 0);
      for (const { x, y } of points) {
        network(embed, "silu", [x, (y - learner.loc) / learner.scale, 1]).forEach((value, i) => {
          mean[i] += value / points.length;
          largest[i] = Math.max(largest[i], value);
        });
      }
      return network(summarise, "silu", [...mean, ...largest, Math.log1p(points.length)]);
    }
    function adapt(points) {
      const c = contextOf(points), read = (row) => c.reduce((sum, value, j) => sum + reading[row * size + j] * value, 0);
      let row = 0; // hidden layer after hidden layer: its scales, then its shifts
      const films = layers.slice(0, -1).map(({ outputs }) => {
        const part = () => Float64Array.from({ length: outputs }, () => read(row++));
        return { scale: part(), shift: part() };
      });
      const outputs = (x) => {
        const last = films.reduce((h, { scale, shift }, i) => {
          return linear(layers[i], h).map((value, j) => silu(value * (1 + scale[j]) + shift[j]));
        }, [x]);
        return linear(layers[layers.length - 1], last);
      };
      const factor = Forecast.spread(learner.calibration, points.length);
      const at = (xs) => {
        const mixtures = xs.map((x) => {
          const [mean, raw] = outputs(x);
          return { means: [mean], scales: [softplus(raw) + learner.min_scale] };
        });
        return Forecast.summary(mixtures, [1], { ...learner, factor, levels: LEVELS });
      };
      return finished(learner, factor, at, null);
    }
    return { adapt };
  }

  // Draws of functions have the calibrated spread around the mean (that of `at`), as bands have.
  function finished({ loc, scale }, factor, at, draws) {
    const calibrated = (xs, mean) =>
      draws(xs).map((own) => own.map((value, i) => mean[i] + factor * (loc + scale * value - mean[i])));
    return { at, draws: draws && calibrated };
  }

  const PREPARE = { closed_form: closedForm, descent, context };
  const prepare = (learner) => PREPARE[learner.way](learner);
  return { LEVELS, prepare };
})();
