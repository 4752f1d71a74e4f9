"""A fit of the collapsed hierarchy: its data, draws of theta and progress; as the content of a checkpoint, and back."""

import os
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from metaprior import checkpoint, history
from metaprior.errors import CheckpointError, TrainingDiverged
from metaprior.hierarchy.collapsed import CollapsedModel, CollapsedPosterior, TaskStack
from metaprior.hierarchy.store import Entry
from metaprior.hierarchy.task_data import CheckedTasks
from metaprior.hierarchy.theta_inference import THETA, State, ThetaInference
from metaprior.hierarchy.whitened import CollapsedHyperprior, Theta
from metaprior.history import EpochRecord
from metaprior.inputs import axes_of, named_parts, rebuilt
from metaprior.likelihoods import Likelihood
from metaprior.network import NOTHING_RANDOM, BayesianNetwork
from metaprior.noise import Noise
from metaprior.posterior import Learned, rebuild, saved_content
from metaprior.scaling import TargetScale
from metaprior.tasks.task import Examples, all_examples

STATE, X, Y, DRAWS = "state.", "data.x", "data.y", "draws"
"""Names of the tensors of a checkpoint that do not belong to the network."""


@dataclass(frozen=True)
class CollapsedSettings:
    """Everything that is chosen before there are tasks."""

    network: BayesianNetwork
    """The network in float64, with nothing random: theta holds its parameters."""
    likelihood: Likelihood
    """In the user's units."""
    hyperprior: CollapsedHyperprior
    theta: ThetaInference
    standardize: bool
    seed: int

    @classmethod
    def of(cls, module: nn.Module, *others: Any) -> "CollapsedSettings":
        """Return the settings for a module, which is copied."""
        return cls(BayesianNetwork(deepcopy(module).double(), NOTHING_RANDOM), *others)

    def model(self, scale: TargetScale) -> CollapsedModel:
        """Return the model in the network's units."""
        return CollapsedModel.of(self.network, self.likelihood.in_units_of(scale), self.hyperprior)

    def described(self) -> dict[str, Any]:
        """Return the settings (but the network and the likelihood) as JSON."""
        kind = {"kind": THETA.kind_of(self.theta), **asdict(self.theta)}  # type: ignore[call-overload]
        return {
            "hyperprior": asdict(self.hyperprior),
            "theta": kind,
            "standardize": self.standardize,
            "seed": self.seed,
        }


