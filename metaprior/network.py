r"""Any ``nn.Module`` with a distribution over its parameters.

A network's parameters fall into three groups:

* **random** ones, flattened into one vector $\phi \in \mathbb{R}^D$;
* **plain** ones, learned as ordinary point values;
* **constants** (``requires_grad=False``, and buffers), copied when the network is made.

The module itself is not modified: every forward pass goes through ``torch.func.functional_call``. A network that is a
chain of stages can be run in two halves: where the adapted parameters sit behind stages that do not move in the inner
loop (the trunk), the trunk runs only once for a task.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode

from metaprior.inputs import (
    Inputs,
    arguments,
    call,
    copied,
    device_of,
    map_parts,
    parts_of,
    rows_of,
    size_of,
    stack,
)
from metaprior.outputs import all_close, not_taken, refuse_dependence_on_others, refuse_no_observations
from metaprior.weights import Layout, WeightDistribution, inverse_softplus

T = TypeVar("T")

DEFAULT_RELATIVE_SIGMA = 0.1
NOTHING_RANDOM = "(?!)"
"""The pattern ``stochastic`` of networks all of whose parameters are plain: it matches no name."""
NEARLY_ZERO = 0.1
VECTORISED = 4
"""Observations (two, with two weight samples) that a trial of vectorised samples takes; where they are not affordable,
samples are computed one after the other."""
PROBE, PROBE_NUMBERS = 64, 2**24
"""Most observations that ``check_forward`` runs, enough to reach a network's branches, and about the most numbers in
their activations."""


def stages_of(module: nn.Module) -> Sequence[nn.Module]:
    """Return what a module's method ``stages()`` gives, the children of an ``nn.Sequential``, or the module itself.

    ``forward(x)`` must be the same as running x through the stages one after the other. What passes from one to the
    next is a tensor, or a tuple of tensors, whose first axis is the observations. The first stage is called as the
    module is, with several arguments where x has several parts.
    """
    if callable(getattr(type(module), "stages", None)):  # a method, and not a layer of this name
        return module.stages()  # type: ignore[operator, no-any-return]
    if isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward:
        return list(module)
    return [module]


def first_stage_with(module: nn.Module, names: Collection[str]) -> int:
    """Return the index of the first stage that holds one of the named parameters; stages may share parameters."""
    named = dict(module.named_parameters(remove_duplicate=False))
    held = [{id(parameter) for parameter in stage.parameters()} for stage in stages_of(module)]
    strays = [name for name, parameter in module.named_parameters() if id(parameter) not in set().union(*held)]
    if strays:
        raise ValueError(
            f"{type(module).__name__}.stages() leaves out parameters: {_listing(strays)}; every parameter must belong "
            "to a stage that is returned (a stage is an nn.Module with its own parameters)"
        )
    wanted = {id(named[name]) for name in names}
    return next((index for index, own in enumerate(held) if own & wanted), 0)


def structure_of(module: nn.Module) -> tuple[tuple[Any, ...], ...]:
    """Return what a copy that shares a module's tensors depends on: parts, modes, and which tensors of which type."""
    tensors = (*module.parameters(), *module.buffers())
    parts = tuple((id(part), part.training) for part in module.modules())
    return parts, tuple((id(value), value.dtype, value.device, value.requires_grad) for value in tensors)


class Chain(nn.Module):
    """Stages ``start`` up to ``stop`` of a module, as a module whose parameters are called ``module.<name>``."""

    def __init__(self, module: nn.Module, start: int = 0, stop: int | None = None) -> None:
        super().__init__()
        self.module = module
        self.window = slice(start, stop)

    def forward(self, features: Any) -> Any:
        """Return the features after the last stage from those before the first."""
        if self.window == slice(0, None):
            return call(self.module, features)
        for number, stage in enumerate(stages_of(self.module)[self.window], self.window.start):
            features = stage(features) if number else call(stage, features)
        return features


