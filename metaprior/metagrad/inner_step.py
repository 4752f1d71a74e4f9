r"""One inner step and its adjoint, elementwise in the weights: everything about a step but the network.

With $s = \mathrm{softplus}(\rho)$, $s' = \mathrm{sigmoid}(\rho)$, $s'' = s'(1-s')$, $p = 1/s_\theta^2$, $w$ =
kl_weight / N, and with $g$ and $e$ the means over weight samples of $\nabla_\phi$ and of $\epsilon \nabla_\phi$ of the
data loss, the inner gradient is

$$G_\mu = g + w\,(\mu - \mu_\theta)\,p, \qquad G_\rho = s'\,\big(e + w\,(s\,p - 1/s)\big).$$

Its pullback of a direction $a = (a_\mu, a_\rho)$, without the network's part, is

$$\mu:\; w\,p\,a_\mu \qquad \rho:\; s''\,\big(e + w\,(s p - 1/s)\big)\,a_\rho + w\,s'^2\,(p + 1/s^2)\,a_\rho$$
$$\mu_\theta:\; -w\,p\,a_\mu \qquad \rho_\theta:\; -2w\,\frac{s'_\theta}{s_\theta^3}\,\big((\mu-\mu_\theta)\,a_\mu +
s' s\,a_\rho\big)$$

and the network's part is $h$ for $\mu$ and $s'\epsilon h$ for $\rho$, where $h = H(\phi)\,(a_\mu + \epsilon s' a_\rho)$
with the Hessian H of the data loss in weight space. Vectors are changed in place, in parts that fit in a core's cache.
"""

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

from metaprior.checks import moved
from metaprior.metagrad.problem import Problem
from metaprior.metagrad.vectors import Moving, Vector, parts
from metaprior.weights import WeightDistribution

M_co = TypeVar("M_co", bound=Moving, covariant=True)


class Iterate(NamedTuple, Generic[M_co]):
    """lambda^(k) (mu, rho and the adapted plain tensors) and its velocity m^(k), both changed in place.

    The velocity is None without momentum. Both may hold a stack of tasks.
    """

    lambda_: M_co
    velocity: M_co | None = None


class DataGradient(NamedTuple):
    r"""Gradient of the data loss: $g$, $e$ (None for one sample: it is $\epsilon g$ by the step's noise), and plain."""

    g: Vector
    e: Vector | None
    plain: MutableMapping[str, Tensor]
    noise: Vector | None = None

    def noisy(self, part: slice) -> Tensor:
        """Return e of the part."""
        if self.e is not None:
            return self.e[..., part]
        if self.noise is None:
            raise AssertionError("a gradient of one sample needs the step's noise")
        return self.noise[..., part] * self.g[..., part]


