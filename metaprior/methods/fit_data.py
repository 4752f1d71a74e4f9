"""The data of ``BayesByBackprop.fit``: checked, in the network's units, divided into mini-batches and held-out data.

Data in memory are checked once. Those of a loader are streamed: one pass counts the observations and measures the
targets' mean and spread, and every later pass checks each batch as it comes.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from numbers import Real
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset

from metaprior import checks
from metaprior.checks import ArrayLike, InputsLike
from metaprior.inputs import Inputs, copied, device_of, rows_of
from metaprior.likelihoods import Likelihood
from metaprior.methods.cross_fit import parts_of, without_parts
from metaprior.minibatches import HeldOut, HeldOutData, Minibatches, ShuffledData, StreamedData, WeightedExamples
from metaprior.missing import TargetCount, any_of_row
from metaprior.network import BayesianNetwork
from metaprior.noise import Noise
from metaprior.scaling import TargetMoments, TargetScale
from metaprior.tasks.task import Examples

Loaded = Dataset[Any] | DataLoader[Any]
"""Pairs (x, y) by torch's own means: a data set, or a loader of batches."""
Validation = float | tuple[InputsLike, ArrayLike] | Loaded | None
DEFAULT_BATCH_SIZE = 128


@dataclass(frozen=True)
class FitData:
    """The checked data of a fit, with targets in the network's units."""

    inputs: Inputs
    """Some of the inputs, for their type and shape."""
    targets: Tensor
    """Targets from which the likelihood's own parameters start: all, or a few of the same mean and spread."""
    batches: Minibatches
    held_out: HeldOut | None
    scale: TargetScale
    likelihood: Likelihood
    """The likelihood in the network's units."""
    scalar_targets: bool
    """Whether targets came without a channel axis."""
    count: TargetCount
    left_out: tuple[WeightedExamples, Sequence[Tensor]] | None = None
    """All data, and the rows of them that each member leaves out; None: no member leaves any out."""


