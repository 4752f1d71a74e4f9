"""The contract of all methods (``metaprior.methods.method``), tested once over all of them."""

import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import metaprior as mp
from metaprior.evaluation import Evaluation
from metaprior.methods import METHODS, Method, TaskMethod

X_NEW = torch.linspace(-1, 1, 5, dtype=torch.float64)[:, None]


def mlp() -> nn.Module:
    torch.manual_seed(0)
    return mp.MLP(1, [4], 1, activation="tanh").double()


def own_module() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(1, 3), nn.Tanh(), nn.Linear(3, 1)).double()


@dataclass(frozen=True)
class Data:
    """The same noisy waves for every method: one data set, or tasks."""

    unit: float = 1.0
    scalar: bool = False
    of: Callable[[Tensor], Any] = lambda values: values

    def examples(self, seed: int) -> mp.Examples:
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(8, 1, dtype=torch.float64, generator=generator)
        y = 3.0 + (2 * x).sin() + 0.2 * torch.randn(8, 1, dtype=torch.float64, generator=generator)
        return mp.Examples(self.of(x), self.of(self.unit * (y[:, 0] if self.scalar else y)))

    def tasks(self, count: int = 4) -> list[mp.Task]:
        return [mp.Task(self.examples(2 * i), self.examples(2 * i + 1), f"wave {i}") for i in range(count)]


def arguments(method: Method, data: Data) -> tuple[Any, ...]:
    """Return what ``fit`` takes."""
    return (data.tasks(),) if isinstance(method, TaskMethod) else tuple(data.examples(0))


FAST: dict[str, dict[str, Any]] = {
    "BayesByBackprop": {"epochs": 3},
    "MetaLearner": {"epochs": 2, "tasks_per_epoch": 4, "meta_batch": 2, "search_step_size": False},
    "HierarchicalVI": {"epochs": 3, "local_steps": 2},
}


ADAPTATIONS: dict[str, Any] = {
    "ClosedForm": mp.ClosedForm(),
    "Context": mp.Context(size=4),
    "Context and ClosedForm": mp.Context(size=4) + mp.ClosedForm(),
    "Context and Descent": mp.Context(size=4) + mp.Descent(learn_lr="per_tensor"),
}
"""Other ways of adapting, with which the meta-learner keeps the same contract."""
NOT_SAMPLED = ("ClosedForm", "Context", "Context and ClosedForm")
"""Those whose weights are not random; their forecasts need no samples."""
NAMES = [*METHODS, *ADAPTATIONS]
FAST |= dict.fromkeys(ADAPTATIONS, FAST["MetaLearner"])


def class_of(name: str) -> type[Method]:
    return METHODS.get(name, mp.MetaLearner)


def made(name: str, **settings: Any) -> Method:
    module, likelihood = settings.pop("module", None) or mlp(), settings.pop("likelihood", mp.Gaussian())
    if name in ADAPTATIONS:
        settings["adaptation"] = ADAPTATIONS[name]
    return class_of(name)(module, likelihood, **settings)  # type: ignore[call-arg]


def random_weights(name: str) -> dict[str, Any]:
    """A choice of random weights, where there are any."""
    return {} if name in NOT_SAMPLED else {"stochastic": ".*weight"}


def fitted(name: str, data: Data | None = None, **settings: Any) -> Any:
    data = data or Data()
    method: Any = made(name, **settings)
    return method.fit(*arguments(method, data), **FAST[name], progress=False)


def evaluated(method: Any, data: Data) -> Evaluation:
    if isinstance(method, TaskMethod):
        return method.evaluate(data.tasks(2), samples=4, progress=False)
    return method.evaluate(*data.examples(1), samples=4)  # type: ignore[no-any-return]


pytestmark = pytest.mark.parametrize("name", NAMES)