class BayesianNetwork:
    """An unmodified module and the choice of which of its parameters are random.

    ``stochastic`` is a regular expression that must match a parameter's whole name (as in
    ``module.named_parameters()``): ``".*"`` for all, ``r"head\\..*"`` for one part. Learnable parameters that it does
    not match are plain; parameters with ``requires_grad=False`` stay constant. The default, None, is the module's own
    attribute ``stochastic`` (a ``BayesianUNet`` has one), or else all parameters.
    """

    def __init__(self, module: nn.Module, stochastic: str | None = None) -> None:
        stochastic = str(getattr(module, "stochastic", ".*")) if stochastic is None else stochastic
        lazy = [name for name, p in module.named_parameters() if is_lazy(p)]
        if lazy:
            raise ValueError(
                f"parameters without a shape yet: {_listing(lazy)}; run one batch through the module first"
            )
        refuse_compiled(module)
        refuse_batch_statistics(module)
        learnable = {name: p for name, p in module.named_parameters() if p.requires_grad}
        random = {name: p for name, p in learnable.items() if _pattern(stochastic).fullmatch(name)}
        if not random and (stochastic != NOTHING_RANDOM or not learnable):
            raise ValueError(
                f"stochastic={stochastic!r} matches none of the module's learnable parameters; they are "
                f"{_listing(learnable) or '(none)'}. The pattern must match a whole name; '.*' makes all random. "
                "For a network without random weights (MAML) use all of them with relative_sigma=0."
            )
        half = [name for name, p in (random or learnable).items() if p.dtype in (torch.float16, torch.bfloat16)]
        if half:  # sums over many weights overflow or lose their small parts
            raise ValueError(
                f"random parameters need 32 bits or more, but these have 16: {_listing(half)}; use .float()"
            )
        self.module = module
        self.stochastic = stochastic
        self.layout = Layout(tuple(random), tuple(p.shape for p in random.values()))
        first = next(iter((random or learnable).values()))
        self.dtype, self.device = first.dtype, first.device
        self._random = random
        self._plain = {name: p for name, p in learnable.items() if name not in random}
        frozen = {name: p for name, p in module.named_parameters() if not p.requires_grad}
        self.constants: dict[str, Tensor] = {
            name: value.detach().clone() for name, value in [*frozen.items(), *module.named_buffers()]
        }
        self._vectorizes = True  # until a module shows that it cannot

    @property
    def plain_names(self) -> tuple[str, ...]:
        """Names of the learnable parameters that are not random."""
        return tuple(self._plain)

    def initial(self, relative_sigma: float = DEFAULT_RELATIVE_SIGMA) -> WeightDistribution:
        """Return a distribution with the module's present values as means and scales from ``relative_rho``."""
        none = torch.zeros(0, dtype=self.dtype, device=self.device)
        mu = self.layout.flatten({name: p.detach() for name, p in self._random.items()}) if self._random else none
        plain = {name: p.detach().clone() for name, p in self._plain.items()}
        return WeightDistribution(mu, self.relative_rho(mu, relative_sigma), plain)

    def relative_rho(self, mu: Tensor, relative_sigma: float) -> Tensor:
        """Return the rho of sigmas that are a fraction of each tensor's root mean square; 0 gives a point (rho = -inf).

        A tensor that is nearly zero (a fresh bias; less than a tenth of the others' median) has no scale of its own
        and takes that median. A tiny sigma would make the KL to it so stiff that no inner step is small enough.
        """
        if not self.layout.names:
            return mu.clone()
        scales = torch.stack([value.square().mean().sqrt() for value in self.layout.split(mu).values()])
        present = scales[scales > 0]
        usual = present.median() if len(present) else torch.ones_like(scales[0])
        sigma = relative_sigma * torch.where(scales > NEARLY_ZERO * usual, scales, usual)
        return inverse_softplus(sigma.repeat_interleave(torch.tensor(self.layout.sizes, device=mu.device)))

    def __call__(self, phi: Tensor, plain: Mapping[str, Tensor], x: Inputs) -> Tensor | Any:
        """Return the outputs of the network with random parameters phi, shape (D,), and plain parameters ``plain``.

        ``plain`` may hold more (a likelihood's noise scale): what is not a parameter of the module is ignored.
        """
        values = {**self.constants, **self._own(plain), **self.layout.split(phi)}
        return self._called(values, x)

    def _called(self, values: dict[str, Tensor], x: Inputs) -> Any:
        return functional_call(self.module, values, *arguments(copied(x)))

    def _own(self, plain: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: plain[name] for name in self._plain}

    def run_part(self, part: Chain, named: Mapping[str, Tensor], features: Any) -> Any:
        """Return the outputs of some stages with the parameters ``named``; the others keep the module's values."""
        values = {f"module.{name}": value for name, value in {**self.constants, **named}.items()}
        return functional_call(part, values, (copied(features),))

    def map_samples(self, function: Callable[..., T], *rows: Inputs) -> T:
        """Return ``function`` of every row (of phis (S, D), of data beside them), stacked; vectorised where possible.

        What is beside phis may be a tensor, or a tuple or dictionary of tensors.

        A module with data-dependent Python control flow, or a layer that torch cannot vectorise (LSTM), raises the
        first time; from then on its samples are computed one after the other, more slowly and with the same result.
        """
        count = size_of(rows[0])
        if count > 1 and self._vectorizes:
            try:
                return torch.vmap(function, randomness="different")(*rows)
            except torch.cuda.OutOfMemoryError:
                raise
            except (RuntimeError, TypeError, ValueError):
                self._vectorizes = False
        results: list[Any] = [function(*(rows_of(one, number) for one in rows)) for number in range(count)]
        return stack(results)  # type: ignore[no-any-return]

    def numbers_per_observation(self, weights: WeightDistribution, x: Inputs) -> int:
        """Return how many numbers the network's operations produce for one observation."""
        counter, named = _NumbersProduced(), self.layout.split(weights.mu)
        with evaluation_mode(self.module), torch.no_grad(), counter:
            self._checked(named, weights.plain, rows_of(x, slice(1)))
        return max(1, counter.numbers)

    def numbers_behind(self, stage: int, x: Inputs, weights: WeightDistribution | None = None) -> int:
        """Return the same count for the stages from ``stage`` on; ``weights`` are the module's own by default."""
        named = {} if weights is None else {**self._own(weights.plain), **self.layout.split(weights.mu)}
        counter = _NumbersProduced()
        with evaluation_mode(self.module), torch.no_grad():
            features = rows_of(x, slice(1))
            features = self.run_part(Chain(self.module, 0, stage), named, features) if stage else features
            with counter:
                self.run_part(Chain(self.module, stage), named, features)
        return max(1, counter.numbers - sum(map(Tensor.numel, parts_of(features))))  # without those of the copy

    def check_forward(self, x: Inputs) -> Any:
        """Run a few observations through the network, raise for what cannot work, and return the outputs' shape.

        Of outputs with several parts it is the shape of each part, in their form.
        """
        state = self.initial()
        affordable = PROBE_NUMBERS // self.numbers_per_observation(state, x)
        size = size_of(x)
        count = min(size, max(2, min(PROBE, affordable)))
        probe = rows_of(x, torch.linspace(0, size - 1, count).long().to(device_of(x)))  # spread: data may be sorted
        with evaluation_mode(self.module), torch.enable_grad():
            # With a graph only as many as are affordable: the first look is not to be what needs most memory.
            output, unused = self._probe(state, rows_of(probe, slice(max(1, affordable))))
            with torch.no_grad():
                plain = partial(self._checked, self.layout.split(state.mu), state.plain)
                output = plain(probe) if size_of(output) < count else output
                alone = plain(rows_of(probe, slice(-1, None)))  # the last: a recurrence over the batch would reach it
                again = plain(probe)
            if self._random and affordable >= VECTORISED:
                self._try_vectorised(state, rows_of(probe, slice(2)))
            self._vectorizes &= affordable >= VECTORISED
        if unused:
            raise ValueError(
                f"the network's output does not depend on {len(unused)} of its {len(self._random)} random parameters: "
                f"{_listing(unused)}. Either they are not used in forward (exclude them with the pattern `stochastic`, "
                "or set requires_grad=False), or forward reads them past the module's attributes, where "
                "torch.func.functional_call cannot replace them."
            )
        for one, own, other in zip(*map(parts_of, (output, alone, again)), strict=True):
            refuse_dependence_on_others(one, own, other)
        return map_parts(lambda part: part.shape, output)

    def check_repeatable(self, x: Inputs) -> None:
        """Raise if the network gives two answers for the same weights: a replayed step would be another one."""
        before = {name: value.clone() for name, value in self.constants.items()}
        with torch.no_grad():
            one, two = (self.run_part(Chain(self.module), {}, x) for _ in range(2))
        changed = [name for name, value in self.constants.items() if not torch.equal(value, before[name])]
        why = f"changes its buffers {changed}" if changed else "draws random numbers in forward"
        if changed or not all_close(one, two, rtol=1e-5, atol=1e-7):
            raise ValueError(
                f"the network gives two answers for the same weights and inputs: it {why}. Call .eval() on that part, "
                "or leave it out: a step that is differentiated must be repeatable"
            )

    def check_stages(self, x: Inputs, split: int, moving: Collection[str]) -> None:
        """Raise unless the stages before and after ``split`` are the forward pass, also when ``moving`` ones move."""
        module = self.module
        moved = {name: 1.1 * p.detach() + 0.1 for name, p in module.named_parameters() if name in moving}
        with torch.no_grad():
            expected = self.run_part(Chain(module), moved, x)
            found = self.run_part(Chain(module, split), moved, self.run_part(Chain(module, 0, split), {}, x))
        if not all_close(expected, found, rtol=1e-4, atol=1e-6):
            raise ValueError(
                f"{type(module).__name__}.stages() does not give what forward gives: running its stages one after the "
                "other must be the same as calling the module"
            )

    def _probe(self, state: WeightDistribution, x: Inputs) -> tuple[Inputs, list[str]]:
        """Return the outputs (detached) and the names of the random parameters that they do not depend on."""
        named = {name: value.clone().requires_grad_() for name, value in self.layout.split(state.mu).items()}
        output = self._checked(named, state.plain, x)
        moving = [part.sum() for part in parts_of(output) if part.requires_grad]
        if not moving:
            return output, list(named)
        grads = torch.autograd.grad(moving, list(named.values()), allow_unused=True)
        return map_parts(torch.Tensor.detach, output), [
            name for name, grad in zip(named, grads, strict=True) if grad is None
        ]

    def _try_vectorised(self, state: WeightDistribution, x: Inputs) -> None:
        """Run forward and backward with two weight samples: some layers fail under vmap only in the backward pass."""
        phis = torch.stack([state.mu, state.mu]).requires_grad_()
        try:
            found = self.map_samples(lambda phi: self(phi, state.plain, x), phis)
            torch.autograd.backward([part.sum() for part in parts_of(found) if part.requires_grad])
        except RuntimeError:
            self._vectorizes = False

    def _checked(self, named: Mapping[str, Tensor], plain: Mapping[str, Tensor], x: Inputs) -> Any:
        """Return the outputs for parameters by name; raise with an explanation where there are none."""
        try:
            output = self._called({**self.constants, **self._own(plain), **named}, x)
        except (RuntimeError, IndexError, TypeError) as error:
            raise not_taken(x, error) from error
        refuse_no_observations(output, size_of(x))
        return output