@dataclass(frozen=True)
class Preparation:
    """What makes ``FitData`` of what a user gives to ``fit``.

    Args:
        network: the network that the data are for.
        likelihood: the likelihood in the user's units.
        standardize: whether real-valued targets are standardised.
        members: networks that learn from the data.
        batch_size: observations in a mini-batch (of what is no loader).
        weighting: how the mini-batches of a pass share the KL.
        noise: noise of shuffling.
        cross_fit: whether each member leaves a part of the data out.
    """

    network: BayesianNetwork
    likelihood: Likelihood
    standardize: bool
    members: int
    batch_size: int
    weighting: str
    noise: Noise
    cross_fit: bool = False

    def __call__(
        self, x: InputsLike | Loaded, y: ArrayLike | None, sample_weight: ArrayLike | None, validation: Validation
    ) -> FitData:
        """Return the checked data of a fit; arguments are those of ``fit``."""
        if isinstance(x, Dataset | DataLoader):
            if y is not None or sample_weight is not None:
                raise TypeError(f"y and sample_weight must be None where x, a {type(x).__name__}, gives pairs (x, y)")
            if self.cross_fit:
                raise ValueError(f"cross_fit must be False where x is a {type(x).__name__}, whose data are streamed")
            return self._streamed(x, validation)
        if y is None:
            raise TypeError("y must be given, unless x is a torch Dataset or DataLoader of pairs (x, y)")
        return self._in_memory(x, y, sample_weight, validation)

    def _in_memory(
        self, x: InputsLike, y: ArrayLike, sample_weight: ArrayLike | None, validation: Validation
    ) -> FitData:
        inputs = checks.inputs(x, dtype=self.network.dtype, device=self.network.device)
        checks.warn_of_scale(inputs)
        output_shape = self.network.check_forward(inputs)
        given, count = self._examples(inputs, y, output_shape, sample_weight)
        self.likelihood.check_results(given.examples.y, output_shape)
        scalar = given.examples.y.ndim > checks.as_plain_tensor(y, "y").ndim
        split = isinstance(validation, Real)
        data, apart = hold_out(given, float(validation), self.noise) if split else (given, None)  # type: ignore[arg-type]
        moments = moments_of(self.likelihood, data.examples.y, data.weights)
        scale = self._scale(moments, data.examples.y)
        if apart is None:
            held_out = self._held_out(validation, output_shape, scale)
        else:
            held_out = HeldOutData(apart._replace(examples=self._internal(apart.examples, scale)), self.batch_size)
        own = data._replace(examples=self._internal(data.examples, scale))
        batches, left_out = self._batches(own)
        start = own.examples.y if data.weights is None else self._typical(moments, data.examples.y, scale)
        likelihood = self.likelihood.in_units_of(scale)
        return FitData(inputs, start, batches, held_out, scale, likelihood, scalar, count, left_out)

    def _batches(self, data: WeightedExamples) -> tuple[Minibatches, tuple[WeightedExamples, list[Tensor]] | None]:
        """Return the mini-batches of data in memory, and what members leave out."""
        each, left_out = [data.examples] * self.members, None
        weights = None if data.weights is None else data.weights.expand(self.members, -1)
        if self.cross_fit:
            checks.check_integer("members (with cross_fit)", self.members, 2)
            parts = parts_of(data, self.members, self.noise)
            each, weights = without_parts(data, parts)
            left_out = data, parts
        members = range(self.members)
        return ShuffledData(each, members, self.batch_size, self.weighting, self.noise, weights=weights), left_out

    def _streamed(self, given: Loaded, validation: Validation) -> FitData:
        if isinstance(validation, Real):
            raise TypeError(
                f"validation must be data, not a fraction, where a {type(given).__name__} streams the training data, "
                f"got {validation}. Try torch.utils.data.random_split."
            )
        read = CheckedBatches(self._loader(given, shuffle=True), self.network, self.likelihood)
        seen = Survey.of(read)
        scale = self._scale(seen.moments, seen.first.y)
        batches = self._stream(read, seen, scale)
        assert read.output_shape is not None
        held_out = self._held_out(validation, read.output_shape, scale)
        start, likelihood = self._typical(seen.moments, seen.first.y, scale), self.likelihood.in_units_of(scale)
        return FitData(seen.first.x, start, batches, held_out, scale, likelihood, read.scalar_targets, seen.targets)

    def _held_out(self, validation: Validation, output_shape: Any, scale: TargetScale) -> HeldOut | None:
        """Return held-out data that were given as such."""
        if validation is None:
            return None
        if isinstance(validation, Dataset | DataLoader):
            loader = self._loader(validation, shuffle=False)
            read = CheckedBatches(loader, self.network, self.likelihood, "validation", output_shape)
            return self._stream(read, Survey.of(read), scale)
        if not isinstance(validation, tuple | list) or len(validation) != 2:
            raise TypeError(
                "validation must be a fraction, a pair (x, y), or a torch Dataset or DataLoader of pairs, got "
                f"{type(validation).__name__}"
            )
        inputs = checks.inputs(validation[0], dtype=self.network.dtype, device=self.network.device)
        own, _ = self._examples(inputs, validation[1], output_shape)
        return HeldOutData(own._replace(examples=self._internal(own.examples, scale)), self.batch_size)

    def _stream(self, read: "CheckedBatches", seen: "Survey", scale: TargetScale) -> StreamedData:
        def internal() -> Iterator[Examples]:
            return map(partial(self._internal, scale=scale), read)

        return StreamedData(
            internal, seen.batches, seen.observations, seen.largest, read.what, self.members, self.weighting
        )

    def _loader(self, given: Loaded, *, shuffle: bool) -> DataLoader[Any]:
        """Return a loader as it is, and one of a data set in an order that the seed decides."""
        if isinstance(given, DataLoader):
            return given
        order = self.noise.fork("loader").generator()
        return DataLoader(
            given, self.batch_size, shuffle=shuffle and not isinstance(given, IterableDataset), generator=order
        )

    def _examples(
        self, inputs: Inputs, y: ArrayLike, output_shape: Any, sample_weight: ArrayLike | None = None
    ) -> tuple[WeightedExamples, TargetCount]:
        """Return the checked data that have a weight and a target, in the user's units, and the count of targets."""
        targets, weights = checked_targets(self.likelihood, inputs, y, output_shape), None
        if sample_weight is not None:
            weights = checks.observation_weights(
                sample_weight, len(targets), dtype=self.network.dtype, device=self.network.device
            )
            counted = weights > 0
            inputs, targets, weights = rows_of(inputs, counted), targets[counted], weights[counted]
        present = self.likelihood.present(targets)
        weights = None if weights is None else weights[any_of_row(present)]
        *pair, count = checks.drop_rows_without_targets(inputs, targets, present)
        data = Examples(*pair)
        if not data.size:
            raise ValueError(f"y must hold at least one target, got {count.targets}, of which all are missing")
        return WeightedExamples(data, weights), count

    def _scale(self, moments: TargetMoments | None, like: Tensor) -> TargetScale:
        if moments is None or not (self.likelihood.continuous and self.standardize):
            return TargetScale.identity(like)
        return TargetScale.from_moments(moments, like, keep_zero=self.likelihood.keeps_zero)

    def _typical(self, moments: TargetMoments | None, some: Tensor, scale: TargetScale) -> Tensor:
        """Return two targets that have the mean and the spread of all; of labels, those given."""
        return some if moments is None else self._internal_targets(moments.two_targets(some), scale)

    def _internal(self, data: Examples, scale: TargetScale) -> Examples:
        """Return data in the network's units and type."""
        return Examples(data.x, self._internal_targets(data.y, scale))

    def _internal_targets(self, y: Tensor, scale: TargetScale) -> Tensor:
        if not y.is_floating_point():
            return y
        return checks.as_float(scale.to_internal(y) if self.likelihood.continuous else y, "y", self.network.dtype)