def test_the_constructor_only_stores(name: str) -> None:
    """Any object is stored as it is, also an invalid one; no generator is used and no attribute is added."""
    names = list(inspect.signature(class_of(name)).parameters)
    given = {argument: object() for argument in names}
    state = torch.get_rng_state()
    method = class_of(name)(**given)
    assert vars(method) == given
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("invalid", "error", "message"),
    [
        ({"module": lambda x: x}, TypeError, r"module must be a torch\.nn\.Module, got function"),
        ({"likelihood": mp.Gaussian}, TypeError, "likelihood must be one like Gaussian"),
        ({"stochastic": "nothing"}, ValueError, "matches none of the module's learnable parameters|must be None"),
        ({"relative_sigma": -1.0}, ValueError, "relative_sigma must be"),
        ({"module": nn.Sequential(nn.Linear(1, 2), nn.BatchNorm1d(2), nn.Linear(2, 1))}, ValueError, "GroupNorm"),
    ],
)
def test_invalid_arguments_are_refused_at_first_use(
    name: str, invalid: dict[str, Any], error: type[Exception], message: str
) -> None:
    method: Any = made(name, **invalid)
    with pytest.raises(error, match=message):
        method.fit(*arguments(method, Data()), **FAST[name], progress=False)


def test_use_before_fit_raises_not_fitted(name: str, tmp_path: Path) -> None:
    method: Any = made(name)
    uses = [
        lambda: method.predict(X_NEW),
        lambda: evaluated(method, Data()),
        lambda: method.save(tmp_path / "saved"),
    ]
    if isinstance(method, TaskMethod):
        uses += [method.prior_predictive, lambda: method.adapt(Data().examples(0))]
    for use in uses:
        with pytest.raises(mp.NotFittedError, match=f"this {class_of(name).__name__} is not fitted yet: call fit"):
            use()
    assert not hasattr(method, "history_")
    assert not (tmp_path / "saved").exists()
    with pytest.raises(mp.CheckpointError, match=r"checkpoint\.json cannot be read"):
        class_of(name).load(tmp_path / "saved")


def test_numpy_in_numpy_out_tensors_in_tensors_out(name: str) -> None:
    tensors, arrays = fitted(name), fitted(name, Data(of=lambda values: values.numpy()))
    expected, found = tensors.predict(X_NEW, samples=4), arrays.predict(X_NEW.numpy(), samples=4)
    for attribute in ("mean", "std", "epistemic", "aleatoric"):
        assert isinstance(getattr(found, attribute), np.ndarray)
        assert np.array_equal(getattr(found, attribute), getattr(expected, attribute).numpy())
    assert np.array_equal(found.quantile(0.9), expected.quantile(0.9).numpy())
    assert all(isinstance(bound, np.ndarray) for bound in found.interval(0.9))
    assert isinstance(found.log_prob(expected.mean.numpy()), np.ndarray)
    assert torch.equal(arrays.predict(X_NEW, samples=4).mean, expected.mean)
    assert evaluated(arrays, Data(of=lambda values: values.numpy())).rows == evaluated(tensors, Data()).rows


def test_forecasts_have_the_shape_of_the_targets(name: str, tmp_path: Path) -> None:
    column, scalar = fitted(name), fitted(name, Data(scalar=True))
    expected = column.predict(X_NEW, samples=4)
    assert expected.mean.shape == (5, 1)
    scalar.save(tmp_path / "saved")
    for method in (scalar, mp.load(tmp_path / "saved")):
        assert torch.equal(method.predict(X_NEW, samples=4).mean, expected.mean[:, 0])
        assert evaluated(method, Data()).rows == evaluated(method, Data(scalar=True)).rows
    if isinstance(column, TaskMethod):  # a posterior follows the support set that it was adapted to
        support = Data(scalar=True).examples(9)
        assert column.adapt(support).predict(X_NEW, samples=4).mean.shape == (5,)


