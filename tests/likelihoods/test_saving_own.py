"""Own likelihoods are saved with their import path, and a file never decides what is imported."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
import torch

import metaprior as mp
from metaprior import checkpoint
from metaprior.likelihoods import LIKELIHOODS, Likelihood
from tests.likelihoods.own import Asymmetric, Named

KNOWN = tuple(LIKELIHOODS.values())


def fitted(likelihood: Likelihood) -> tuple[mp.BayesByBackprop, torch.Tensor]:
    x = torch.randn(20, 2)
    return mp.BayesByBackprop(mp.MLP(2, [3], 1), likelihood).fit(x, x[:, 0], epochs=1, progress=False), x


def test_an_own_likelihood_is_rebuilt_with_its_fields(tmp_path: Path) -> None:
    bnn, x = fitted(Asymmetric(noise=0.5, factors=(1.0, 3.0)))
    bnn.save(tmp_path)
    described = json.loads((tmp_path / "checkpoint.json").read_text())["likelihood"]
    assert described["import"] == "tests.likelihoods.own:Asymmetric"
    loaded = mp.load(tmp_path)
    assert loaded.likelihood == bnn.likelihood
    assert torch.equal(loaded.predict(x).std, bnn.predict(x).std)


def test_a_meta_learner_too(tmp_path: Path) -> None:
    x = torch.randn(8, 2)
    task = mp.Task((x[:4], x[:4, 0]), (x[4:], x[4:, 0]), "t")
    learner = mp.MetaLearner(mp.MLP(2, [3], 1), Asymmetric(), adaptation=mp.Descent(steps=1, lr=1e-3))
    learner.fit([task] * 4, epochs=1, tasks_per_epoch=2, meta_batch=2, progress=False, calibrate=False)
    learner.save(tmp_path)
    assert mp.load(tmp_path).likelihood == Asymmetric()


def test_a_module_that_is_not_imported_is_named_and_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bnn, _ = fitted(Asymmetric())
    bnn.save(tmp_path)
    monkeypatch.delitem(sys.modules, "tests.likelihoods.own")
    with pytest.raises(mp.CheckpointError, match=r"`import tests\.likelihoods\.own` first, then load again"):
        mp.load(tmp_path)
    assert "tests.likelihoods.own" not in sys.modules


@pytest.mark.parametrize(
    "path",
    ["tests.likelihoods.own:Outside", "tests.likelihoods.own:missing", "os:system", "subprocess:Popen", "sys:modules"],
)
def test_nothing_but_a_likelihood_is_built(path: str) -> None:
    with pytest.raises(mp.CheckpointError, match=f"{path} must be a dataclass that subclasses Likelihood"):
        checkpoint.restore({"name": "x", "import": path}, KNOWN, Likelihood)


def test_attributes_of_modules_are_not_computed() -> None:
    """A module's ``__getattr__`` may import others."""
    lazy = ModuleType("lazy_for_this_test")
    lazy.__getattr__ = lambda name: pytest.fail("it was asked")  # type: ignore[method-assign]
    sys.modules[lazy.__name__] = lazy
    try:
        with pytest.raises(mp.CheckpointError, match="must be a dataclass"):
            checkpoint.restore({"name": "x", "import": f"{lazy.__name__}:Anything"}, KNOWN, Likelihood)
    finally:
        del sys.modules[lazy.__name__]


def test_a_class_that_nobody_could_import_is_refused_at_saving(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Local(mp.Gaussian):
        pass

    bnn, _ = fitted(Local())
    with pytest.raises(
        mp.CheckpointError, match="defined in a function or a class and another program could not import"
    ):
        bnn.save(tmp_path)
    Local.__module__, Local.__qualname__ = "__main__", "Local"
    with pytest.raises(mp.CheckpointError, match="defined in a script or notebook") as error:
        bnn.save(tmp_path)
    assert "LIKELIHOODS.add('my_kind', Local)" in str(error.value)
    LIKELIHOODS.add("local_of_a_test", Local)
    try:
        bnn.save(tmp_path)
        assert mp.load(tmp_path).likelihood == Local()
    finally:
        LIKELIHOODS._classes.pop("local_of_a_test")


def test_fields_that_a_file_cannot_hold_are_refused() -> None:
    with pytest.raises(mp.CheckpointError, match="a field of Named must not be called 'name'"):
        checkpoint.describe(Named(), KNOWN, Likelihood)
    with pytest.raises(mp.CheckpointError, match="the fields of Asymmetric must be numbers, texts or tuples"):
        checkpoint.describe(Asymmetric(factors=(torch.ones(1),)), KNOWN, Likelihood)  # type: ignore[arg-type]
    with pytest.raises(mp.CheckpointError, match="and dataclasses that subclass Likelihood"):
        checkpoint.describe(torch.nn.Linear(1, 1), KNOWN, Likelihood)
    with pytest.raises(mp.CheckpointError, match="cannot rebuild 'Unknown': known are Gaussian"):
        checkpoint.restore({"name": "Unknown"}, KNOWN, Likelihood)
    described = checkpoint.describe(Asymmetric(), KNOWN, Likelihood)
    with pytest.raises(mp.CheckpointError, match="cannot rebuild 'Asymmetric' from"):
        checkpoint.restore({**described, "noise": -1.0}, KNOWN, Likelihood)


def test_two_registered_classes_of_one_name_are_refused() -> None:
    twin = dataclass(frozen=True)(type("Gaussian", (mp.Gaussian,), {}))
    with pytest.raises(mp.CheckpointError, match="Gaussian must be the name of one registered class, got two"):
        checkpoint.describe(mp.Gaussian(), (*KNOWN, twin), Likelihood)
