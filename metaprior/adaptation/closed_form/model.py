r"""The closed form as a task model: one pass of the trunk over all rows, then batched linear algebra.

Objectives, for a task with support set S and query set Q:

- ``predictive``: $-\frac{1}{N_Q}\sum_n \log \sum_k (\pi_k|S)\, p(y_n | x_n, S, k)$, the score of the forecast that will
  be made (``CRPSGaussian``: its weighted CRPS);
- ``evidence``: $-\frac1N \log p(S, Q | \theta)$ with $N = N_S + N_Q$, which by the chain rule is the score of forecasts
  from every number of examples.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from metaprior import checks
from metaprior.adaptation.autograd import AutogradModel
from metaprior.adaptation.closed_form import parameters
from metaprior.adaptation.closed_form.head import Head
from metaprior.adaptation.closed_form.rows import Rows, joined, stacked
from metaprior.adaptation.closed_form.settings import ClosedForm
from metaprior.adaptation.closed_form.targets import Adapted, Numbers, targets_of
from metaprior.adaptation.task_model import MEANS, SCALES, Binding, Start
from metaprior.forecasts import Forecast, concatenated
from metaprior.inputs import Inputs, call, copied, rows_of, split
from metaprior.likelihoods import CRPSGaussian, Likelihood
from metaprior.metagrad.finite import damage, first_non_finite
from metaprior.metagrad.problem import NonFinite
from metaprior.network import BayesianNetwork, evaluation_mode
from metaprior.noise import Noise
from metaprior.posterior import NUMBERS_AT_ONCE, Predictive
from metaprior.scaling import TargetScale
from metaprior.tasks.task import UNNAMED, Examples, Task, all_examples
from metaprior.team import current_team
from metaprior.weights import PLAIN, WeightDistribution

OBJECTIVES = ("predictive", "evidence")
FIRST_NOISE = 0.3
"""First noise scale as a share of the targets' root mean square: the rest is expected to be explained."""
LOOKED_AT = 8
"""Tasks that the prior's first standard deviation is fitted to."""
TASK_SHARE = 0.1
"""The share of a trained network's squared errors that is expected to differ between tasks; the rest is noise."""
FIRST_TEMPERATURE = 0.01
"""First value of tau for images, if it is learned."""


def bind(settings: ClosedForm, binding: Binding) -> "ClosedFormModel":
    """Return the task model of a closed form; raise for arguments that cannot work together."""
    return ClosedFormModel(settings, binding.network, binding.likelihood, binding.objective_name(OBJECTIVES))