class StepSizes:
    r"""alpha for every number, a single one or one per tensor, and the gradient by its logarithm, which is collected.

    Damped, the means step with $\alpha d$, where $d = 1/(1 + \alpha w p)$; then
    $\partial(\alpha d)/\partial\log\alpha = \alpha d^2$ and
    $\partial(\alpha d)/\partial\rho_\theta = 2 w (\alpha d)^2 s'_\theta/s_\theta^3$.
    """

    def __init__(
        self, problem: Problem, theta: WeightDistribution, adapted: list[str], w: float, stack: tuple[int, ...]
    ) -> None:
        self.learned = theta.log_lr
        self._adapted, self._sizes = adapted, problem.network.layout.sizes
        fixed = theta.mu.new_full((), problem.inner.lr)
        self._alpha = fixed if self.learned is None else self.learned.detach().exp()
        self.grad = self._alpha.new_zeros((*stack, *self._alpha.shape))  # for each task of a stack
        ends = torch.tensor(self._sizes).cumsum(0) if self._alpha.ndim else torch.zeros(0, dtype=torch.long)
        self._ends = moved(ends, theta.mu.device)
        self._rho, self._w = theta.rho.detach(), w if problem.inner.damped else 0.0

    def _tensors(self, part: slice) -> Tensor:
        """Return the number of the random tensor that each weight of the part belongs to."""
        index = torch.arange(part.start, part.stop, device=self._ends.device)
        return torch.searchsorted(self._ends, index, right=True)

    @property
    def damped(self) -> bool:
        """Whether the step sizes of the means depend on theta's scales."""
        return self._w > 0

    def mu(self, part: slice) -> Tensor:
        """Return the step sizes of the means."""
        alpha = self._undamped(part)
        return alpha * self._damping(alpha, part) if self.damped else alpha

    def _undamped(self, part: slice) -> Tensor:
        return self._alpha[self._tensors(part)] if self._alpha.ndim else self._alpha

    def _damping(self, alpha: Tensor, part: slice) -> Tensor:
        """Return d."""
        return 1 / (1 + alpha * self._w * F.softplus(self._rho[part]) ** -2)

    def pull_back_mu(self, part: slice, derivative: Tensor, theta_cotangent: Callable[[], Moving]) -> Tensor:
        """Return the derivative by log alpha from that by the step sizes of the means; add that by theta's rho."""
        alpha = self._undamped(part)
        if not self.damped:
            return derivative * alpha
        damping, rho = self._damping(alpha, part), self._rho[part]
        own = alpha * damping
        bend = 2 * self._w * own**2 * torch.sigmoid(rho) * F.softplus(rho) ** -3
        theta_cotangent().rho[..., part] += derivative * bend
        return derivative * own * damping

    def rho(self, part: slice) -> Tensor:
        """Return the step sizes of the scales."""
        return self._alpha[len(self._sizes) + self._tensors(part)] if self._alpha.ndim else self._alpha

    def plain(self, name: str) -> Tensor:
        """Return the step size of an adapted plain tensor."""
        return self._alpha[2 * len(self._sizes) + self._adapted.index(name)] if self._alpha.ndim else self._alpha

    def collect(self, part: slice, mu: Tensor, rho: Tensor) -> None:
        """Add the derivatives by log alpha that a part's numbers contribute."""
        if not self._alpha.ndim:
            self.grad += mu.sum(-1) + rho.sum(-1)
            return
        tensors = self._tensors(part)
        self.grad.index_add_(-1, tensors, mu)
        self.grad.index_add_(-1, len(self._sizes) + tensors, rho)

    def collect_plain(self, name: str, derivative: Tensor) -> None:
        """Add the derivative by log alpha that an adapted plain tensor contributes."""
        own = derivative.reshape(*self.grad.shape[: self.grad.ndim - self._alpha.ndim], -1).sum(-1)
        if self._alpha.ndim:
            self.grad[..., 2 * len(self._sizes) + self._adapted.index(name)] += own
        else:
            self.grad += own


class _Elements:
    """A part of lambda and theta, with the functions of it that the formulas need."""

    def __init__(self, state: Moving, theta: WeightDistribution, part: slice, w: float) -> None:
        rho, theta_rho = state.rho[..., part], theta.rho[part]
        self.mu, self.s, self.slope = state.mu[..., part], F.softplus(rho), torch.sigmoid(rho)
        self.theta_mu, self.theta_rho, self.theta_s, self.w = theta.mu[part], theta_rho, F.softplus(theta_rho), w

    @property
    def theta_slope(self) -> Tensor:
        """The derivative of theta's scales by its rho."""
        return torch.sigmoid(self.theta_rho)

    def gradient(self, g: Tensor, e: Tensor) -> tuple[Tensor, Tensor]:
        """Return (G_mu, G_rho)."""
        if self.w == 0:
            return g, self.slope * e
        p = self.theta_s**-2
        return g + self.w * p * (self.mu - self.theta_mu), self.slope * (e + self.w * (self.s * p - 1 / self.s))

    def kl(self) -> Tensor:
        """Return KL(q || p) of the part's weights, summed."""
        ratio = self.s / self.theta_s
        return (0.5 * (ratio**2 + ((self.mu - self.theta_mu) / self.theta_s) ** 2 - 1) - ratio.log()).sum(-1)