@dataclass
class CollapsedFit:
    """What one fit works on."""

    settings: CollapsedSettings
    target_scale: TargetScale
    entries: list[Entry]
    data: list[Examples]
    """All data of each task, in the network's units."""
    scalar_targets: bool
    state: State
    draws: Tensor | None = None
    """z of the draws that are finite, once the fit is finished."""
    history: list[EpochRecord] = field(default_factory=list)
    losses: dict[str, Any] = field(default_factory=dict)
    """What records say about missing targets and about tasks that are left out."""

    @classmethod
    def begin(cls, settings: CollapsedSettings, target_scale: TargetScale, tasks: CheckedTasks) -> "CollapsedFit":
        """Return a fit before its first round."""
        model, data = settings.model(target_scale), [tasks.data_of(entry, target_scale) for entry in tasks.entries]
        model.check(data[0])
        like = torch.zeros(model.whitening.dimension, dtype=torch.float64, device=settings.network.device)
        state = settings.theta.start(like, Noise(settings.seed).fork("theta"))
        return cls(settings, target_scale, tasks.entries, data, tasks.scalar_targets, state)

    @cached_property
    def model(self) -> CollapsedModel:
        """The model in the network's units."""
        return self.settings.model(self.target_scale)

    @cached_property
    def _stack(self) -> TaskStack:
        return TaskStack.of(self.data)

    @cached_property
    def theta(self) -> Theta:
        """The draws of theta; the fit must be finished."""
        assert self.draws is not None, "the fit is finished"
        return self.model.whitening.theta(self.draws)

    def log_evidence(self, z: Tensor) -> Tensor:
        """Return the log evidence of all data under every row of z."""
        return self.model.log_evidence(z, self._stack)

    @property
    def _noise(self) -> Noise:
        return Noise(self.settings.seed).fork("theta")

    def run_round(self) -> None:
        """Take the next round, and add a record to the history."""
        phase = self.settings.theta.phase(self.state.rounds)
        self.state = self.settings.theta.advance(self.state, self.log_evidence, self._noise)
        self.history.append(self._record(phase))

    def terms(self) -> dict[str, float]:
        """Return the objective of the last round, with its parts."""
        return {name: getattr(self.history[-1], name) for name in ("loss", "nll", "hyper")}

    def finished(self) -> "CollapsedFit":
        """Return a copy that is finished with the rounds that were taken."""
        other = replace(self, history=[*self.history])
        other.finish()
        return other

    def finish(self) -> None:
        """Keep the draws that have a finite evidence.

        Raises:
            TrainingDiverged: if fewer than two have one.
        """
        draws = self.settings.theta.thetas(self.state, self._noise)
        with torch.no_grad():
            finite = self.log_evidence(draws).isfinite()
        if int(finite.sum()) < 2:
            raise TrainingDiverged(
                f"only {int(finite.sum())} of {len(draws)} draws of theta have a finite evidence; try inputs of "
                "about mean 0 and standard deviation 1, a smaller lr, or a larger noise"
            )
        self.draws = draws[finite]

    def _record(self, phase: str) -> EpochRecord:
        observations, tasks = sum(task.size for task in self.data), len(self.data)
        finite = (self.state.log_evidence - self.state.penalty).isfinite()
        nll = -float(self.state.log_evidence[finite].mean()) / observations
        hyper = float(self.state.penalty[finite].mean()) / observations
        loss, number = nll + hyper, len(self.history) + 1
        record = EpochRecord(number, loss, nll, 0.0, hyper, observations, phase, steps=1, tasks=tasks, **self.losses)
        if bool(finite.all()):
            return record
        message = f"{int((~finite).sum())} of {len(finite)} draws of theta are not finite"
        return replace(record, failures=(*record.failures, message))

    def posterior(self, support: Examples | None, scalar: bool | None = None) -> CollapsedPosterior:
        """Return the posterior of a task given checked data in the network's units; without data, the prior."""
        with torch.no_grad():
            if support is None or not support.size:
                head = self.model.prior(self.theta)
            else:
                head = self.model.posterior(self.theta, TaskStack.of([support]))
        return CollapsedPosterior(
            self.settings.network,
            target_scale=self.target_scale,
            scalar_targets=self.scalar_targets if scalar is None else scalar,
            model=self.model,
            theta=self.theta,
            head=head,
        )

    def content(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return the tensors and the description of a checkpoint."""
        settings = self.settings
        weights, scale = settings.network.initial(), self.target_scale
        axes = axes_of(self.data[0].x)
        learned = Learned(settings.network, settings.likelihood, weights, scale, axes, self.scalar_targets)
        tensors, description = saved_content(learned)
        for name, value in [*self.state.tensors.items(), *list(self.state._asdict().items())[2:]]:
            tensors[STATE + name] = value
        together = all_examples(self.data)
        tensors |= {**named_parts(together.x, X), Y: together.y}
        if self.draws is not None:
            tensors[DRAWS] = self.draws
        description |= {
            "settings": settings.described(),
            "rounds": self.state.rounds,
            "tasks": [asdict(entry) for entry in self.entries],
            "history": history.described(self.history),
        }
        return tensors, description

    @classmethod
    def read(cls, folder: str | os.PathLike[str], kind: str, module: nn.Module | None) -> "CollapsedFit":
        """Return the fit in a checkpoint. Networks of this package are rebuilt; for any other, ``module`` is needed."""
        tensors, description = checkpoint.read(folder, kind)
        with checkpoint.readable(folder):
            own = {name: value for name, value in tensors.items() if not name.startswith((STATE, X, Y, DRAWS))}
            learned = rebuild(own, description, None if module is None else deepcopy(module).double())
            given = description["settings"]
            settings = CollapsedSettings(
                learned.network,
                learned.likelihood,
                CollapsedHyperprior(**given["hyperprior"]),
                THETA.build(given["theta"].pop("kind"), given["theta"]),
                bool(given["standardize"]),
                int(given["seed"]),
            )
            here = {name: value.to(learned.network.device) for name, value in tensors.items()}
            entries = [Entry(**entry) for entry in description["tasks"]]
            sizes = [entry.observations for entry in entries]
            axes = 0 if learned.input_axes is None else learned.input_axes
            x = rebuilt(axes, [here[name] for name in named_parts(axes, X)])
            data = Examples(x, here[Y]).split(sizes)
            of_state = {n.removeprefix(STATE): v for n, v in here.items() if n.startswith(STATE)}
            measures = of_state.pop("log_evidence"), of_state.pop("penalty")
            state = State(int(description["rounds"]), of_state, *measures)
            records = history.restored(description["history"])
            scalar, scale = learned.scalar_targets, learned.target_scale
            return cls(settings, scale, entries, data, scalar, state, here.get(DRAWS), records)

    def refuse_other(self, settings: CollapsedSettings, entries: list[Entry]) -> None:
        """Raise unless a stopped fit is resumed with the settings and the tasks that it was started with."""
        before, now = self.settings.described(), settings.described()
        before["likelihood"], now["likelihood"] = self.settings.likelihood, settings.likelihood
        if other := [f"{name} (was {before[name]}, now {now[name]})" for name in now if before[name] != now[name]]:
            raise CheckpointError(f"a fit is resumed with the settings it was started with, but {'; '.join(other)}")
        if [(e.name, e.fingerprint) for e in entries] != [(e.name, e.fingerprint) for e in self.entries]:
            raise ValueError(
                f"a fit is resumed with the {len(self.entries)} tasks that it was started with, in their order, got "
                f"{len(entries)} tasks, or other data"
            )
