r"""Hierarchical inference with the local posteriors in closed form, so that theta alone is inferred:

$$\log p(D_1..D_M) \ge E_{q(\theta)}\Big[\sum_i \log p(D_i|\theta)\Big] - KL(q(\theta)\|p(\theta))$$

``HierarchicalVI(..., local="closed_form")`` makes an object of this class; the method's page is
``docs/methods/hierarchical-vi.md``.
"""

import copy
import os
import shutil
import time
import warnings
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn, Self

import torch
from torch import Tensor, nn

from metaprior import checkpoint
from metaprior.callbacks import Callbacks, Fit, Listeners
from metaprior.checks import PairChecker, as_plain_tensor
from metaprior.errors import CheckpointError
from metaprior.hierarchy.collapsed import CollapsedPosterior
from metaprior.hierarchy.collapsed_fit import CollapsedFit, CollapsedSettings
from metaprior.hierarchy.commit import KIND
from metaprior.hierarchy.model import HierarchyTerms
from metaprior.hierarchy.task_data import CheckedTasks, TaskData
from metaprior.hierarchy.theta_inference import THETA, ThetaInference, Variational
from metaprior.hierarchy.whitened import CollapsedHyperprior, Theta, conjugate
from metaprior.history import EpochRecord
from metaprior.methods.hierarchical_vi import CLOSED_FORM, HierarchicalVI
from metaprior.methods.target_units import TargetUnits
from metaprior.network import BayesianNetwork
from metaprior.noise import Noise
from metaprior.scaling import TargetScale
from metaprior.tasks.task import Examples, as_examples

STOPPED = "stopped"
"""Folder inside the store with a fit that is not finished."""


