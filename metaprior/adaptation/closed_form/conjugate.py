r"""Exact posterior of linear weights under a mixture of low-rank Gaussians, for many tasks at once.

Features $\Phi$ (n x d) of a support set, targets $y$ (n) of one output, noise scales $s_n$, and for component k of the
prior $w = w_0 + L z$ with $z \sim N(0, I_r)$. Each target's likelihood counts with a power $a_n$ (``weights``): 0 for a
missing target or a padded row, the temperature $\tau$ for one that is there. With $\Psi = \mathrm{diag}(\sqrt{a}/s)\,
\Phi L$ and $\rho = \mathrm{diag}(\sqrt{a}/s)\,(y - \Phi w_0)$

$$A = I_r + \Psi^T\Psi,\quad m = A^{-1}\Psi^T\rho,\quad z | S, k \sim N(m, A^{-1})$$
$$\log p(S|k) = \log\int \prod_n N(y_n; \phi_n^T w, s_n^2)^{a_n} p(w|k)\,dw
= -\frac12\Big[\sum_n a_n\log 2\pi s_n^2 + \log|A| + |\rho - \Psi m|^2 + |m|^2\Big]$$
$$\pi_k | S \propto \pi_k\, p(S|k),\qquad
\phi_*^T w | S, k \sim N\big(\phi_*^T(w_0 + L m),\; |A^{-1/2} L^T\phi_*|^2\big).$$

This is weight space (r x r). With fewer rows than r, function space is smaller (n x n): $B = I_n + \Psi\Psi^T$,
$m = \Psi^T B^{-1}\rho$, $|A| = |B|$, $A^{-1} = I - \Psi^T B^{-1}\Psi$, and the two squares are $\rho^T B^{-1}\rho$.
Several outputs have a posterior each; the weight of a component comes from the evidence of all of them together.

All of it is in float64, broadcasts over leading axes (tasks, draws of a prior), and is differentiable.
"""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.linalg import cholesky_ex, solve_triangular

Space = Literal["weight", "function"]

JITTERS = (1e-14, 1e-12, 1e-10, 1e-8)
"""Shares of a matrix's largest diagonal entry that are added to its diagonal, one after the other, until it has a
Cholesky factor. The matrices are I + (positive semidefinite), so the first attempt is without jitter and fails only
through rounding, where entries exceed about 1e15. Matrices whose first attempt succeeds are never changed."""


class HeadPrior(NamedTuple):
    """K Gaussians over the weights of C outputs; leading axes broadcast with those of the features.

    Args:
        mean: w0, shape (..., K, C, d).
        factor: L, shape (..., K, C, d, r); an axis C of length one is a covariance that all outputs share.
        log_weights: logarithms of the components' weights up to a constant, shape (..., K).
    """

    mean: Tensor
    factor: Tensor
    log_weights: Tensor

    def double(self) -> "HeadPrior":
        """Return the prior in float64."""
        return HeadPrior(*(value.double() for value in self))


class Predictive(NamedTuple):
    """What each component says about the noise-free outputs, both of shape (..., K, n, C)."""

    mean: Tensor
    variance: Tensor
    """Variance because the weights are uncertain: the task part; the noise comes on top."""


@dataclass(frozen=True, eq=False)
class HeadPosterior:
    """The posterior of the weights given a support set.

    Args:
        prior: the prior, in float64.
        coefficients: m, shape (..., K, C, r).
        triangle: lower Cholesky factor of A, or of B in function space.
        rows: Psi, shape (..., K, C, n, r), in function space; None in weight space.
        log_evidence: log p(S | k), of all outputs together, shape (..., K).
    """

    prior: HeadPrior
    coefficients: Tensor
    triangle: Tensor
    rows: Tensor | None
    log_evidence: Tensor

    @property
    def log_weights(self) -> Tensor:
        """Logarithms of the components' weights given the support set, shape (..., K)."""
        return (self.prior.log_weights.log_softmax(-1) + self.log_evidence).log_softmax(-1)

    @property
    def log_marginal(self) -> Tensor:
        """Log evidence of the mixture, shape (...)."""
        return (self.prior.log_weights.log_softmax(-1) + self.log_evidence).logsumexp(-1)

    @property
    def mean(self) -> Tensor:
        """Posterior means w0 + L m, shape (..., K, C, d)."""
        factor, m = self.prior.factor, self.coefficients
        if factor.shape[-3] == 1:  # one matrix for all outputs
            return self.prior.mean + m @ factor.squeeze(-3).mT
        return self.prior.mean + (factor @ m.unsqueeze(-1)).squeeze(-1)

    def whitened_covariance(self) -> Tensor:
        """Return the covariance of z, the inverse of A, shape (..., K, C, r, r) (C may be one)."""
        identity = _identity(self.coefficients.shape[-1], self.triangle)
        if self.rows is None:
            return torch.cholesky_inverse(self.triangle)
        half: Tensor = solve_triangular(self.triangle, self.rows, upper=False)
        return identity - half.mT @ half

    def predict(self, features: Tensor) -> Predictive:
        """Return mean and task variance of each component's outputs at features (..., n, d)."""
        features = features.double()[..., None, None, :, :]  # (..., 1, 1, n, d)
        mean = features.squeeze(-3) @ self.mean.mT  # (..., K, n, C)
        white = _projected(features, self.prior.factor).mT  # (..., K, C, r, n): L^T phi of each row
        if self.rows is None:
            variance = solve_triangular(self.triangle, white, upper=False).square().sum(-2)
        else:
            known = solve_triangular(self.triangle, self.rows @ white, upper=False).square().sum(-2)
            variance = (white.square().sum(-2) - known).clamp_min(0.0)
        return Predictive(mean, variance.mT.expand(mean.shape))


