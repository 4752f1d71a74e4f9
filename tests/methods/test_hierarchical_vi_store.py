"""What is kept, what is refused, and that nothing is lost."""

import gc
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import metaprior as mp
from metaprior.errors import CheckpointError, TrainingDiverged
from metaprior.hierarchy.hyper_posterior import fit_psi
from tests.methods.small_hierarchy import FAST, Data, contents, fitted, inference, known_theta, mlp, waves


def opened(folder: Path, **other: Any) -> mp.HierarchicalVI:
    """Use what is in the store, which raises for what does not fit it."""
    hvi = inference(folder, **other)
    assert hvi.task_names_
    return hvi


def test_a_saved_copy_is_independent_of_its_store(tmp_path: Path) -> None:
    hvi = fitted(tmp_path / "store")
    hvi.save(tmp_path / "copy")
    hvi.save(tmp_path / "store")  # is already there
    before = contents(tmp_path / "copy")
    hvi.fit(waves(4), **FAST)
    assert contents(tmp_path / "copy") == before
    copy: Any = mp.load(tmp_path / "copy")
    assert copy.task_names_ == ["wave 0", "wave 1", "wave 2"]
    assert copy.posterior("wave 1").weights.mu.isfinite().all()
    with pytest.raises(CheckpointError, match="already holds a checkpoint"):
        hvi.save(tmp_path / "copy")


def without_one() -> Data:
    tasks = waves(4)
    del tasks["wave 1"]
    return tasks


def changed() -> Data:
    tasks = waves(4)
    tasks["wave 1"][1][2] += 1e-9
    return tasks


def with_values(value: float) -> Data:
    tasks = waves(4)
    tasks["wave 3"][0][0] = value
    return tasks