def sample(state: Moving, noise: Vector) -> Tensor:
    """Return phi = mu + s * noise."""
    phi = torch.empty(state.mu.shape, dtype=state.mu.dtype, device=state.mu.device)
    for part in parts(phi):
        _sample_part(state, noise, part, phi)
    return phi


def _sample_part(state: Moving, noise: Vector, part: slice, phi: Tensor) -> None:
    torch.addcmul(state.mu[..., part], F.softplus(state.rho[..., part]), noise[..., part], out=phi[..., part])


def out_of_weight_space(state: Moving, cotangent: Moving, g: Tensor, noise: Vector) -> None:
    """Add the pullback of phi to lambda's cotangent: g for mu, s' * noise * g for rho."""
    for part in parts(g):
        cotangent.mu[..., part] += g[..., part]
        cotangent.rho[..., part] += torch.sigmoid(state.rho[..., part]) * (noise[..., part] * g[..., part])


@dataclass(frozen=True)
class Direction:
    """The direction a that is pulled back: v itself or, with step sizes, -alpha * v, computed part by part."""

    v: Moving
    sizes: StepSizes | None = None

    def at(self, part: slice) -> tuple[Tensor, Tensor]:
        """Return a part of a_mu and a_rho."""
        mu, rho = self.v.mu[..., part], self.v.rho[..., part]
        return (mu, rho) if self.sizes is None else (-self.sizes.mu(part) * mu, -self.sizes.rho(part) * rho)

    def of_plain(self, name: str) -> Tensor:
        """Return the direction of an adapted plain parameter."""
        return self.v.plain[name] if self.sizes is None else -self.sizes.plain(name) * self.v.plain[name]


def into_weight_space(
    state: Moving, direction: Direction, noise: Vector, factor: float, *, sampled: bool
) -> tuple[Tensor, Tensor | None]:
    """Return u = factor * (a_mu + noise * s' * a_rho) and, if ``sampled``, phi of the same noise."""
    u = torch.empty(state.mu.shape, dtype=state.mu.dtype, device=state.mu.device)
    phi = torch.empty_like(u) if sampled else None
    for part in parts(u):
        if phi is not None:
            _sample_part(state, noise, part, phi)
        a_mu, a_rho = direction.at(part)
        slope = torch.sigmoid(state.rho[..., part]).mul_(noise[..., part])
        torch.addcmul(a_mu, slope, a_rho, out=u[..., part]).mul_(factor)
    return u, phi


def add_kl_gradient(
    state: Moving, theta: WeightDistribution, cotangent: Moving, theta_cotangent: Moving, factor: float
) -> Tensor:
    """Add the gradient of factor * KL(q || p) by lambda and by theta to the cotangents, and return its value."""
    value = theta.mu.new_zeros(state.mu.shape[:-1])
    for part in parts(state.mu):
        x = _Elements(state, theta, part, factor)
        p, away = x.theta_s**-2, x.mu - x.theta_mu
        pull = factor * p * away
        cotangent.mu[..., part] += pull
        cotangent.rho[..., part] += factor * x.slope * (x.s * p - 1 / x.s)
        theta_cotangent.mu[..., part] -= pull
        theta_cotangent.rho[..., part] += factor * x.theta_slope / x.theta_s * (1 - p * (x.s**2 + away**2))
        value += factor * x.kl()
    return value