def condition(
    prior: HeadPrior,
    features: Tensor,
    targets: Tensor,
    scales: Tensor,
    weights: Tensor | None = None,
    *,
    space: Space | None = None,
) -> HeadPosterior:
    """Return the exact posterior given the examples of a support set, which may be empty.

    Args:
        prior: the mixture.
        features: Phi, shape (..., n, d), finite also where rows are padded.
        targets: y, shape (..., n, C); ignored, whatever they are, where the weight is zero.
        scales: noise scales s > 0, anything that broadcasts to (..., K, n, C).
        weights: power of each target's likelihood, broadcasts to (..., n, C): 0 where it is missing. None: all one.
        space: matrices of r x r or of n x n; None takes the smaller.

    Returns:
        Posterior, evidence and mixture weights.
    """
    prior, features = prior.double(), features.double()[..., None, None, :, :]
    weights = torch.atleast_2d(features.new_ones(()) if weights is None else weights.double())
    targets = torch.where(weights > 0, targets.double(), 0.0).mT.unsqueeze(-3)  # (..., 1, C, n)
    weights, scales = weights.mT.unsqueeze(-3), torch.atleast_2d(scales.double()).mT
    # (..., K or 1, C or 1, n); the root of a weight of zero is a constant, whose gradient is zero, not infinite
    root = torch.where(weights > 0, weights, 1.0).sqrt() * (weights > 0) / scales
    residual = targets - (features.squeeze(-3) @ prior.mean.mT).mT
    rows, rank = features.shape[-2], prior.factor.shape[-1]
    solve = _by_weights if (space or ("weight" if rank <= rows else "function")) == "weight" else _by_rows
    # Outputs with the same covariance and precision have the same matrix, and are the columns of one system.
    together = prior.factor.shape[-3] == root.shape[-2] == 1
    columns = (
        residual.mT.unsqueeze(-3) if together else residual.unsqueeze(-1)
    )  # (..., K, 1, n, C) or (..., K, C, n, 1)
    m, triangle, psi, squares = solve(prior, features, columns, root.unsqueeze(-1))
    coefficients = m.squeeze(-3).mT if together else m.squeeze(-1)  # (..., K, C, r)
    squares = squares.flatten(-2)  # (..., K, C)
    determinant = 2 * triangle.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    noise = weights * (2 * scales.log() + math.log(2 * math.pi))
    noise = noise.expand(torch.broadcast_shapes(noise.shape, residual.shape)).sum(-1)
    evidence = -0.5 * (noise + determinant + squares).sum(-1)
    return HeadPosterior(prior, coefficients, triangle, psi, evidence)


def _by_weights(
    prior: HeadPrior, features: Tensor, columns: Tensor, root: Tensor
) -> tuple[Tensor, Tensor, None, Tensor]:
    """Return m, the factor of A, None and the squares; n enters only through the d x d sum of phi phi^T / s^2."""
    factor = prior.factor
    precision = root.square()
    weighted = features * precision
    gram = features.mT @ weighted  # (..., K or 1, C or 1, d, d)
    triangle = cholesky(_identity(factor.shape[-1], factor) + factor.mT @ gram @ factor)
    m = torch.cholesky_solve(factor.mT @ (weighted.mT @ columns), triangle)
    left_over = columns - features @ (factor @ m)
    return m, triangle, None, (precision * left_over.square()).sum(-2) + m.square().sum(-2)


def _by_rows(
    prior: HeadPrior, features: Tensor, columns: Tensor, root: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return m, the factor of B, Psi and the squares."""
    psi = _projected(features, prior.factor) * root
    triangle = cholesky(_identity(features.shape[-2], features) + psi @ psi.mT)
    half = solve_triangular(triangle, root * columns, upper=False)
    return psi.mT @ solve_triangular(triangle.mT, half, upper=True), triangle, psi, half.square().sum(-2)


def _projected(features: Tensor, factor: Tensor) -> Tensor:
    """Return Phi L, (..., K, C, n, r), of features (..., 1, 1, n, d); a single prior is one product for all tasks."""
    if factor.ndim > 4:
        return features @ factor
    components, outputs, d, rank = factor.shape
    together = features[..., 0, 0, :, :] @ factor.movedim(-2, 0).reshape(d, -1)
    shape = (*together.shape[:-1], components, outputs, rank)
    return together.reshape(shape).movedim(-4, -2)


def _identity(size: int, like: Tensor) -> Tensor:
    return torch.eye(size, dtype=like.dtype, device=like.device)


def cholesky(matrix: Tensor) -> Tensor:
    """Return lower Cholesky factors (..., n, n), with a jitter on those matrices that have none without it.

    A matrix that has none with the largest of ``JITTERS`` either, because it is not finite, gives NaN: the caller finds
    that in its loss. The result is a function of each matrix alone, so batches and single calls agree.
    """
    triangle: Tensor
    triangle, failed = cholesky_ex(matrix)
    share = torch.zeros_like(failed, dtype=matrix.dtype)
    for jitter in JITTERS:
        if not bool(failed.any()):
            return triangle
        share = torch.where(failed > 0, jitter, share)
        added = share * matrix.detach().diagonal(dim1=-2, dim2=-1).amax(-1)
        triangle, failed = cholesky_ex(matrix + added[..., None, None] * _identity(matrix.shape[-1], matrix))
    return torch.where((failed > 0)[..., None, None], torch.nan, triangle)
