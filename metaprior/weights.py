r"""Distributions over the parameters of any ``nn.Module``.

A network's parameters fall into three groups:

* **random** ones, flattened into one vector $\phi \in \mathbb{R}^D$ with a diagonal Gaussian over it;
* **plain** ones, learned as ordinary point values;
* **constants** (``requires_grad=False``, and buffers), which nothing here ever changes.

The module itself is never modified: every forward pass goes through ``torch.func.functional_call``.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

DEFAULT_RELATIVE_SIGMA = 0.1


def inverse_softplus(x: Tensor) -> Tensor:
    r"""The $\rho$ with $\mathrm{softplus}(\rho) = x$, for $x > 0$: $\rho = x + \log(1 - e^{-x})$."""
    return x + torch.log(-torch.expm1(-x))


class WeightDistribution(NamedTuple):
    r"""Diagonal Gaussian $q(\phi) = \prod_j N(\phi_j; \mu_j, \sigma_j^2)$ with $\sigma = \mathrm{softplus}(\rho)$.

    ``mu`` and ``rho`` are vectors of length D; ``plain`` holds the parameters that are not random, by name.
    In the letters of the method pages this is theta (as a prior) or lambda (as a posterior).
    """

    mu: Tensor
    rho: Tensor
    plain: dict[str, Tensor]

    @property
    def sigma(self) -> Tensor:
        """Standard deviations, shape (D,)."""
        return F.softplus(self.rho)

    def sample(self, noise: Tensor) -> Tensor:
        r"""Reparameterised draw $\phi = \mu + \sigma \epsilon$; noise of shape (..., D) gives phi of shape (..., D)."""
        return self.mu + self.sigma * noise

    def kl_from(self, q: "WeightDistribution", phi: Tensor | None = None) -> Tensor:
        """KL(q || self), summed over weights, in closed form; ``phi`` is not needed and ignored."""
        return kl_divergence(q, self)

    def signal_to_noise(self) -> Tensor:
        r"""$|\mu_j| / \sigma_j$ for every weight (Blundell et al. 2015, section 5.3), shape (D,); zero where mu is."""
        return torch.where(self.mu == 0, 0.0, self.mu.abs() / self.sigma)

    def detached(self) -> "WeightDistribution":
        """The same numbers, copied, with no graph behind them."""
        plain = {name: value.detach().clone() for name, value in self.plain.items()}
        return WeightDistribution(self.mu.detach().clone(), self.rho.detach().clone(), plain)


def kl_divergence(q: WeightDistribution, p: WeightDistribution) -> Tensor:
    r"""$KL(q\|p) = \sum_j \log\frac{\sigma_{p,j}}{\sigma_{q,j}}
    + \frac{\sigma_{q,j}^2 + (\mu_{q,j}-\mu_{p,j})^2}{2\sigma_{p,j}^2} - \frac12$, **summed** over weights.

    Plain parameters are point values without a distribution and do not enter.
    """
    sigma_q, sigma_p = q.sigma, p.sigma
    return (torch.log(sigma_p / sigma_q) + (sigma_q**2 + (q.mu - p.mu) ** 2) / (2 * sigma_p**2) - 0.5).sum()


@dataclass(frozen=True)
class Layout:
    """Where each named tensor sits in the flat vector phi."""

    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]

    @property
    def sizes(self) -> list[int]:
        """Number of entries of each tensor."""
        return [prod(shape) for shape in self.shapes]

    @property
    def dimension(self) -> int:
        """D, the length of phi."""
        return sum(self.sizes)

    def split(self, flat: Tensor) -> dict[str, Tensor]:
        """Views of a flat vector (D,) by name and in their own shapes."""
        pieces = flat.split(self.sizes)
        return {name: piece.view(shape) for name, piece, shape in zip(self.names, pieces, self.shapes, strict=True)}

    def flatten(self, named: Mapping[str, Tensor]) -> Tensor:
        """The inverse of ``split``."""
        return torch.cat([named[name].reshape(-1) for name in self.names])


class BayesianNetwork:
    """An unmodified module and the choice of which of its parameters are random.

    ``stochastic`` is a regular expression that has to match a parameter's whole name (as in
    ``module.named_parameters()``): ``".*"`` for all, ``r"head\\..*"`` for one part. Learnable parameters that it does
    not match are plain; parameters with ``requires_grad=False`` stay constant.
    """

    def __init__(self, module: nn.Module, stochastic: str = ".*") -> None:
        refuse_batch_statistics(module)
        learnable = {name: p for name, p in module.named_parameters() if p.requires_grad}
        random = {name: p for name, p in learnable.items() if _pattern(stochastic).fullmatch(name)}
        if not random:
            raise ValueError(
                f"stochastic={stochastic!r} matches none of the module's learnable parameters; they are "
                f"{_listing(learnable) or '(none)'}. The pattern has to match a whole name; '.*' makes all random."
            )
        self.module = module
        self.stochastic = stochastic
        self.layout = Layout(tuple(random), tuple(p.shape for p in random.values()))
        self._random = random
        self._plain = {name: p for name, p in learnable.items() if name not in random}
        frozen = {name: p for name, p in module.named_parameters() if not p.requires_grad}
        self.constants: dict[str, Tensor] = {
            name: value.detach() for name, value in [*frozen.items(), *module.named_buffers()]
        }

    @property
    def dtype(self) -> torch.dtype:
        """The floating-point type of the random parameters."""
        return next(iter(self._random.values())).dtype

    @property
    def device(self) -> torch.device:
        """Where the random parameters are."""
        return next(iter(self._random.values())).device

    def initial(self, relative_sigma: float = DEFAULT_RELATIVE_SIGMA) -> WeightDistribution:
        """Means at the module's present values; each tensor's sigma a fraction of its own root mean square.

        A tensor that is zero (a fresh bias, say) has no scale of its own: it takes the median of the others'.
        """
        scales = [p.detach().square().mean().sqrt() for p in self._random.values()]
        present = [scale for scale in scales if scale > 0]
        usual = torch.stack(present).median() if present else torch.ones((), dtype=self.dtype, device=self.device)
        sigma = torch.cat(
            [
                (relative_sigma * (scale if scale > 0 else usual)).expand(size)
                for scale, size in zip(scales, self.layout.sizes, strict=True)
            ]
        )
        mu = self.layout.flatten({name: p.detach() for name, p in self._random.items()})
        plain = {name: p.detach().clone() for name, p in self._plain.items()}
        return WeightDistribution(mu, inverse_softplus(sigma), plain)

    def __call__(self, phi: Tensor, plain: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """Outputs of the network whose random parameters are phi (shape (D,)) and whose plain ones are ``plain``.

        ``plain`` may hold more (a likelihood's noise scale): what is not a parameter of the module is left out.
        """
        own = {name: plain[name] for name in self._plain}
        return functional_call(self.module, {**self.constants, **own, **self.layout.split(phi)}, (x,))  # type: ignore[no-any-return]

    def map_samples(self, function: Callable[[Tensor], Tensor], phis: Tensor) -> Tensor:
        """``function`` for every row of phis (S, D), stacked: one vectorised program where the module allows it."""
        if len(phis) == 1:
            return function(phis[0]).unsqueeze(0)
        if self.vectorizes:
            return torch.vmap(function, randomness="different")(phis)
        return torch.stack([function(phi) for phi in phis])

    vectorizes: bool = True  # set by ``check_forward``

    def check_forward(self, x: Tensor) -> torch.Size:
        """Run two observations through; refuse a module that ignores its parameters; return the outputs' shape.

        Also finds out whether the module runs under ``torch.vmap`` (one with data-dependent Python control flow does
        not; its weight samples are then taken one after the other, more slowly but with the same result).
        """
        state = self.initial()
        probe = x[:2]
        phi = state.mu.clone().requires_grad_()
        named = self.layout.split(phi)
        values = {**self.constants, **state.plain, **named}
        with torch.enable_grad(), evaluation_mode(self.module):
            output = functional_call(self.module, values, (probe,))
            self._refuse_unusable_output(output, probe)
            grads = (
                torch.autograd.grad(output.sum(), list(named.values()), allow_unused=True)
                if output.requires_grad
                else [None] * len(named)
            )
        unused = [name for name, grad in zip(named, grads, strict=True) if grad is None]
        if unused:
            raise ValueError(
                f"the network's output does not depend on {len(unused)} of its {len(named)} random parameters: "
                f"{_listing(unused)}. Either they are not used in forward (exclude them with the pattern `stochastic`, "
                "or set requires_grad=False), or forward reads them past the module's attributes, where "
                "torch.func.functional_call cannot replace them."
            )
        self.vectorizes = self._runs_under_vmap(state, probe)
        return output.shape  # type: ignore[no-any-return]

    def _runs_under_vmap(self, state: WeightDistribution, probe: Tensor) -> bool:
        phis = torch.stack([state.mu, state.mu])
        try:
            with torch.no_grad():
                torch.vmap(lambda phi: self(phi, state.plain, probe), randomness="different")(phis)
        except RuntimeError:
            return False
        return True

    def _refuse_unusable_output(self, output: object, probe: Tensor) -> None:
        if not isinstance(output, Tensor):
            raise TypeError(f"the network has to return one tensor, but it returned {type(output).__name__}")
        if output.ndim == 0 or len(output) != len(probe):
            raise ValueError(
                f"the network turned {len(probe)} observations into an output of shape {tuple(output.shape)}; "
                "its first axis has to be the observations"
            )


class evaluation_mode:  # noqa: N801 (reads as a statement, like torch.no_grad)
    """``with evaluation_mode(module):`` puts every part in eval mode and restores each one's own mode afterwards."""

    def __init__(self, module: nn.Module) -> None:
        self._modes = [(part, part.training) for part in module.modules()]

    def __enter__(self) -> None:
        for part, _ in self._modes:
            part.training = False

    def __exit__(self, *exception: object) -> None:
        for part, mode in self._modes:
            part.training = mode


def refuse_batch_statistics(module: nn.Module) -> None:
    """Raise if a layer's output for one observation depends on the others in its batch, or on hidden running state."""
    for name, part in module.named_modules():
        batch_norm = isinstance(part, nn.modules.batchnorm._BatchNorm)
        running = getattr(part, "running_mean", None) is not None
        if (running and part.training) or (batch_norm and not running):
            raise ValueError(
                f"layer {name or '(the module itself)'!r} ({type(part).__name__}) normalises with statistics of the "
                "batch and keeps running ones beside the weights. They are not a function of the weights: samples of "
                "the weights would share and overwrite them, and an observation's likelihood would depend on its "
                "neighbours. Use torch.nn.GroupNorm (or LayerNorm) instead, or call .eval() on that layer to freeze "
                "pretrained statistics."
            )


def _pattern(expression: str) -> re.Pattern[str]:
    try:
        return re.compile(expression)
    except re.error as error:
        raise ValueError(f"stochastic={expression!r} is not a regular expression: {error}") from None


def _listing(names: Iterable[str], most: int = 8) -> str:
    names = list(names)
    rest = f", ... ({len(names) - most} more)" if len(names) > most else ""
    return ", ".join(names[:most]) + rest
