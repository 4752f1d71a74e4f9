"""What all methods have in common.

``Method(module, likelihood, ...)`` stores its arguments as they are and does nothing else: what is wrong with them is
raised by the first ``fit``. ``device`` is where the module is moved and everything is computed (None: where the
module is); data are moved there, NumPy arrays come back as such, and tensors stay on the device. Then

    method.fit(...) -> itself                 method.save(folder)
    method.predict(x) -> Forecast             Method.load(folder, module=None) -> Method
    method.evaluate(...) -> Evaluation        metaprior.load(folder, module=None) -> Method, whichever it is

and, for methods that learn from many tasks (``TaskMethod``),

    method.adapt(support) -> Predictive       method.prior_predictive() -> Predictive

Before ``fit`` all but ``fit`` and ``load`` raise ``NotFittedError``; numbers that leave the finite range raise
``TrainingDiverged``. ``history_`` is a list of ``EpochRecord``.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import cached_property
from inspect import signature
from typing import Any, Self, overload

import numpy.typing as npt
import torch
from torch import Tensor, nn

from metaprior.checks import ArrayLike, DataFrameLike, InputsLike, checked_device
from metaprior.errors import NotFittedError
from metaprior.evaluation import Adapt, Evaluation, evaluate
from metaprior.forecasts import Forecast
from metaprior.forecasts.numpy_forecast import NumpyForecast
from metaprior.history import EpochRecord
from metaprior.likelihoods import Likelihood
from metaprior.network import BayesianNetwork
from metaprior.posterior import DEFAULT_SAMPLES, Predictive
from metaprior.tasks.task import Examples, Task, Tasks


class Method(ABC):
    """The contract of all methods; see the text of this module."""

    module: nn.Module
    likelihood: Likelihood
    stochastic: str | None
    device: str | torch.device | None
    history_: list[EpochRecord]

    @cached_property
    def network(self) -> BayesianNetwork:
        """Return the module with the choice of its random parameters; raise for what cannot be made Bayesian."""
        return BayesianNetwork(self._placed_module(), self.stochastic)

    def _placed_module(self) -> nn.Module:
        """Return the module on the device that was given; raise for what is no module, no likelihood or no device."""
        if not isinstance(self.module, nn.Module):
            raise TypeError(f"module must be a torch.nn.Module, got {type(self.module).__name__}")
        if not isinstance(self.likelihood, Likelihood):
            raise TypeError(f"likelihood must be one like Gaussian() or Categorical(), got {self.likelihood!r}")
        return self.module if self.device is None else self.module.to(checked_device(self.device))

    @overload
    def predict(self, x: Tensor, *, samples: int = ..., seed: int = ...) -> Forecast: ...

    @overload
    def predict(self, x: npt.NDArray[Any] | DataFrameLike, *, samples: int = ..., seed: int = ...) -> NumpyForecast: ...

    @overload
    def predict(
        self, x: tuple[ArrayLike, ...] | Mapping[str, ArrayLike], *, samples: int = ..., seed: int = ...
    ) -> Any: ...

    def predict(self, x: InputsLike, *, samples: int = DEFAULT_SAMPLES, seed: int = 0) -> Forecast | NumpyForecast:
        """Return the forecast for inputs x: mean, std, epistemic, aleatoric, quantile(level), log_prob(y), ...

        A NumPy array gives a forecast in NumPy arrays, a tensor one in tensors; several inputs are a tuple or a
        dictionary, as in fit. ``std`` is the total standard deviation of a target, ``std**2 == epistemic**2 +
        aleatoric**2``. The same seed gives the same weight samples.
        """
        return self._predictive().predict(x, samples=samples, seed=seed)

    @abstractmethod
    def _predictive(self) -> Predictive:
        """Return what ``predict`` forecasts with."""

    @abstractmethod
    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write what was learned to a folder (safetensors and JSON)."""

    @classmethod
    @abstractmethod
    def load(
        cls,
        folder: str | os.PathLike[str],
        module: nn.Module | None = None,
        *,
        device: str | torch.device | None = None,
    ) -> Self:
        """Return what was saved. Networks of this package are rebuilt; for any other, give a module like the saved.

        ``device`` is as in the constructor; a network that is rebuilt is on the CPU without it, wherever it was fitted.
        """

    def _not_fitted(self, what: str = "fit(tasks)") -> NotFittedError:
        return NotFittedError(f"this {type(self).__name__} is not fitted yet: call {what} first, or load a saved one")