@pytest.mark.parametrize(
    ("tasks", "settings", "message"),
    [
        (without_one, {}, "1 of the 3 tasks in .* are not among the given ones, first 'wave 1'"),
        (changed, {}, r"1 tasks have other data .*, first 'wave 1' \(7 observations then, 7 now\)"),
        (lambda: waves(4), {"lr": math.inf}, "lr must be a positive number"),
        (lambda: waves(4), {"lr": 1e300, "local_steps": 20}, "wave"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_lost(
    tasks: Callable[[], Any], settings: dict[str, Any], message: str, tmp_path: Path
) -> None:
    hvi = fitted(tmp_path / "store")
    before, posterior = contents(tmp_path / "store"), hvi.posterior("wave 1").weights
    with pytest.raises((ValueError, TypeError, TrainingDiverged), match=message):
        hvi.fit(tasks(), **{**FAST, **settings})
    after = contents(tmp_path / "store")
    numbers = "posteriors.bin"  # may have been written to, in the slots that do not count
    if settings.get("lr") != 1e300:
        assert after.pop(numbers) == before.pop(numbers)
    assert {**after, numbers: ""} == {**before, numbers: ""}
    assert torch.equal(hvi.posterior("wave 1").weights.mu, posterior.mu)
    assert torch.equal(mp.HierarchicalVI.load(tmp_path / "store").posterior("wave 1").weights.rho, posterior.rho)
    hvi.fit(waves(4), **FAST)


def test_a_first_fit_of_bad_input_makes_no_folder(tmp_path: Path) -> None:
    with pytest.raises(mp.NotFinite, match="none of the 2 tasks can be learned from; the first: wave 0: x has 6 NaN"):
        inference(tmp_path / "store").fit({name: (x * math.nan, y) for name, (x, y) in waves(2).items()}, **FAST)
    assert not (tmp_path / "store").exists()


def test_tasks_whose_numbers_are_not_finite_are_left_out_and_counted(tmp_path: Path) -> None:
    """The others are fitted as if it had not been given; it may come later, with other numbers."""
    with pytest.warns(UserWarning, match="1 of 4 tasks are left out; the first: wave 3: x has 1 NaN or infinite"):
        hvi = inference(tmp_path / "store").fit(with_values(math.nan), **FAST)
    assert hvi.task_names_ == ["wave 0", "wave 1", "wave 2"]
    assert [(record.tasks, record.bad_tasks) for record in hvi.history_] == [(3, 1)] * 2
    assert hvi.history_[0].failures[0].startswith("wave 3: x has 1 NaN")
    expected = fitted(tmp_path / "other")
    assert torch.equal(hvi.posterior("wave 1").weights.mu, expected.posterior("wave 1").weights.mu)
    assert "wave 3" in hvi.fit(waves(4), **FAST).task_names_


def test_an_existing_store_says_that_it_is_continued(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hvi = inference(tmp_path / "store")
    assert repr(hvi) == "<HierarchicalVI of MLP, local='explicit': not fitted>"
    hvi.fit(waves(3), **{**FAST, "progress": True})
    assert "continues" not in capsys.readouterr().err
    again = inference(tmp_path / "store")
    assert "3 tasks, 2 epochs, in " in repr(again)
    again.fit(waves(3), **{**FAST, "progress": True})
    assert "store holds posteriors of 2 epochs, from which this fit continues" in capsys.readouterr().err
    assert "does not have the structure" in repr(inference(tmp_path / "store", module=mlp(5)))


def test_to_ask_for_the_history_before_a_fit_makes_no_folder() -> None:
    hvi = mp.HierarchicalVI(mlp(), mp.Gaussian())
    assert not hasattr(hvi, "history_")
    assert "posteriors" not in vars(hvi)


OTHERS: list[tuple[dict[str, Any], str]] = [
    ({"module": mlp(5)}, "does not have the structure that was saved"),
    ({"module": mlp().float()}, "saved from a torch.float64 network"),
    ({"module": mp.MLP(1, [4], 1, activation="tanh").double()}, r"network .*relu.*tanh"),
    ({"likelihood": mp.Gaussian(noise=0.1)}, "likelihood"),
    ({"likelihood": mp.HeteroscedasticGaussian()}, "likelihood"),
    ({"seed": 1}, r"seed \(saved 0, given 1\)"),
    ({"hyperprior": mp.GaussianHyperprior(scale=0.2)}, "hyperprior"),
    ({"hyperprior": known_theta()}, "hyperprior"),
    ({"relative_sigma": 0.2}, r"relative_sigma \(saved 0.1, given 0.2\)"),
    ({"stochastic": ".*weight"}, "stochastic"),
]


@pytest.mark.parametrize(("other", "message"), OTHERS)
def test_a_store_of_another_model_is_refused(other: dict[str, Any], message: str, tmp_path: Path) -> None:
    fitted(tmp_path / "store")
    before = contents(tmp_path / "store")
    with pytest.raises(CheckpointError, match=message) as error:
        opened(tmp_path / "store", **other)
    assert str(tmp_path / "store") in str(error.value)
    assert contents(tmp_path / "store") == before
    inference(tmp_path / "store").fit(waves(3), **FAST)  # the same model is welcome


def test_a_store_that_another_model_made_meanwhile_is_refused(tmp_path: Path) -> None:
    late = inference(tmp_path / "store", seed=1)
    fitted(tmp_path / "store")
    with pytest.raises(CheckpointError, match="seed"):
        late.fit(waves(3), **FAST)


def test_a_store_of_another_known_theta_is_refused(tmp_path: Path) -> None:
    fitted(tmp_path / "store", hyperprior=known_theta())
    opened(tmp_path / "store", hyperprior=known_theta())
    with pytest.raises(CheckpointError, match="the fixed theta has other numbers"):
        opened(tmp_path / "store", hyperprior=known_theta(0.1))
    with pytest.raises(ValueError, match=r"the fixed theta's mu has shape \(12,\), the random weights \(13,\)"):
        opened(tmp_path / "store", hyperprior=known_theta(size=12))


def test_a_forgotten_task_leaves_psi_and_may_come_back(tmp_path: Path) -> None:
    hvi = fitted(tmp_path / "store")
    q = hvi.posterior("wave 1").weights
    expected = hvi._fitted().sums.updated(mp.WeightDistribution(q.mu[None], q.rho[None]), None)
    hvi.forget("wave 1")
    for where in (hvi, mp.HierarchicalVI.load(tmp_path / "store")):
        assert where.task_names_ == ["wave 0", "wave 2"]
        with pytest.raises(KeyError, match="no task is called 'wave 1'; the 2 in the store are 'wave 0', 'wave 2'"):
            where.posterior("wave 1")
        with pytest.raises(KeyError, match="no task is called 'wave 1'"):
            where.forget("wave 1")
        for one, other in zip(where.psi_, fit_psi(hvi.psi_, expected, mp.GaussianHyperprior(), 200), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    hvi.fit(without_one(), **FAST)
    assert hvi.task_names_ == ["wave 0", "wave 2", "wave 3"]
    hvi.fit(waves(4), **FAST)
    assert set(hvi.task_names_) == {"wave 0", "wave 1", "wave 2", "wave 3"}
    assert hvi._fitted().sums.tasks == 4


def test_a_forgotten_task_may_come_back_with_other_data(tmp_path: Path) -> None:
    hvi = fitted(tmp_path / "store").forget("wave 1").fit(changed(), **FAST)
    assert hvi.posterior("wave 1").weights.mu.isfinite().all()


def test_settings_that_cannot_be_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="hyperprior must be a GaussianHyperprior or a theta"):
        opened(tmp_path, hyperprior=1.0)
    with pytest.raises(ValueError, match="relative_sigma must be a positive number"):
        opened(tmp_path, relative_sigma=0.0)
    with pytest.raises(ValueError, match="save_every must be a number of seconds, at least 0, got nan"):
        inference(tmp_path / "store").fit(waves(2), save_every=math.nan, **FAST)


def test_a_temporary_store_is_gone_with_its_owner() -> None:
    hvi = mp.HierarchicalVI(mlp(), mp.Gaussian(), standardize=False).fit(waves(2), **FAST)
    folder = hvi.posteriors.folder
    assert (folder / "posteriors.bin").exists()
    del hvi
    gc.collect()
    assert not folder.exists()


def test_two_who_start_together_do_not_wipe_each_others_store(tmp_path: Path) -> None:
    one, two = inference(tmp_path / "store"), inference(tmp_path / "store")
    one.fit(waves(3), **FAST)
    two.fit(waves(4), **FAST)  # made before there was a store, and takes up what is there now
    assert two.task_names_ == ["wave 0", "wave 1", "wave 2", "wave 3"]


def test_a_forgotten_task_leaves_no_number_and_no_name_behind(tmp_path: Path) -> None:
    hvi = fitted(tmp_path / "store")
    numbers = hvi.posteriors.read(1).numpy().tobytes()
    assert numbers in (tmp_path / "store" / "posteriors.bin").read_bytes()
    hvi.forget("wave 1")
    assert numbers not in (tmp_path / "store" / "posteriors.bin").read_bytes()
    assert "wave 1" not in (tmp_path / "store" / "checkpoint.json").read_text()


def test_a_store_that_is_a_file_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("something")
    with pytest.raises(NotADirectoryError, match="store must be a folder"):
        opened(tmp_path / "file")