@pytest.mark.parametrize("unit", [1e6, 1e-6])
@pytest.mark.parametrize("noise", [None, 0.3])
def test_standardised_targets_may_have_any_unit(name: str, unit: float, noise: float | None, tmp_path: Path) -> None:
    plain = fitted(name, likelihood=mp.Gaussian(noise))
    scaled = fitted(name, Data(unit=unit), likelihood=mp.Gaussian(None if noise is None else unit * noise))
    scaled.save(tmp_path / "saved")
    loaded: Any = mp.load(tmp_path / "saved")
    for one in (scaled, loaded):
        pairs = [(plain, one)]
        if isinstance(one, TaskMethod):
            pairs.append((plain.adapt(Data().examples(9)), one.adapt(Data(unit=unit).examples(9))))  # type: ignore[arg-type]
        for mine, others in pairs:
            expected, found = mine.predict(X_NEW, samples=4), others.predict(X_NEW, samples=4)
            for attribute in ("mean", "std", "epistemic", "aleatoric"):
                values = getattr(found, attribute) / unit
                torch.testing.assert_close(values, getattr(expected, attribute), rtol=1e-7, atol=1e-9)
    if noise is not None:
        torch.testing.assert_close(found.aleatoric / unit, torch.full_like(found.aleatoric, noise))
    for mine, others in zip(plain.history_, scaled.history_, strict=True):
        assert others.loss == pytest.approx(mine.loss, rel=1e-7)  # in the network's units
    rows = [evaluated(method, Data(unit=u)).rows[-1] for method, u in ((plain, 1.0), (scaled, unit))]
    assert rows[1]["rmse"] == pytest.approx(unit * rows[0]["rmse"], rel=1e-7)


def test_without_standardising_the_units_are_the_targets_own(name: str) -> None:
    method = fitted(name, Data(unit=1e3), standardize=False)
    assert float(method.predict(X_NEW, samples=4).mean.abs().max()) < 100  # far from 3,000 after so few steps
    assert float(fitted(name, Data(unit=1e3)).predict(X_NEW, samples=4).mean.mean()) == pytest.approx(3e3, rel=0.5)


def test_std_is_total(name: str) -> None:
    forecast = fitted(name).predict(X_NEW, samples=20)
    torch.testing.assert_close(forecast.std**2, forecast.epistemic**2 + forecast.aleatoric**2)
    assert bool((forecast.epistemic > 0).all()) == (name != "Context"), "its weights are a point"
    assert bool((forecast.aleatoric > 0).all())