class ClosedFormModel(AutogradModel):
    """A trunk, and the exact posterior of the last layer's weights."""

    advice: ClassVar[str] = "a smaller lr, inputs of a common scale, fewer components, a rank below the features"

    def __init__(self, settings: ClosedForm, network: BayesianNetwork, likelihood: Likelihood, objective: str) -> None:
        self.settings, self.network, self.likelihood, self.objective = settings, network, likelihood, objective
        self.head = Head.of(network, settings.head)
        self.targets = targets_of(likelihood, self.head, shared_classes=settings.labels == "arbitrary")
        self._images, numbers = isinstance(self.head.layer, torch.nn.Conv2d), isinstance(self.targets, Numbers)
        self._components = settings.components_of(numbers=numbers, images=self._images)
        self._log_temperature = settings.log_temperature(images=self._images and objective == "predictive")
        if settings.component_noise and not numbers:
            raise ValueError(
                "component_noise must be False with labels, which have no noise scale of their own, got True with "
                f"{type(likelihood).__name__}"
            )
        if objective == "evidence":
            self._check_evidence()

    def _check_evidence(self) -> None:
        if not isinstance(self.targets, Numbers) or isinstance(self.likelihood, CRPSGaussian):
            raise ValueError(
                "objective='evidence' must have a Gaussian likelihood, because labels and the CRPS have no evidence in "
                f"closed form, got {type(self.likelihood).__name__}. Try objective='predictive'."
            )
        if self._log_temperature is None:
            raise ValueError(
                "objective='evidence' must have a fixed temperature, because a tempered evidence does not score it, "
                "got 'learned'. Try objective='predictive'."
            )

    # --- theta ------------------------------------------------------------------------------------------------------

    def initial(self, targets: Tensor, relative_sigma: float = 0.1) -> WeightDistribution:
        """Return a first theta: the module's values, a wide prior around its last layer, a noise scale."""
        own, weights = self.network.initial(), self.targets.first_weights
        trunk = {name: value for name, value in own.plain.items() if name not in self.head.own_names}
        rank, components = self.settings.rank_of(self.head.size), self._components
        plain = {**trunk, **parameters.initial(weights, components, rank), **self.targets.initial()}
        if self.settings.component_noise:
            plain[parameters.LOG_NOISE] = weights.new_zeros(components)
        if self._log_temperature is None:
            plain[parameters.LOG_TEMPERATURE] = weights.new_full(
                (), math.log(FIRST_TEMPERATURE) if self._images else 0.0
            )
        noise = self.likelihood.initial_parameters(FIRST_NOISE * targets.to(own.mu))
        return own.replace(plain={**plain, **noise})

    def groups(self, theta: WeightDistribution) -> dict[str, list[str]]:
        """Return trunk, prior means and rows of scales as means, and everything else about the prior as scales."""
        found = super().groups(theta)
        means = {PLAIN + name for name in (parameters.MEAN, parameters.RAW_SCALES)}
        scales = [name for name in found[MEANS] if name.startswith(f"{PLAIN}head.") and name not in means]
        scales = [name for name in scales if name.removeprefix(PLAIN) not in self.network.plain_names]
        return {
            MEANS: [name for name in found[MEANS] if name not in scales],
            SCALES: [*scales, *found[SCALES]],
        }

    def begin(self, theta: WeightDistribution, start: Start) -> WeightDistribution:
        """Return theta with a prior whose outputs vary as much as the first tasks' targets do around its mean.

        Around the mean of a trained network they vary by a share of that.
        """
        if start.warm_started:
            return theta  # which has learned it
        tasks, _ = start.first_tasks(LOOKED_AT)
        sums = torch.zeros(2, dtype=torch.float64, device=self.network.device)
        with torch.no_grad():
            for task in (own for own in tasks if damage(own) is None):
                plain = self.given(theta, [task.support])
                sums += self.targets.variances(plain, self._rows(plain, task.query))
        current_team().sum_([sums])
        wanted, there = sums.tolist()
        if not (math.isfinite(wanted) and math.isfinite(there) and wanted > 0 and there > 0):
            return theta
        share = TASK_SHARE if start.trained else 1.0
        return theta.replace(plain=parameters.rescaled(theta.plain, math.sqrt(share * wanted / there)))

    # --- losses -----------------------------------------------------------------------------------------------------

    def check(self, task: Task) -> Task:
        """Return the task in the types that ``losses`` trusts; raise if the last layer is not what comes last."""
        checked, plain = super().check(task), self.network.initial().plain
        two = checked.query.first(2).x
        self.head.check(plain, two)
        self.targets.check_outputs(call(self.network.module, copied(two)))
        return checked

    def given(
        self, theta: WeightDistribution, supports: Sequence[Examples], sizes: Sequence[int] | None = None
    ) -> Mapping[str, Tensor]:
        """Return the plain parameters for ``sizes`` rows of each task, or for any rows of a single one.

        A network that reads support sets, such as one with a context, adds what it read.
        """
        return theta.plain

    def losses(self, theta: WeightDistribution, tasks: Sequence[Task]) -> Tensor:
        """Return the objective of every task, with one pass of the trunk over all rows."""
        supports = [task.support for task in tasks]
        sizes = [size for task in tasks for size in (task.support.size, task.query.size)]
        plain = self.given(theta, supports, [task.support.size + task.query.size for task in tasks])
        together = all_examples([part for task in tasks for part in (task.support, task.query)])
        rows = self._rows(plain, together).groups(sizes)
        support, query = stacked(rows[::2]), stacked(rows[1::2])
        if self.objective == "evidence":
            both = joined(support, query)
            evidence = self._adapted(plain, both).head.log_marginal
            return -evidence / _observations(both)
        scores = self.targets.log_scores(plain, self._adapted(plain, support), query)
        return -scores.sum(-1) / _observations(query)

    def pooled_loss(self, theta: WeightDistribution, x: Any, y: Tensor) -> Tensor:
        """Return minus the summed log score of the forecasts of new tasks, before any example."""
        examples = Examples(x, y)
        plain = self.given(theta, [examples.first(0)])
        rows = self._rows(plain, examples)
        return -self.targets.log_scores(plain, self._adapted(plain, rows.groups([0, examples.size])[0]), rows).sum()

    def _rows(self, plain: Mapping[str, Tensor], examples: Examples) -> Rows:
        """Return the rows of examples of one task or of several, one after the other."""
        if not examples.size:  # not every module takes none
            features, centre, targets = (
                self.head.weights.new_zeros(0, 1, n) for n in (self.head.size, self.targets.outputs, 1)
            )
            return Rows(features, centre, features.new_ones(()), targets, targets > 0)
        found = self.head.split(plain, examples.x)
        return Rows(found.features, *self.targets.centre_and_scale(plain, found), *self.targets.codes(examples.y))

    def _adapted(self, plain: Mapping[str, Tensor], support: Rows) -> Adapted:
        fixed = self._log_temperature
        log_temperature = plain[parameters.LOG_TEMPERATURE] if fixed is None else support.features.new_tensor(fixed)
        return self.targets.adapt(plain, support.flat(), log_temperature.exp())

    # --- adapting ---------------------------------------------------------------------------------------------------

    def adapt(
        self, theta: WeightDistribution, support: Examples, noise: Noise, steps: int | None = None
    ) -> "ClosedFormPosterior | NonFinite":
        """Return the exact posterior given a support set."""
        if steps is not None:
            raise ValueError(f"steps must be None with a closed form, which takes none, got {steps}")
        theta = theta.detached()
        with torch.no_grad(), evaluation_mode(self.network.module):
            plain = self.given(theta, [support])
            adapted = self._adapted(plain, self._rows(plain, support))
        numbers = {"posterior mean": adapted.head.coefficients, "evidence": adapted.head.log_evidence}
        if failure := first_non_finite(numbers, UNNAMED, "outer"):
            return failure
        scale = TargetScale.identity(theta.mu)
        return ClosedFormPosterior(self.network, self, plain, adapted, target_scale=scale)

    def prior(self, theta: WeightDistribution) -> "ClosedFormPosterior":
        """Return the forecast of a new task: the posterior given no examples."""
        x, y = (torch.zeros(0, 1, dtype=self.network.dtype, device=self.network.device) for _ in range(2))
        found = self.adapt(theta, Examples(x, y), Noise(0))
        if isinstance(found, NonFinite):
            found.or_raise()
        return found


