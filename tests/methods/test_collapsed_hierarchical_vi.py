"""``HierarchicalVI(local="closed_form")``: known answers, the contract of all methods, the store, and errors."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import metaprior as mp
from metaprior.hierarchy.collapsed import TaskStack
from metaprior.hierarchy.collapsed_fit import CollapsedFit
from metaprior.methods.collapsed_hierarchical_vi import CollapsedHierarchicalVI

FAST = mp.HMC(draws=4, trajectories=3, leapfrog=3, anchored_steps=20)
X_NEW = torch.linspace(-1, 1, 5, dtype=torch.float64)[:, None]
Data = dict[str, tuple[Tensor, Tensor]]


def waves(count: int = 3, outputs: int = 1, unit: float = 1.0) -> Data:
    made = {}
    for number in range(count):
        generator = torch.Generator().manual_seed(number)
        x = torch.randn(4 + number, 1, dtype=torch.float64, generator=generator)
        y = torch.cat([(x + number + c).sin() for c in range(outputs)], 1)
        made[f"wave {number}"] = (x, unit * (y + 2))
    return made


def mlp(outputs: int = 1) -> nn.Module:
    torch.manual_seed(0)
    return mp.MLP(1, [4], outputs, activation="tanh").double()


def inference(**settings: Any) -> Any:
    given: dict[str, Any] = {"module": mlp(), "likelihood": mp.Gaussian(), "theta": FAST, **settings}
    return mp.HierarchicalVI(given.pop("module"), given.pop("likelihood"), local="closed_form", **given)


def fitted(data: Data | None = None, **settings: Any) -> Any:
    return inference(**settings).fit(waves() if data is None else data, progress=False)


def same_forecast(one: Any, other: Any) -> bool:
    pairs = [(p.predict(X_NEW).means, p.predict(X_NEW).scales) for p in (one, other)]
    return all(map(torch.equal, *pairs))


def test_few_tasks_of_a_linear_model_agree_with_brute_force() -> None:
    """One weight, three tasks: 200 chains against 50,000 draws of the prior, weighted by the evidence."""
    generator = torch.Generator().manual_seed(1)
    normal = lambda *shape: torch.randn(*shape, dtype=torch.float64, generator=generator)  # noqa: E731
    x = [normal(3, 1) for _ in range(3)]
    data = {f"{i}": (one, (0.7 + 0.5 * i) * one + 0.3 * normal(3, 1)) for i, one in enumerate(x)}
    hvi = fitted(
        data,
        module=nn.Linear(1, 1, bias=False, dtype=torch.float64),
        likelihood=mp.Gaussian(noise=0.3),
        theta=mp.HMC(draws=200, trajectories=20, leapfrog=10, anchored_steps=50),
        hyperprior=mp.CollapsedHyperprior(rank=1),
        standardize=False,
    )
    fit: CollapsedFit = hvi._fitted()
    z = torch.randn(50_000, fit.model.whitening.dimension, dtype=torch.float64, generator=generator)
    weights = torch.cat([fit.log_evidence(part) for part in z.split(10_000)]).softmax(0)
    assert 1 / float(weights.square().sum()) > 1000  # effective draws
    support = mp.Examples(normal(1, 1) + 1, normal(1, 1))
    theta = fit.model.whitening.theta(z)
    head = fit.model.posterior(theta, TaskStack.of([support]))
    mean, variance = (value[:, 0, :, 0, 0] for value in head.predict(torch.ones(1, 1, dtype=torch.float64)))
    weights = weights[:, None] * head.log_weights[:, 0].exp()
    expected = (weights * mean).sum()
    total = (weights * (variance + 0.3**2 + (mean - expected) ** 2)).sum()
    forecast = hvi.adapt(support).predict(torch.ones(1, 1, dtype=torch.float64))
    assert float(forecast.mean) == pytest.approx(float(expected), abs=0.15 * float(total) ** 0.5)
    assert float(forecast.std) == pytest.approx(float(total) ** 0.5, rel=0.1)


@pytest.mark.parametrize("theta", ["hmc", "anchored", "variational", "prior"])
def test_every_way_predicts_before_and_after_data(theta: str) -> None:
    short = {"hmc": FAST, "anchored": mp.Anchored(4, 20), "variational": mp.Variational(4, 20, 2), "prior": "prior"}
    hvi = fitted(theta=short[theta])
    assert isinstance(hvi, CollapsedHierarchicalVI)
    prior, task = hvi.prior_predictive().predict(X_NEW), hvi.posterior("wave 1").predict(X_NEW)
    assert float(task.parts["task"].mean()) < float(prior.parts["task"].mean())
    for forecast in (prior, task, hvi.predict(X_NEW)):
        squares = sum(part.square() for part in forecast.parts.values())
        torch.testing.assert_close(squares.sqrt(), forecast.std)
        torch.testing.assert_close(forecast.std**2, forecast.epistemic**2 + forecast.aleatoric**2)
    rows = hvi.evaluate(
        [mp.Task(pair, pair, name) for name, pair in waves().items()], shots=(0, 1, None), progress=False
    )
    assert [row["failed"] for row in rows.rows] == [0, 0, 0]


def test_posteriors_are_those_of_the_tasks_data() -> None:
    hvi, data = fitted(), waves()
    assert hvi.task_names_ == list(data)
    assert same_forecast(hvi.posterior("wave 2"), hvi.adapt(data["wave 2"]))
    empty = tuple(part[:0] for part in data["wave 2"])
    assert same_forecast(hvi.adapt(empty), hvi.prior_predictive())
    with pytest.raises(KeyError, match="no task is called 'wave 9'; the 3 tasks are 'wave 0'"):
        hvi.posterior("wave 9")


@pytest.mark.parametrize("likelihood", [mp.Gaussian(), mp.Gaussian(per_channel=True), mp.HeteroscedasticGaussian()])
def test_several_outputs_and_missing_targets(likelihood: mp.Likelihood) -> None:
    """A missing target is like none: the fit of one output does not depend on what is in the others' gaps."""
    data = waves(outputs=2)
    module = mlp(4 if isinstance(likelihood, mp.HeteroscedasticGaussian) else 2)
    x, y = data["wave 0"]
    holes = y.clone()
    holes[1] = torch.nan
    holes[2, 1] = torch.nan
    rows = [0, 2, 3]
    with pytest.warns(UserWarning, match="3 of 30 targets are missing"):
        one = fitted({**data, "wave 0": (x, holes)}, module=module, likelihood=likelihood)
    with pytest.warns(UserWarning, match="1 of 28 targets"):
        other = fitted({**data, "wave 0": (x[rows], holes[rows])}, module=module, likelihood=likelihood)
    assert same_forecast(one, other)
    assert one.predict(X_NEW).mean.shape == (5, 2)
    assert bool(one.adapt((x, holes)).predict(X_NEW).std.isfinite().all())


