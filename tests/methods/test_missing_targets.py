"""Missing targets in every method and every likelihood, against dropping them by hand, in float64."""

import math
import warnings
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import metaprior as mp
from metaprior.hierarchy.hyper_posterior import HyperPosterior
from metaprior.likelihoods import Likelihood
from metaprior.network import BayesianNetwork
from metaprior.noise import Noise
from metaprior.stack_descent import DescentPlan, FreeEnergy, SharedParameters, Stack, StackDescent, new_record, visit
from metaprior.weights import WeightDistribution
from tests.masked_by_hand import LIKELIHOODS, ByHand, some_gone, with_holes, with_weights

NOTE = "targets are missing and were left out"
METHODS = ("BayesByBackprop", "MetaLearner", "HierarchicalVI")
COMBINED = "Context and Descent"
DROPPED = torch.tensor([False, True, False, False, True, False])
"""Observations of every set that have no target at all."""


class Pixels(nn.Module):
    """Inputs (N, 3) to outputs (N, channels, 2), so that labels too have two targets an observation."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.hidden, self.head = nn.Linear(3, 4), nn.Linear(4, 2 * channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.hidden(x).tanh()).unflatten(1, (-1, 2))


class Encoder(nn.Module):
    """Reads targets that are zeros where they are missing, or pairs of a number and its weight."""

    def __init__(self, *, pairs: bool) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.layer, self.pairs = nn.Linear(4, 5), pairs

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        values = y.prod(-1) if self.pairs else y.masked_fill(y == -100, 0)
        outputs: Tensor = self.layer(torch.cat([x, values.to(x).flatten(1).sum(1, keepdim=True)], 1))
        return outputs.tanh()


def module_for(kind: str) -> nn.Module:
    torch.manual_seed(0)
    return Pixels(4 if kind in ("heteroscedastic", "crps") else 2).double()


def examples(kind: str, seed: int) -> mp.Examples:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(6, 3, dtype=torch.float64, generator=generator)
    values = x[:, :2, None] + torch.randn(6, 2, 2, dtype=torch.float64, generator=generator)
    kinds = {"categorical": lambda: (values[:, 0] > 0).long(), "bernoulli": lambda: (values > 0).double()}
    return mp.Examples(x, kinds.get(kind, lambda: values)())


def learned(method: str, kind: str, likelihood: Likelihood, sets: list[mp.Examples], folder: Path, **other: Any) -> Any:
    """Return a fit to pairs of sets (Bayes by Backprop: to the first set)."""
    module, tasks = module_for(kind), [mp.Task(sets[i], sets[i + 1], f"t{i}") for i in range(0, len(sets), 2)]
    quiet: dict[str, Any] = {"progress": False, **other}
    if method == "BayesByBackprop":
        return mp.BayesByBackprop(module, likelihood, standardize=False).fit(*sets[0], epochs=3, batch_size=4, **quiet)
    if method in ("MetaLearner", COMBINED):
        adaptation: Any = mp.Descent(steps=2, lr=0.01, learn_lr="per_tensor")
        if method == COMBINED:
            adaptation += mp.Context(5, encoder=Encoder(pairs=isinstance(likelihood, ByHand)))
        learner = mp.MetaLearner(module, likelihood, adaptation=adaptation, objective="abml", standardize=False)
        return learner.fit(tasks, warm_start=2, epochs=1, tasks_per_epoch=4, meta_batch=2, grad_clip_norm=10.0, **quiet)
    hierarchy = mp.HierarchicalVI(module, likelihood, store=folder, standardize=False)
    return hierarchy.fit(tasks, epochs=2, batch_size=4, **quiet)


def weights(fit: Any) -> dict[str, Tensor]:
    """Return everything that was learned, by name."""
    if isinstance(fit, mp.MetaLearner):
        return fit.theta_.named()
    if isinstance(fit, mp.BayesByBackprop):
        return fit.posterior_.weights.named()
    found: list[WeightDistribution] = [fit.posterior(name).weights for name in fit.task_names_]
    return {f"{name} {number}": value for number, one in enumerate(found) for name, value in one.named().items()}


@pytest.mark.parametrize("kind", LIKELIHOODS)
@pytest.mark.parametrize("method", [*METHODS, COMBINED])
def test_observations_without_a_target_are_dropped_exactly(method: str, kind: str, tmp_path: Path) -> None:
    likelihood, whole = LIKELIHOODS[kind], [examples(kind, seed) for seed in range(4)]
    holes = [mp.Examples(x, with_holes(y, DROPPED.reshape(-1, *[1] * (y.ndim - 1)).expand(y.shape))) for x, y in whole]
    dropped = [part.rows(~DROPPED) for part in whole]
    with pytest.warns(UserWarning, match=NOTE):
        found = learned(method, kind, likelihood, holes, tmp_path / "holes")
    expected = learned(method, kind, likelihood, dropped, tmp_path / "dropped")
    assert weights(found).keys() == weights(expected).keys()
    for name, value in weights(expected).items():
        assert torch.equal(weights(found)[name], value), name
    assert [record.loss for record in found.history_] == [record.loss for record in expected.history_]
    width = whole[0].y[0].numel()
    seen = {"BayesByBackprop": 1, "HierarchicalVI": 4}.get(method, 8)  # sets in an epoch
    assert found.history_[-1].missing == seen * 2 * width
    assert expected.history_[-1].missing == 0


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        *product(METHODS[:2], LIKELIHOODS),
        *((COMBINED, kind) for kind in LIKELIHOODS if kind != "gaussian"),  # whose noise reads the context, not by hand
    ],
)
def test_single_missing_targets_have_no_weight(method: str, kind: str, tmp_path: Path) -> None:
    likelihood, whole = LIKELIHOODS[kind], [examples(kind, seed) for seed in range(4)]
    gone = [some_gone(part.y) for part in whole]
    holes, by_hand = (
        [mp.Examples(x, how(y, own)) for (x, y), own in zip(whole, gone, strict=True)]
        for how in (with_holes, with_weights)
    )
    with pytest.warns(UserWarning, match=NOTE):
        found = learned(method, kind, likelihood, holes, tmp_path / "holes")
    expected = learned(method, kind, ByHand(likelihood), by_hand, tmp_path / "by hand")
    for name, value in weights(expected).items():
        torch.testing.assert_close(weights(found)[name], value, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("kind", LIKELIHOODS)
def test_posteriors_of_a_hierarchy_give_single_missing_targets_no_weight(kind: str) -> None:
    """A stack of two tasks, the second without missing targets, with the noise scale that they share."""
    network, whole = BayesianNetwork(module_for(kind)), [examples(kind, seed) for seed in range(2)]
    gone = [some_gone(whole[0].y), torch.zeros_like(whole[1].y, dtype=torch.bool)]
    results = []
    for likelihood, how in ((LIKELIHOODS[kind], with_holes), (ByHand(LIKELIHOODS[kind]), with_weights)):
        data = [mp.Examples(x, how(y, own)) for (x, y), own in zip(whole, gone, strict=True)]
        start = network.initial()
        shared = SharedParameters(likelihood.initial_parameters(torch.cat([part.y for part in data])))
        stack = Stack(["a", "b"], [0, 1], new_record(start).repeat(2, 1, 1), 0, data)
        prior, plan = HyperPosterior.around(start), DescentPlan(3, batch_size=4)
        descent = StackDescent(FreeEnergy(network, likelihood), stack, prior, shared, plan, Noise())
        records, terms = visit(descent, range(3), shared_lr=True)
        results.append([records, terms.nll, terms.kl, *shared.detached().values()])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("method", METHODS)
def test_units_are_those_of_the_targets_that_are_there(method: str, tmp_path: Path) -> None:
    """Standardised, saved, loaded, adapted and evaluated with missing targets."""
    torch.manual_seed(0)
    module = mp.MLP(3, [4], 2).double()
    sets = [mp.Examples(x, 50 + 7 * y[:, :, 0]) for x, y in (examples("gaussian", seed) for seed in range(4))]
    for _, y in sets:
        y[1], y[2, 0] = math.nan, math.nan
    tasks = [mp.Task(*sets[:2], "a"), mp.Task(*sets[2:], "b")]
    fits: dict[str, Callable[[], Any]] = {
        "BayesByBackprop": lambda: mp.BayesByBackprop(module, mp.Gaussian()).fit(
            *sets[0], epochs=2, validation=sets[1], progress=False
        ),
        "MetaLearner": lambda: mp.MetaLearner(module, mp.Gaussian()).fit(
            tasks, epochs=1, tasks_per_epoch=4, progress=False
        ),
        "HierarchicalVI": lambda: mp.HierarchicalVI(module, mp.Gaussian(), store=tmp_path / "store").fit(
            tasks, epochs=1, progress=False
        ),
    }
    with pytest.warns(UserWarning, match=NOTE):
        fit = fits[method]()
    scale = fit.prior_predictive().target_scale if method != "BayesByBackprop" else fit.posterior_.target_scale
    used = sets[:1] if method == "BayesByBackprop" else sets
    y = torch.cat([part.y for part in used])
    columns = [column[~column.isnan()] for column in y.T]
    torch.testing.assert_close(scale.loc, torch.stack([column.mean() for column in columns]))
    torch.testing.assert_close(scale.scale, torch.stack([column.std(correction=0) for column in columns]))
    fit.save(tmp_path / "saved")
    loaded = mp.load(tmp_path / "saved")
    assert loaded.history_[-1].missing == fit.history_[-1].missing > 0
    if method == "BayesByBackprop":
        assert fit.evaluate(*sets[1]).rows[0]["missing"] == 3
        return
    kept = tasks[0].support.rows(torch.tensor([0, 2, 3, 4, 5]))
    one, other = (fit.adapt(support, 3).predict(sets[0].x).mean for support in (tasks[0].support, kept))
    assert torch.equal(one, other)
    rows = fit.evaluate(tasks, steps=[2], progress=False).rows
    assert [(row["missing"], row["support"]) for row in rows] == [(6, 0), (6, 5)]


def test_an_own_loop_and_its_losses_leave_missing_targets_out() -> None:
    kind = "gaussian"
    sets = [examples(kind, seed) for seed in range(2)]
    gone = [some_gone(part.y) for part in sets]
    learners = []
    for likelihood, how in ((mp.Gaussian(), with_holes), (ByHand(mp.Gaussian()), with_weights)):
        task = mp.Task(*(mp.Examples(x, how(y, own)) for (x, y), own in zip(sets, gone, strict=True)), "t")
        learner = mp.MetaLearner(module_for(kind), likelihood, standardize=False).start([task])
        inner = learner.inner_loop_loss(learner.prior_predictive(), task.support)
        outer = learner.outer_loop_loss(learner.prior_predictive(), task)
        optimizer = torch.optim.SGD(learner.parameters(), lr=1e-3)
        if how is with_holes:
            with pytest.warns(UserWarning, match=f"16 of 48 {NOTE}"):
                record = mp.meta_train_one_epoch(learner, [task], optimizer, progress=False)
            assert record.missing == 16
        else:
            mp.meta_train_one_epoch(learner, [task], optimizer, progress=False)
        learners.append([inner.total, outer.total, *(value.detach() for value in learner.theta_.tensors())])
    for one, other in zip(*learners, strict=True):
        torch.testing.assert_close(one, other)


def test_data_without_any_target_are_refused() -> None:
    x, y = examples("gaussian", 0)
    with pytest.raises(ValueError, match="y must hold at least one target, got 24, of which all are missing"):
        mp.BayesByBackprop(module_for("gaussian"), mp.Gaussian()).fit(x, y * math.nan, progress=False)


def closed_form(likelihood: Likelihood, sets: list[mp.Examples], outputs: int, objective: str) -> mp.MetaLearner:
    torch.manual_seed(0)
    module, one = mp.MLP(3, [4], outputs).double(), mp.ClosedForm(components=1)
    learner = mp.MetaLearner(module, likelihood, adaptation=one, objective=objective, standardize=False)
    return learner.fit([mp.Task(*sets[:2], "a"), mp.Task(*sets[2:], "b")], epochs=1, tasks_per_epoch=4, progress=False)


@pytest.mark.parametrize(
    ("kind", "objective"),
    [
        *((kind, "predictive") for kind in ("gaussian", "heteroscedastic", "categorical", "bernoulli")),
        ("gaussian", "evidence"),
        ("heteroscedastic", "evidence"),
    ],
)
def test_the_closed_form_drops_observations_and_single_targets(kind: str, objective: str) -> None:
    """With one component outputs are independent: each has the posterior of observations that have a target of it."""
    likelihood, outputs = LIKELIHOODS[kind], 4 if kind == "heteroscedastic" else 2
    whole = [mp.Examples(part.x, part.y[..., 0]) for part in (examples(kind, seed) for seed in range(4))]
    holes = [mp.Examples(x, with_holes(y, DROPPED if y.ndim == 1 else DROPPED[:, None])) for x, y in whole]
    with pytest.warns(UserWarning, match=NOTE):
        found = closed_form(likelihood, holes, outputs, objective)
    expected = closed_form(likelihood, [part.rows(~DROPPED) for part in whole], outputs, objective)
    for name, value in expected.theta_.named().items():
        assert torch.equal(found.theta_.named()[name], value), name
    if kind not in ("gaussian", "heteroscedastic"):
        return
    x, y = whole[0]
    gone = some_gone(y)
    masked = expected.adapt(mp.Examples(x, with_holes(y, gone))).predict(whole[1].x)
    for output in range(2):
        alone = expected.adapt(mp.Examples(x[~gone[:, output]], y[~gone[:, output]])).predict(whole[1].x)
        torch.testing.assert_close(masked.mean[:, output], alone.mean[:, output], rtol=1e-7, atol=1e-9)
        torch.testing.assert_close(masked.std[:, output], alone.std[:, output], rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(
    "adaptation", [mp.Descent(steps=2), mp.ClosedForm(), mp.Context(), mp.Context() + mp.ClosedForm()], ids=str
)
def test_every_adaptation_takes_supports_without_targets_and_skips_queries_without(adaptation: Any) -> None:
    sets = [mp.Examples(x, y[..., 0]) for x, y in (examples("gaussian", seed) for seed in range(4))]
    holes, gone = mp.Examples(sets[2].x, sets[2].y * math.nan), some_gone(sets[3].y)
    tasks = [
        mp.Task(holes, sets[0], "no support"),
        mp.Task(sets[0], holes, "no query"),
        mp.Task(sets[1], mp.Examples(sets[3].x, with_holes(sets[3].y, gone)), "some"),
    ]

    def fit(own: list[mp.Task]) -> mp.MetaLearner:
        torch.manual_seed(0)
        learner = mp.MetaLearner(mp.MLP(3, [4], 2).double(), mp.Gaussian(), adaptation=adaptation, standardize=False)
        return learner.fit(own, epochs=1, tasks_per_epoch=6, meta_batch=3, progress=False)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        learner = fit(tasks)
    said = " ".join(str(warning.message) for warning in caught)
    assert NOTE in said
    assert "degrees of freedom" not in said
    assert "no query: all targets of its query set are missing" in said
    assert learner.history_[-1].bad_tasks == 2
    x = sets[0].x
    torch.testing.assert_close(
        learner.adapt(holes).predict(x).mean, learner.prior_predictive().predict(x).mean, rtol=1e-9, atol=1e-11
    )
    found = learner.evaluate(tasks, shots=(None,), progress=False)
    assert [failure.task for failure in found.failures] == ["no query"]
    assert found.row()["missing"] == int(gone.sum())


def test_the_collapsed_hierarchy_leaves_missing_targets_out() -> None:
    sets = [mp.Examples(x[:, :1], y[:, 0, 0]) for x, y in (examples("gaussian", seed) for seed in range(2))]
    holes = [mp.Examples(x, with_holes(y, DROPPED)) for x, y in sets]

    def fit(own: list[mp.Examples]) -> Any:
        torch.manual_seed(0)
        hierarchy = mp.HierarchicalVI(
            mp.MLP(1, [3], 1).double(), mp.Gaussian(), local="closed_form", theta="anchored", standardize=False
        )
        return hierarchy.fit({f"t{i}": part for i, part in enumerate(own)}, progress=False)

    with pytest.warns(UserWarning, match=f"4 of 12 {NOTE}"):
        found = fit(holes)
    expected = fit([part.rows(~DROPPED) for part in sets])
    one, other = (each.adapt(holes[0]).predict(sets[1].x).mean for each in (found, expected))
    assert torch.equal(one, other)
    none = mp.Examples(sets[0].x, sets[0].y * math.nan)
    without, prior = found.adapt(none).predict(sets[1].x), found.prior_predictive().predict(sets[1].x)
    torch.testing.assert_close(without.mean.flatten(), prior.mean.flatten())