def _observations(rows: Rows) -> Tensor:
    """Return the number of observations of each task that have a target, at least one."""
    return rows.present.flatten(-2).any(-1).sum(-1).clamp_min(1)


@dataclass(frozen=True, repr=False)
class ClosedFormPosterior(Predictive):
    """The posterior of the last layer for one task; its forecast is exact, and needs no samples."""

    model: ClosedFormModel
    plain: Mapping[str, Tensor]
    adapted: Adapted

    def _facts(self) -> list[str]:
        return [type(self.model.likelihood).__name__, "exact posterior of the last layer"]

    def network_forecast(self, inputs: Inputs, samples: int, seed: int, batch_size: int | None) -> Forecast:
        """Return the exact forecast; ``samples`` and ``seed`` play no part."""
        size = batch_size or self._affordable(inputs)
        with torch.no_grad(), evaluation_mode(self.network.module):
            parts = [self._part(part) for part in split(inputs, size)]
        return concatenated(parts)

    def _part(self, inputs: Inputs) -> Forecast:
        model = self.model
        found = model.head.split(self.plain, inputs)
        rows = Rows(found.features, *model.targets.centre_and_scale(self.plain, found))
        remedy = "look for inputs far outside of the training data"
        checks.refuse_non_finite(rows.features, "the network's output", remedy=remedy)
        return model.targets.forecast(self.plain, self.adapted, rows, found.offset)

    def _affordable(self, inputs: Inputs) -> int:
        """Return how many observations are computed together: trunk, and whitened features of all components."""
        trunk = self.network.numbers_per_observation(self.network.initial(), inputs)  # raises for unfitting inputs
        with torch.no_grad(), evaluation_mode(self.network.module):
            positions = self.model.head.split(self.plain, rows_of(inputs, slice(1))).features.shape[1]
        return max(1, NUMBERS_AT_ONCE // (trunk + positions * self.adapted.head.prior.factor[..., 0, :].numel()))