@pytest.mark.parametrize("noise", [None, 0.1])
def test_units_are_those_of_the_targets(noise: float | None) -> None:
    unit = 1e3
    plain = fitted(likelihood=mp.Gaussian(noise))
    scaled = fitted(waves(unit=unit), likelihood=mp.Gaussian(None if noise is None else unit * noise))
    expected, found = plain.predict(X_NEW), scaled.predict(X_NEW)
    torch.testing.assert_close(found.mean, unit * expected.mean)
    torch.testing.assert_close(found.std, unit * expected.std)
    assert plain.history_[-1].loss == pytest.approx(scaled.history_[-1].loss)


def test_types_and_shapes_follow_the_module_and_the_data() -> None:
    single = {name: (x.float().numpy(), y[:, 0].float().numpy()) for name, (x, y) in waves().items()}
    module = mlp().float()
    before, state = [p.clone() for p in module.parameters()], torch.get_rng_state()
    hvi = inference(module=module).fit(single, progress=False)
    forecast = hvi.predict(X_NEW.float().numpy())
    assert isinstance(forecast.mean, np.ndarray)
    assert (forecast.mean.dtype, forecast.mean.shape) == (np.float32, (5,))
    assert hvi.adapt(waves()["wave 0"]).predict(X_NEW).mean.shape == (5, 1)
    assert all(map(torch.equal, before, module.parameters()))
    assert torch.equal(torch.get_rng_state(), state)


