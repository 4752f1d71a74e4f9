"use strict";
// Numbers of the page: arrays out of base 64, small networks, triangular systems, and the random numbers of torch.
const Numbers = (() => {
  /* Arrays: {shape, data}, data is base 64 of little-endian float32. */
  function decoded(tensor) {
    const bytes = Uint8Array.from(atob(tensor.data), (letter) => letter.charCodeAt(0));
    const view = new DataView(bytes.buffer);
    return Float64Array.from({ length: bytes.length / 4 }, (_, i) => view.getFloat32(4 * i, true));
  }

  const softplus = (x) => (x > 30 ? x : Math.log1p(Math.exp(x)));
  const sigmoid = (x) => 1 / (1 + Math.exp(-x));
  const ACTIVATIONS = { tanh: Math.tanh, silu: (x) => x * sigmoid(x) };

  // A layer is {weight, bias, inputs, outputs}; weight is one row after the other.
  function layer(weight, bias) {
    const [outputs, inputs] = weight.shape;
    return { weight: decoded(weight), bias: decoded(bias), inputs, outputs };
  }
  function linear({ weight, bias, inputs, outputs }, x) {
    const y = new Float64Array(outputs);
    for (let i = 0; i < outputs; i++) {
      let sum = bias[i];
      for (let j = 0; j < inputs; j++) sum += weight[i * inputs + j] * x[j];
      y[i] = sum;
    }
    return y;
  }
  // Return what layers with an activation behind each make of x; the last one has none unless `behindLast`.
  function network(layers, activation, x, behindLast = false) {
    const act = ACTIVATIONS[activation];
    return layers.reduce((h, one, i) => {
      const y = linear(one, h);
      return i < layers.length - 1 || behindLast ? y.map(act) : y;
    }, x);
  }

  /* Linear algebra: square matrices are one row after the other. */
  function cholesky(matrix, n) {
    const lower = new Float64Array(n * n);
    for (let i = 0; i < n; i++) {
      for (let j = 0; j <= i; j++) {
        let sum = matrix[i * n + j];
        for (let k = 0; k < j; k++) sum -= lower[i * n + k] * lower[j * n + k];
        lower[i * n + j] = i === j ? Math.sqrt(sum) : sum / lower[j * n + j];
      }
    }
    return lower;
  }
  function solveLower(lower, n, b) {
    const x = Float64Array.from(b);
    for (let i = 0; i < n; i++) {
      for (let k = 0; k < i; k++) x[i] -= lower[i * n + k] * x[k];
      x[i] /= lower[i * n + i];
    }
    return x;
  }
  function solveUpper(lower, n, b) { // with the transpose of the lower triangle
    const x = Float64Array.from(b);
    for (let i = n - 1; i >= 0; i--) {
      for (let k = i + 1; k < n; k++) x[i] -= lower[k * n + i] * x[k];
      x[i] /= lower[i * n + i];
    }
    return x;
  }

  /* The Mersenne Twister (MT19937) and the normal numbers that torch.randn makes of it on a CPU. */
  function twister(seed) {
    const state = new Uint32Array(624);
    state[0] = seed;
    for (let i = 1; i < 624; i++) {
      const before = state[i - 1] ^ (state[i - 1] >>> 30);
      state[i] = Math.imul(1812433253, before) + i;
    }
    let at = 624;
    const renew = () => {
      for (let i = 0; i < 624; i++) {
        const y = (state[i] & 0x80000000) | (state[(i + 1) % 624] & 0x7fffffff);
        state[i] = state[(i + 397) % 624] ^ (y >>> 1) ^ (y & 1 ? 0x9908b0df : 0);
      }
      at = 0;
    };
    return () => {
      if (at === 624) renew();
      let y = state[at++];
      y ^= y >>> 11;
      y ^= (y << 7) & 0x9d2c5680;
      y ^= (y << 15) & 0xefc60000;
      return (y ^ (y >>> 18)) >>> 0;
    };
  }
  const uniforms = (seed) => {
    const next = twister(seed);
    return () => (next() & 0xffffff) / 0x1000000; // 24 bits, as torch takes for float32
  };
  // Return `size` (16 or more) standard normal numbers: torch.randn(size, generator=Generator().manual_seed(seed)).
  function normals(seed, size) {
    const uniform = uniforms(seed), values = Float64Array.from({ length: size }, uniform);
    const fill = (start) => {
      for (let i = start; i < start + 8; i++) {
        const radius = Math.sqrt(-2 * Math.log(1 - values[i])), angle = 2 * Math.PI * values[i + 8];
        values[i] = radius * Math.cos(angle);
        values[i + 8] = radius * Math.sin(angle);
      }
    };
    for (let start = 0; start + 16 <= size; start += 16) fill(start);
    if (size % 16) {
      for (let i = size - 16; i < size; i++) values[i] = uniform();
      fill(size - 16);
    }
    return values;
  }

  return { decoded, softplus, sigmoid, layer, linear, network, ACTIVATIONS, cholesky, solveLower, solveUpper, uniforms, normals };
})();