@dataclass
class CheckedBatches:
    """The batches of a loader, checked, with targets in the user's units; each iteration is a pass over them."""

    loader: Iterable[Any]
    network: BayesianNetwork
    likelihood: Likelihood
    what: str = "x"
    output_shape: Any = None
    """The shape of the network's outputs, or of each part of them; None: the network is tried with the first batch."""
    scalar_targets: bool = field(default=False, init=False)
    """Whether the targets of the first batch came without a channel axis."""

    def __iter__(self) -> Iterator[Examples]:
        """Iterate over one pass."""
        for batch in self.loader:
            if not isinstance(batch, tuple | list) or len(batch) != 2:
                kind = type(batch).__name__ + (f" of {len(batch)}" if isinstance(batch, tuple | list) else "")
                raise TypeError(
                    f"{self.what} must give pairs (x, y), got a {kind}. Try a collate_fn that returns (x, y)."
                )
            yield self._checked(*batch)

    def _checked(self, x: Any, y: Any) -> Examples:
        x = tuple(x) if isinstance(x, list) else x  # torch's default_collate turns tuples into lists
        inputs = checks.inputs(x, dtype=self.network.dtype, device=self.network.device)
        if first := self.output_shape is None:
            checks.warn_of_scale(inputs)
            self.output_shape = self.network.check_forward(inputs)
        targets = checked_targets(self.likelihood, inputs, y, self.output_shape)
        if first:
            self.likelihood.check_results(targets, self.output_shape)
            self.scalar_targets = targets.ndim > checks.as_plain_tensor(y, "y").ndim
        return Examples(inputs, targets)


class Survey(NamedTuple):
    """What one pass over a loader tells about its data."""

    first: Examples
    """The first two observations."""
    batches: int
    observations: int
    """Number of observations that have a target."""
    largest: int
    """Number of observations of the largest batch."""
    targets: TargetCount
    moments: TargetMoments | None
    """Moments of targets that are no labels, in the user's units."""

    @classmethod
    def of(cls, read: CheckedBatches) -> Self:
        """Return what a pass over a loader tells; raise if there is no target in it."""
        first, count, sizes, observations, moments = None, TargetCount(), list[int](), 0, list[TargetMoments]()
        for x, y in read:
            first = first or Examples(copied(rows_of(x, slice(2))), y[:2].clone())
            present = read.likelihood.present(y)
            sizes.append(len(y))
            count, observations = count + TargetCount.of(present), observations + int(any_of_row(present).sum())
            if (own := moments_of(read.likelihood, y)) is not None:
                moments.append(own)
        if first is None or not observations:
            held = f"{count.targets} targets in {len(sizes)} batches" + (", all of them missing" if sizes else "")
            raise ValueError(f"{read.what} must give at least one target, got {held}")
        return cls(
            first, len(sizes), observations, max(sizes), count, TargetMoments.pooled(moments) if moments else None
        )


def checked_targets(likelihood: Likelihood, inputs: Inputs, y: Any, output_shape: Any) -> Tensor:
    """Return checked targets in the user's units; a missing channel axis is added."""
    targets = checks.targets(y, device=device_of(inputs))
    checks.same_length(inputs, targets)
    targets = checks.targets_of(likelihood, targets, output_shape)
    return checks.at_least_single(targets) if likelihood.continuous else targets


def batch_size_for(x: object, batch_size: int | None) -> int:
    """Return the number of observations in a step, by default ``DEFAULT_BATCH_SIZE``; raise if a loader has its own."""
    if isinstance(x, DataLoader) and batch_size is not None:
        raise ValueError(
            f"batch_size must be None for a DataLoader, which has its own batches, got {batch_size}. Try "
            f"DataLoader(..., batch_size={batch_size})"
        )
    return DEFAULT_BATCH_SIZE if batch_size is None else batch_size


def moments_of(likelihood: Likelihood, y: Tensor, weights: Tensor | None = None) -> TargetMoments | None:
    """Return the moments of real-valued targets and of counts; None for labels, which have none."""
    return None if likelihood.labels or not y.is_floating_point() else TargetMoments.of(y, weights)


def hold_out(data: WeightedExamples, fraction: float, noise: Noise) -> tuple[WeightedExamples, WeightedExamples]:
    """Return a random division into training and held-out part."""
    size = data.examples.size
    count = round(fraction * size)
    if not (0 < fraction < 1 and 0 < count < size):
        raise ValueError(
            f"validation={fraction} of {size} observations leaves one of the two parts empty; "
            "give a fraction between 0 and 1, or the held-out data as a pair (x, y)"
        )
    order = torch.randperm(size, generator=noise.fork("hold out").generator()).to(data.examples.y.device)
    return data.rows(order[count:]), data.rows(order[:count])