def test_seeds_decide_everything_and_the_module_is_left_as_it_is(name: str) -> None:
    module = mlp()
    before, state = [p.detach().clone() for p in module.parameters()], torch.get_rng_state()
    first, again, other = (fitted(name, module=module, seed=seed).predict(X_NEW).mean for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    method = fitted(name, module=module)
    assert torch.equal(method.predict(X_NEW, seed=3).mean, method.predict(X_NEW, seed=3).mean)
    sampled = name not in NOT_SAMPLED
    assert torch.equal(method.predict(X_NEW, seed=3).mean, method.predict(X_NEW, seed=4).mean) != sampled
    assert torch.equal(torch.get_rng_state(), state)
    assert all(map(torch.equal, before, module.parameters()))


@pytest.mark.parametrize("module", [mlp, own_module])
def test_a_saved_method_is_the_same_when_loaded(name: str, module: Callable[[], nn.Module], tmp_path: Path) -> None:
    method = fitted(name, module=module(), **random_weights(name), relative_sigma=0.2, seed=3)
    method.save(tmp_path / "saved")
    if module is own_module:
        with pytest.raises(mp.CheckpointError, match=r"give it as load\(folder, module\)"):
            mp.load(tmp_path / "saved")
    given = own_module() if module is own_module else None
    for loaded in (mp.load(tmp_path / "saved", given), class_of(name).load(tmp_path / "saved", given)):
        assert type(loaded) is class_of(name)
        expected, found = method.predict(X_NEW, seed=1), loaded.predict(X_NEW, seed=1)
        assert torch.equal(found.mean, expected.mean)
        assert torch.equal(found.std, expected.std)
        assert loaded.history_ == method.history_
        assert loaded.network.stochastic == method.network.stochastic
        for argument in ("likelihood", "relative_sigma", "standardize", "seed"):
            assert getattr(loaded, argument) == getattr(method, argument)
        assert evaluated(loaded, Data()).rows == evaluated(method, Data()).rows


def test_loading_finds_the_kind_and_refuses_others(name: str, tmp_path: Path) -> None:
    fitted(name).save(tmp_path / "saved")
    own = class_of(name).__name__
    for other in METHODS.keys() - {own}:
        with pytest.raises(mp.CheckpointError, match=f"holds a {own}, not a {other}"):
            METHODS[other].load(tmp_path / "saved")
    path = tmp_path / "saved" / "checkpoint.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "version": 1, "kind": "Sandwich"}))
    with pytest.raises(mp.CheckpointError, match=r"holds a Sandwich, which is no method; .* can be loaded"):
        mp.load(tmp_path / "saved")


def test_history_has_a_record_for_every_epoch(name: str) -> None:
    method = fitted(name)
    assert len(method.history_) == FAST[name]["epochs"]
    for number, record in enumerate(method.history_, start=1):
        assert isinstance(record, mp.EpochRecord)
        assert record.epoch == number
        assert record.loss == pytest.approx(record.nll + record.kl + record.hyper, rel=1e-6)
        assert (record.steps > 0, record.bad_tasks, record.failures) == (True, 0, ())
        assert record.tasks == (4 if isinstance(method, TaskMethod) else 1)
        assert 0.5 < record.nll < 5  # nats per observation, of a standardised target


def test_invalid_inputs_are_refused_with_what_was_found(name: str) -> None:
    method = fitted(name)
    for x, error, message in (
        (np.full((2, 1), np.nan), mp.NotFinite, "x has 2 NaN or infinite values out of 2"),
        (torch.zeros(2, 3), ValueError, r"cannot take an observation of shape \(3,\)"),
        ([[1.0]], TypeError, "x must be a torch tensor, a NumPy array or a data frame, got list"),
        (torch.zeros(0, 1), ValueError, "x is empty"),
    ):
        with pytest.raises(error, match=message):
            method.predict(x)
    with pytest.raises(ValueError, match="samples must be at least 2"):
        method.predict(X_NEW, samples=1)


@pytest.mark.parametrize(
    ("of", "error", "message"),
    [
        (lambda values: values.repeat(1, 3), ValueError, r"shape \(\d+, 3\)|of shape \(3,\)"),
        (lambda values: values * torch.nan, (mp.NotFinite, mp.TrainingDiverged), "finite"),
        (lambda values: values[:0], ValueError, "is empty|at least one"),
        (lambda values: values.tolist(), TypeError, "got list"),
    ],
)
def test_invalid_data_are_refused_and_an_earlier_fit_stays(
    name: str, of: Callable[[Tensor], Any], error: Any, message: str
) -> None:
    method = fitted(name)
    before, history = method.predict(X_NEW).mean, list(method.history_)
    with pytest.raises(error, match=message):
        method.fit(*arguments(method, Data(of=of, unit=7.0)), **FAST[name], progress=False)
    assert torch.equal(method.predict(X_NEW).mean, before)
    assert method.history_ == history


def test_training_that_diverges_raises_the_same_error(name: str) -> None:
    method: Any = made(name)
    with pytest.raises(mp.TrainingDiverged, match=r"became|finite"):
        method.fit(*arguments(method, Data()), **{**FAST[name], "lr": 1e300, "epochs": 20}, progress=False)


def test_evaluations_have_the_same_measures(name: str) -> None:
    row = evaluated(fitted(name), Data()).rows[-1]
    measures = {"mse", "rmse", "nll", "crps", "coverage_50", "coverage_90", "std"}
    assert measures | {f"{measure}_se" for measure in measures} < row.keys()
    assert (row["shots"], row["failed"]) == (None, 0)


@pytest.mark.parametrize(
    ("likelihood", "outputs"), [(mp.Categorical(), 3), (mp.Bernoulli(), 1), (mp.HeteroscedasticGaussian(), 2)]
)
def test_every_likelihood_works_in_float32(name: str, likelihood: mp.Likelihood, outputs: int, tmp_path: Path) -> None:
    labels = {"Categorical": lambda y: (y[:, 0] > 3).long(), "Bernoulli": lambda y: (y > 3).long()}

    class Labelled(Data):
        def examples(self, seed: int) -> mp.Examples:
            x, y = super().examples(seed)
            return mp.Examples(x.float(), labels.get(type(likelihood).__name__, Tensor.float)(y))

    torch.manual_seed(0)
    method = fitted(name, Labelled(), module=mp.MLP(1, [3], outputs), likelihood=likelihood)
    method.save(tmp_path / "saved")
    expected, found = (one.predict(X_NEW.float(), samples=4) for one in (method, mp.load(tmp_path / "saved")))
    assert bool(expected.std.isfinite().all())
    assert torch.equal(found.mean, expected.mean)
    assert evaluated(method, Labelled()).rows[-1]["nll"] > 0


def test_a_failed_fit_keeps_the_earlier_one(name: str) -> None:
    method: Any = fitted(name)
    before, history = method.predict(X_NEW, samples=4).mean, len(method.history_)
    damaged = Data(of=lambda values: values * float("nan"))
    with pytest.raises((mp.TrainingDiverged, ValueError)):
        method.fit(*arguments(method, damaged), **FAST[name], progress=False)
    assert torch.equal(method.predict(X_NEW, samples=4).mean, before)
    assert len(method.history_) == history


def test_saving_does_not_replace_another_method(name: str, tmp_path: Path) -> None:
    fitted(name).save(tmp_path / "saved")
    own = class_of(name).__name__
    other = next(kind for kind in METHODS if kind not in (own, "HierarchicalVI"))
    with pytest.raises(mp.CheckpointError, match=f"holds a {own}, which a {other} must not replace"):
        fitted(other).save(tmp_path / "saved")
    assert isinstance(mp.load(tmp_path / "saved"), class_of(name))


def test_inputs_of_a_large_scale_are_warned_of(name: str) -> None:
    method: Any = made(name)
    data = [mp.Task(*(mp.Examples(1e6 * part.x, part.y) for part in task[:2]), task.name) for task in Data().tasks()]
    given = (data,) if isinstance(method, TaskMethod) else tuple(data[0].support)
    with pytest.warns(UserWarning, match="standardise each feature"):
        method.fit(*given, **FAST[name], progress=False)


def test_tasks_may_be_unnamed(name: str) -> None:
    method: Any = made(name)
    if not isinstance(method, TaskMethod):
        pytest.skip("learns from one data set")
    method.fit([mp.Task(*task[:2]) for task in Data().tasks()], **FAST[name], progress=False)
    with pytest.raises(TypeError, match=r"shots must be a sequence of integers such as \(0, 5\), got 5"):
        method.evaluate(Data().tasks(), shots=5)


def test_misspelt_arguments_of_evaluate_are_named(name: str) -> None:
    method: Any = fitted(name)
    if not isinstance(method, TaskMethod):
        pytest.skip("learns from one data set")
    with pytest.raises(TypeError, match=r"evaluate must be given shots, .*got 'shot'\. Try shots="):
        method.evaluate(Data().tasks(), shot=(5,), progress=False)
    assert method.evaluate(Data().tasks(), seed=3, progress=False).rows


def test_the_device_is_where_the_module_is_moved(name: str) -> None:
    """The CPU and the device without numbers are all that every machine has."""
    module = mlp().to("meta")
    method = made(name, module=module, device="meta")
    assert method.network.device.type == "meta"
    assert fitted(name, device="cpu").predict(X_NEW).mean.device.type == "cpu"


@pytest.mark.parametrize("device", ["gpu 1", object()])
def test_a_device_that_is_none_is_refused_by_fit(name: str, device: Any) -> None:
    with pytest.raises(ValueError, match="device must be a device such as 'cpu' or 'cuda', got"):
        fitted(name, device=device)


def test_a_gpu_that_torch_does_not_see_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match=r"got 'cuda', but torch sees no GPU\. Try 'cpu'"):
        fitted(name, device="cuda")
    fitted(name).save(tmp_path / "saved")
    with pytest.raises(ValueError, match=r"got 'cuda', but torch sees no GPU\. Try 'cpu'"):
        _ = mp.load(tmp_path / "saved", device="cuda").network  # type: ignore[attr-defined]