class TaskMethod(Method):
    """A method that learns a prior from many tasks, and adapts it to a new one."""

    examples_per_shot: int = 1

    @abstractmethod
    def prior_predictive(self) -> Predictive:
        """Return the prior as something that predicts: the forecast for a new task before its first observation."""

    @abstractmethod
    def adapt(self, support: Examples, steps: int | None = None, *, seed: int = 0) -> Predictive:
        """Return the posterior of a new task given its support set (x, y)."""

    @property
    @abstractmethod
    def _usual_steps(self) -> int:
        """Return the number of steps that ``adapt`` takes by default; 0 where adapting is not iterative."""

    def _predictive(self) -> Predictive:
        return self.prior_predictive()

    def evaluate(
        self,
        tasks: Iterable[Task] | Tasks | Mapping[str, Task],
        *,
        shots: Sequence[int | None] | None = (0, None),
        steps: Sequence[int] | None = None,
        samples: int = DEFAULT_SAMPLES,
        examples_per_shot: int | None = None,
        progress: bool = True,
        **adaptation: Any,
    ) -> Evaluation:
        """Score forecasts of new tasks' query sets, before and after adaptation.

        The processes of ``with team_of_torchrun():`` share the tasks; all get the result, which is bitwise that of one
        process.

        Args:
            tasks: new tasks, a collection or a source with a length, or tasks by name.
            shots: numbers of shots to adapt to, the first examples of each support set; 0 scores the prior, None takes
                all. ``shots=None`` takes 0, 1, 2, 5, 10, ... as far as support sets go, and all.
            steps: numbers of adaptation steps; None takes the default of ``adapt``.
            samples: weight samples of a forecast.
            examples_per_shot: support examples that make one shot (for C classes that take turns: C); None takes that
                of the learner.
            progress: show a progress bar.
            adaptation: other arguments of ``adapt``.
        """
        self._refuse_unknown(adaptation)
        return evaluate(
            self._adapted(**adaptation),
            tasks,
            shots=shots,
            steps=[self._usual_steps] if steps is None else steps,
            samples=samples,
            examples_per_shot=self._shot_size(examples_per_shot),
            present=self.likelihood.present,
            progress=progress,
        )

    def _shot_size(self, examples_per_shot: int | None) -> int:
        return self.examples_per_shot if examples_per_shot is None else examples_per_shot

    def _refuse_unknown(self, adaptation: Mapping[str, Any]) -> None:
        """Raise TypeError for an argument of ``evaluate`` that neither it nor ``adapt`` knows."""
        own = [name for name, one in signature(TaskMethod.evaluate).parameters.items() if one.kind == one.KEYWORD_ONLY]
        others = [name for name, one in signature(self.adapt).parameters.items() if one.kind == one.KEYWORD_ONLY]
        for name in adaptation.keys() - {*others}:
            close = get_close_matches(name, [*own, *others], n=1)
            hint = f" Try {close[0]}=...." if close else ""
            valid = f"{', '.join(own)}, or arguments of adapt ({', '.join(others)})"
            raise TypeError(f"evaluate must be given {valid}, got {name!r}.{hint}")

    def _adapted(self, **adaptation: Any) -> Adapt:
        """Return the function from support examples and steps to a posterior, as ``evaluate`` asks for it."""
        usual = self._usual_steps

        def adapted(support: Examples | None, count: int) -> Predictive:
            if support is None:
                return self.prior_predictive()
            return self.adapt(support, None if count == usual else count, **adaptation)

        return adapted