class CollapsedHierarchicalVI(HierarchicalVI, local=CLOSED_FORM):
    """``HierarchicalVI`` with ``local="closed_form"``: draws of theta, and exact posteriors of the tasks under each.

    The last layer of the module is what differs between tasks; everything in front of it, the prior of the last layer
    and the noise are theta. After ``fit``: ``thetas_`` (the draws), ``history_`` (an ``EpochRecord`` of every round),
    ``task_names_``.
    """

    @cached_property
    def settings(self) -> CollapsedSettings:
        """Return the checked settings; raise for arguments of the constructor that cannot work."""
        module = self._placed_module()
        if self.stochastic is not None:
            raise ValueError(
                f"stochastic must be None with local={CLOSED_FORM!r}, got {self.stochastic!r}: all parameters before "
                "the last layer belong to theta. Try requires_grad=False for those that must stay as they are"
            )
        conjugate(self.likelihood)
        hyperprior = CollapsedHyperprior() if self.hyperprior is None else self.hyperprior
        if not isinstance(hyperprior, CollapsedHyperprior):
            raise TypeError(f"hyperprior must be a CollapsedHyperprior with local={CLOSED_FORM!r}, got {hyperprior!r}")
        theta = "hmc" if self.theta is None else self.theta
        theta = THETA.build(theta, {}) if isinstance(theta, str) else theta
        if not isinstance(theta, ThetaInference):
            raise TypeError(f"theta must be one of {', '.join(THETA)}, or like HMC(draws=32), got {theta!r}")
        return CollapsedSettings.of(module, self.likelihood, hyperprior, theta, bool(self.standardize), int(self.seed))

    @property
    def network(self) -> BayesianNetwork:
        """Return a copy of the network in float64."""
        return self.settings.network

    @cached_property
    def _fit(self) -> CollapsedFit | None:
        """The last finished fit; that of the store, if this object has not been fitted."""
        folder = self._folder
        return None if folder is None or not _exists(folder) else self._read(folder)

    @property
    def _folder(self) -> Path | None:
        return None if self.store is None else Path(self.store)

    def fit(
        self,
        tasks: TaskData,
        *,
        resume: bool = False,
        save_every: float = 60.0,
        progress: bool = True,
        callbacks: Callbacks = (),
        **explicit: Any,
    ) -> Self:
        """Draw thetas from their posterior given all tasks, from the start: an earlier fit is replaced.

        Args:
            tasks: tasks with a length (all their data are used, support and query set together), or examples (x, y)
                by name.
            resume: continue a fit that was stopped, from the store, with the same tasks and settings, bitwise as if it
                had not been stopped. Where none was stopped, this changes nothing.
            save_every: seconds between commits to the store, if there is one.
            progress: show a progress bar.
            callbacks: what is called after every round, which is an epoch here (``metaprior.callbacks``).
            explicit: settings of ``local="explicit"``, which raise. How theta is inferred is the constructor's
                ``theta``.
        """
        if explicit:
            raise TypeError(
                f"{', '.join(explicit)} must not be given with local={CLOSED_FORM!r}: local posteriors take no steps. "
                "Try theta=HMC(draws=..., trajectories=...) in the constructor"
            )
        fit = self._begun(tasks, resume, progress)
        self._take_rounds(fit, save_every, callbacks, progress)
        fit.finish()
        if lost := fit.settings.theta.draws - len(fit.theta.mean):
            count = f"{lost} of {fit.settings.theta.draws}"
            warnings.warn(f"{count} draws of theta have no finite evidence and were left out", stacklevel=2)
        self._fit = fit
        if self._folder is not None:
            _write(self._folder, fit)
            self.give_up()
        return self

    def _take_rounds(self, fit: CollapsedFit, save_every: float, callbacks: Callbacks, progress: bool) -> None:
        rounds, done, saved = fit.settings.theta.rounds, fit.state.rounds, time.monotonic()

        def fitted() -> CollapsedHierarchicalVI:
            other = copy.copy(self)
            other._fit = fit.finished()
            return other

        told = Fit(self, "theta", epochs=rounds, steps=rounds, fitted=fitted, unit="rounds", epoch=done, step=done)
        with Listeners(told, callbacks, progress=progress) as listeners:
            while fit.state.rounds < rounds and told.stopped is None:
                fit.run_round()
                listeners.after_step(fit.terms)
                listeners.after_epoch(fit.history[-1])
                if self._folder is not None and time.monotonic() - saved >= save_every:
                    _write(self._folder / STOPPED, fit)
                    saved = time.monotonic()

    def _begun(self, tasks: TaskData, resume: bool, progress: bool) -> CollapsedFit:
        """Return a new fit, or the stopped one that is resumed."""
        settings = self.settings
        checked = CheckedTasks(tasks, settings.network, settings.likelihood, progress=progress)
        stopped = None if self._folder is None or not _exists(self._folder / STOPPED) else self._folder / STOPPED
        if stopped is not None and not resume:
            raise CheckpointError(
                f"{self._folder} holds a fit that was stopped: resume=True continues it, give_up() deletes it"
            )
        checked.warn()
        if stopped is not None:
            fit = self._read(stopped)
            fit.refuse_other(settings, checked.entries)
        else:
            own = next(self.module.parameters())
            scale = checked.target_scale() if settings.standardize else TargetScale.identity(own)
            scale = TargetScale(*(part.to(own) for part in scale))  # forecasts have the type of the module
            fit = CollapsedFit.begin(settings, scale, checked)
        fit.losses = checked.losses
        return fit

    def adapt(  # type: ignore[override]
        self, support: Examples, steps: int | None = None, *, seed: int = 0, **explicit: Any
    ) -> CollapsedPosterior:
        """Return the exact posterior of a new task under every draw of theta; an empty support set gives the prior."""
        fit = self._fitted()
        if steps or explicit:
            raise TypeError(f"steps and the like must not be given with local={CLOSED_FORM!r}: adapting takes no steps")
        given = as_examples(support, "support")
        if not given.size:
            return fit.posterior(None)
        units = TargetUnits(fit.target_scale, True)
        x, y = PairChecker(self.network, self.likelihood)(*units.examples(given), "support")
        return fit.posterior(Examples(x, y), as_plain_tensor(given.y, "y").ndim < y.ndim)

    def prior_predictive(self) -> CollapsedPosterior:  # type: ignore[override]
        """Return the forecast for a new task before its first observation."""
        return self._fitted().posterior(None)

    def posterior(self, task: str) -> CollapsedPosterior:  # type: ignore[override]
        """Return the posterior of a task of the training, by its name."""
        fit, names = self._fitted(), self.task_names_
        if task not in names:
            first = ", ".join(map(repr, names[:5]))
            raise KeyError(f"no task is called {task!r}; the {len(names)} tasks are {first}, ...")
        return fit.posterior(fit.data[names.index(task)])

    @torch.no_grad()
    def elbo(self, tasks: TaskData | None = None, *, samples: int = 32, seed: int = 0) -> HierarchyTerms:
        """Return the bound of ``theta="variational"`` from ``samples`` draws of q, for the tasks of the training.

        The other ways have draws of theta and no density of them, so no bound.
        """
        fit = self._fitted()
        inference = fit.settings.theta
        if not isinstance(inference, Variational):
            raise TypeError(f"theta must be 'variational' for a bound on the evidence, got {inference!r}")
        z = Variational(draws=samples).thetas(fit.state, Noise(seed).fork("elbo"))
        return HierarchyTerms(-float(fit.log_evidence(z).mean()), 0.0, float(inference.kl(fit.state.tensors)))

    def give_up(self) -> Self:
        """Delete a stopped fit from the store."""
        if self._folder is not None:
            shutil.rmtree(self._folder / STOPPED, ignore_errors=True)
        return self

    def forget(self, task: str) -> NoReturn:
        """Raise: theta depends on all tasks."""
        raise TypeError(
            f"local={CLOSED_FORM!r} cannot forget {task!r} afterwards. Try fit(tasks) without it: it takes seconds"
        )

    @property
    def psi_(self) -> NoReturn:
        """Raise: there are draws of theta in place of psi."""
        raise AttributeError(f"local={CLOSED_FORM!r} has no psi_, but draws of theta: thetas_")

    @property
    def thetas_(self) -> Theta:
        """Return the draws of theta: the trunk's parameters, the prior of the last layer, and the noise."""
        return self._fitted().theta

    @property
    def acceptance_(self) -> Tensor | None:
        """Return the mean probability with which every chain accepted its trajectories; None without HMC."""
        return self._fitted().state.tensors.get("accepted")

    @property
    def history_(self) -> list[EpochRecord]:  # type: ignore[override]
        """Return the objective by round, a mean over draws."""
        return list(self._fitted().history)

    @property
    def task_names_(self) -> list[str]:
        """Return the names of the tasks that theta was inferred from."""
        return [entry.name for entry in self._fitted().entries]

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write draws of theta, and the data of the tasks, which their posteriors are computed from, to a folder."""
        _write(folder, self._fitted())

    @classmethod
    def load(
        cls,
        folder: str | os.PathLike[str],
        module: nn.Module | None = None,
        *,
        device: str | torch.device | None = None,
    ) -> Self:
        """Return what was saved. Networks of this package are rebuilt; for any other, give a module like the saved."""
        fit = CollapsedFit.read(folder, KIND, module)
        settings = fit.settings
        module = settings.network.module.to(fit.target_scale.loc.dtype) if module is None else module
        return cls(
            module,
            settings.likelihood,
            local=CLOSED_FORM,
            theta=settings.theta,
            hyperprior=settings.hyperprior,
            store=folder,
            standardize=settings.standardize,
            seed=settings.seed,
            device=device,
        )

    def _read(self, folder: Path) -> CollapsedFit:
        fit = CollapsedFit.read(folder, KIND, self._placed_module())
        with checkpoint.readable(folder):
            if fit.settings.likelihood != self.likelihood:
                raise CheckpointError(f"likelihood must be the saved {fit.settings.likelihood}, got {self.likelihood}")
        self.settings.network.constants = fit.settings.network.constants
        return fit

    def _status(self) -> str:
        if self._fit is None:
            return "not fitted"
        draws, way = len(self._fit.theta.mean), THETA.kind_of(self._fit.settings.theta)
        where = "" if self._folder is None else f", in {self._folder}"
        return f"{draws} draws of theta ({way}) from {len(self._fit.entries)} tasks{where}"

    def _fitted(self) -> CollapsedFit:  # type: ignore[override]
        if self._fit is None:
            raise self._not_fitted()
        return self._fit

    @property
    def _usual_steps(self) -> int:
        return 0


def _exists(folder: Path) -> bool:
    return (folder / checkpoint.DESCRIPTION).exists()


def _write(folder: str | os.PathLike[str], fit: CollapsedFit) -> None:
    tensors, description = fit.content()
    checkpoint.write(folder, KIND, tensors, {**description, "local": CLOSED_FORM}, beside=(STOPPED,))