@dataclass(frozen=True)
class InnerStep:
    """The step from an iterate to the next one, and its adjoint."""

    theta: WeightDistribution
    sizes: StepSizes
    momentum: float
    w: float

    def advance(self, iterate: Iterate[Moving], gradient: DataGradient) -> Tensor:
        """Take one step in place and return the KL before it."""
        state, velocity = iterate
        kl = self.theta.mu.new_zeros(state.mu.shape[:-1])
        for part in parts(state.mu):
            elements = _Elements(state, self.theta, part, self.w)
            if self.w:
                kl += elements.kl()
            step_mu, step_rho = elements.gradient(gradient.g[..., part], gradient.noisy(part))
            if velocity is not None:
                velocity.mu[..., part] = step_mu = velocity.mu[..., part].mul(self.momentum).add_(step_mu)
                velocity.rho[..., part] = step_rho = velocity.rho[..., part].mul(self.momentum).add_(step_rho)
            state.mu[..., part] -= self.sizes.mu(part) * step_mu
            state.rho[..., part] -= self.sizes.rho(part) * step_rho
        for name, step in gradient.plain.items():
            if velocity is not None:
                velocity.plain[name] = step = velocity.plain[name].mul(self.momentum).add_(step)
            state.plain[name] -= self.sizes.plain(name) * step
        return kl

    def collect_step_size_gradient(
        self, iterate: Iterate[Moving], gradient: DataGradient, v: Moving, theta_cotangent: Callable[[], Moving]
    ) -> None:
        r"""Collect $\partial/\partial\log\alpha = -\alpha\,\langle v, m^{(k+1)}\rangle$; ``iterate`` is before it.

        The dependence of damped step sizes on theta's scales is added to theta's cotangent.
        """
        sizes, (state, velocity) = self.sizes, iterate
        if sizes.learned is None and not sizes.damped:
            return
        for part in parts(state.mu):
            elements = _Elements(state, self.theta, part, self.w)
            step_mu, step_rho = elements.gradient(gradient.g[..., part], gradient.noisy(part))
            if velocity is not None:
                step_mu = step_mu + self.momentum * velocity.mu[..., part]
                step_rho = step_rho + self.momentum * velocity.rho[..., part]
            mu = sizes.pull_back_mu(part, -step_mu * v.mu[..., part], theta_cotangent)
            if sizes.learned is not None:
                sizes.collect(part, mu, -sizes.rho(part) * step_rho * v.rho[..., part])
        for name, step in gradient.plain.items() if sizes.learned is not None else ():
            if velocity is not None:
                step = step + self.momentum * velocity.plain[name]
            sizes.collect_plain(name, -sizes.plain(name) * step * v.plain[name])

    def add_pullback(
        self,
        state: Moving,
        gradient: DataGradient,
        direction: Direction,
        product: DataGradient,
        cotangent: Moving,
        theta_cotangent: Moving,
    ) -> None:
        """Add the pullback of a direction through the inner gradient to the cotangents of lambda and theta (a prior).

        ``product`` holds h and the mean of noise * h, laid out like a gradient. The direction may be computed from
        ``cotangent`` itself: each part is read before it is changed.
        """
        w = self.w
        for part in parts(state.mu):
            x = _Elements(state, self.theta, part, w)
            a_mu, a_rho = direction.at(part)
            e, h, eh = gradient.noisy(part), product.g[..., part], product.noisy(part)
            bend = x.slope * (1 - x.slope)  # s''
            if w == 0:
                cotangent.mu[..., part] += h
                cotangent.rho[..., part] += x.slope * eh + bend * e * a_rho
                continue
            p, away = x.theta_s**-2, x.mu - x.theta_mu
            curvature = bend * (e + w * (x.s * p - 1 / x.s)) + w * x.slope**2 * (p + x.s**-2)
            mean_part = w * p * a_mu
            scale_part = (-2 * w) * x.theta_slope / x.theta_s**3 * (away * a_mu + x.slope * x.s * a_rho)
            cotangent.mu[..., part] += h + mean_part
            cotangent.rho[..., part] += x.slope * eh + curvature * a_rho
            theta_cotangent.mu[..., part] -= mean_part
            theta_cotangent.rho[..., part] += scale_part
        for name, value in product.plain.items():
            cotangent.plain[name] += value