class _NumbersProduced(TorchFunctionMode):
    """Counts the numbers in the result of every torch operation inside the ``with`` block."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor):
            self.numbers += result.numel()
        return result


@contextmanager
def evaluation_mode(module: nn.Module) -> Iterator[None]:
    """Put every part in eval mode, and restore each one's own mode afterwards."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


def refuse_compiled(module: nn.Module) -> None:
    """Raise for a module that torch has compiled: it gains nothing here, renames parameters, or fails late.

    Vectorised weight samples run it uncompiled, and the second derivatives of inner steps do not exist
    (github.com/pytorch/pytorch/issues/91469).
    """
    for name, part in module.named_modules():
        in_place = getattr(part, "_compiled_call_impl", None) is not None  # by module.compile()
        if in_place or "_orig_mod" in part._modules:
            raise TypeError(
                f"module must not be compiled by torch.compile, got {type(part).__name__}"
                f"{f' as {name!r}' if name else ''}: there are no second derivatives of it, and vectorised weight "
                f"samples run it uncompiled. Try {'the module without .compile()' if in_place else 'module._orig_mod'}"
            )


def refuse_batch_statistics(module: nn.Module) -> None:
    """Raise if a layer's output for one observation depends on the others in its batch, or on hidden running state."""
    for name, part in module.named_modules():
        batch_norm = isinstance(part, nn.modules.batchnorm._BatchNorm)
        running = getattr(part, "running_mean", None) is not None
        layer = (
            f"layer {name or '(the module itself)'!r} ({type(part).__name__}) normalises with statistics of the batch"
        )
        instead = "Use torch.nn.GroupNorm (or LayerNorm) instead"
        if batch_norm and not running:
            raise ValueError(
                f"{layer}, always (track_running_stats=False), so that an observation's likelihood would depend on its "
                f"neighbours. {instead}."
            )
        if running and part.training:
            raise ValueError(
                f"{layer} and keeps running ones beside the weights. They are not a function of the weights: samples "
                "of the weights would share and overwrite them, and an observation's likelihood would depend on its "
                f"neighbours. {instead}, or call .eval() on that layer to freeze pretrained statistics."
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