def test_seeds_decide_everything() -> None:
    one, same, other = (fitted(seed=seed) for seed in (0, 0, 1))
    assert same_forecast(one, same)
    assert not same_forecast(one, other)


def test_history_has_a_record_for_every_round() -> None:
    hvi = fitted()
    assert [record.phase for record in hvi.history_] == ["anchored"] * 2 + ["hmc"] * 3
    for record in hvi.history_:
        assert record.loss == pytest.approx(record.nll + record.hyper)
        assert (record.tasks, record.observations) == (3, 15)
    assert hvi.acceptance_.shape == (4,)
    assert fitted(theta=mp.Anchored(4, 20)).acceptance_ is None


def test_the_bound_belongs_to_the_variational_way() -> None:
    terms = fitted(theta=mp.Variational(4, 20, 2)).elbo(samples=8)
    assert terms.total == pytest.approx(terms.nll + terms.hyper_kl)
    with pytest.raises(TypeError, match="theta must be 'variational' for a bound"):
        fitted().elbo()


@pytest.mark.parametrize("own", [False, True])
def test_a_saved_fit_is_the_same_when_loaded(own: bool, tmp_path: Path) -> None:
    make = (lambda: nn.Sequential(nn.Linear(1, 3), nn.Tanh(), nn.Linear(3, 1))) if own else (lambda: mlp().float())
    hvi = fitted(module=make(), seed=3, likelihood=mp.Gaussian(0.2))
    hvi.save(tmp_path / "saved")
    if own:
        with pytest.raises(mp.CheckpointError, match=r"give it as load\(folder, module\)"):
            mp.load(tmp_path / "saved")
    for load in (mp.load, mp.HierarchicalVI.load, CollapsedHierarchicalVI.load):
        loaded: Any = load(tmp_path / "saved", make() if own else None)  # type: ignore[operator]
        assert type(loaded) is CollapsedHierarchicalVI
        assert same_forecast(loaded, hvi)
        assert same_forecast(loaded.posterior("wave 1"), hvi.posterior("wave 1"))
        assert loaded.history_ == hvi.history_
        assert (loaded.likelihood, loaded.theta, loaded.seed) == (hvi.likelihood, hvi.theta, 3)
    assert same_forecast(inference(module=make(), store=tmp_path / "saved", likelihood=mp.Gaussian(0.2)), hvi)


def test_a_stopped_fit_continues_bitwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, run_round = fitted(), CollapsedFit.run_round

    def stopping(fit: CollapsedFit) -> None:
        if fit.state.rounds == 3:
            raise KeyboardInterrupt
        run_round(fit)

    monkeypatch.setattr(CollapsedFit, "run_round", stopping)
    with pytest.raises(KeyboardInterrupt):
        inference(store=tmp_path).fit(waves(), save_every=0, progress=False)
    monkeypatch.undo()
    hvi = inference(store=tmp_path)
    with pytest.raises(mp.NotFittedError):
        hvi.predict(X_NEW)
    with pytest.raises(mp.CheckpointError, match="resume=True continues it, give_up"):
        hvi.fit(waves(), progress=False)
    with pytest.raises(mp.CheckpointError, match="with the settings it was started with, but seed"):
        inference(store=tmp_path, seed=1).fit(waves(), resume=True, progress=False)
    with pytest.raises(ValueError, match="with the 3 tasks that it was started with"):
        hvi.fit(waves(2), resume=True, progress=False)
    hvi.fit(waves(), resume=True, progress=False)
    assert same_forecast(hvi, expected)
    assert hvi.history_ == expected.history_
    assert same_forecast(mp.load(tmp_path), expected)
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == []


def test_draws_that_are_not_finite_are_left_out_visibly(monkeypatch: pytest.MonkeyPatch) -> None:
    log_evidence = CollapsedFit.log_evidence

    def broken(fit: CollapsedFit, z: Tensor) -> Tensor:
        return torch.where(torch.arange(len(z)) == 1, torch.nan, log_evidence(fit, z))

    monkeypatch.setattr(CollapsedFit, "log_evidence", broken)
    with pytest.warns(UserWarning, match="1 of 4 draws of theta have no finite evidence and were left out"):
        hvi = fitted()
    assert len(hvi.thetas_.mean) == 3
    assert hvi.history_[-1].failures == ("1 of 4 draws of theta are not finite",)
    monkeypatch.setattr(CollapsedFit, "log_evidence", lambda fit, z: log_evidence(fit, z) * torch.nan)
    with pytest.raises(mp.TrainingDiverged, match="only 0 of 4 draws"):
        fitted()


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"module": lambda x: x}, TypeError, r"module must be a torch\.nn\.Module, got function"),
        ({"likelihood": mp.Gaussian}, TypeError, "likelihood must be one like Gaussian"),
        ({"likelihood": mp.Categorical()}, TypeError, 'Try local="explicit"'),
        ({"stochastic": ".*"}, ValueError, "stochastic must be None with local='closed_form'"),
        ({"hyperprior": mp.GaussianHyperprior()}, TypeError, "hyperprior must be a CollapsedHyperprior"),
        ({"theta": "nuts"}, ValueError, "theta must be one of hmc"),
        ({"theta": 32}, TypeError, "theta must be one of hmc"),
        ({"module": nn.Sequential(nn.Linear(1, 1), nn.Tanh())}, ValueError, "something else comes after it"),
        ({"module": nn.Sequential(nn.Linear(1, 2), nn.BatchNorm1d(2), nn.Linear(2, 1))}, ValueError, "GroupNorm"),
    ],
)
def test_invalid_arguments_are_refused_at_first_use(
    settings: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        fitted(**settings)


def test_what_has_no_meaning_in_closed_form_raises() -> None:
    hvi = fitted()
    for use, error, message in (
        (lambda: hvi.fit(waves(), epochs=3), TypeError, "epochs must not be given with local='closed_form'"),
        (lambda: hvi.adapt(waves()["wave 0"], 5), TypeError, "adapting takes no steps"),
        (lambda: hvi.forget("wave 0"), TypeError, "cannot forget 'wave 0'"),
        (lambda: hvi.psi_, AttributeError, "draws of theta: thetas_"),
    ):
        with pytest.raises(error, match=message):
            use()
    images = nn.Sequential(nn.Conv2d(1, 1, 1), nn.Conv2d(1, 1, 1))
    pictures = {"a": (torch.zeros(3, 1, 2, 2), torch.zeros(3, 1, 2, 2))}
    with pytest.raises(ValueError, match=r"targets must have shape \(N,\) or \(N, C\)"):
        fitted(pictures, module=images, standardize=False)


def test_use_before_fit_raises_not_fitted(tmp_path: Path) -> None:
    hvi = inference(store=tmp_path / "none yet")
    uses = (hvi.prior_predictive, lambda: hvi.adapt(waves()["wave 0"]), lambda: hvi.save(tmp_path), lambda: hvi.thetas_)
    for use in uses:
        with pytest.raises(mp.NotFittedError, match="is not fitted yet"):
            use()
    assert not hasattr(hvi, "history_")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("settings", "message"), [({"local": "exact"}, "local must be"), ({"theta": "hmc"}, "theta=")])
def test_explicit_posteriors_have_no_way_to_infer_theta(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mp.HierarchicalVI(mlp(), mp.Gaussian(), **settings).fit(waves(), epochs=1, progress=False)
