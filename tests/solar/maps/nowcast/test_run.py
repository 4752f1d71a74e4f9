"""``metaprior train`` trains the network of nowcasts on several archives, and the run is a prior for nowcasts."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

from metaprior import cli
from metaprior.errors import CheckpointError
from metaprior.runs.build import choices_of, learner_of, network_of
from metaprior.runs.program import Request, train
from metaprior.runs.reading import config_text, read_config
from metaprior.runs.sources import open_tasks
from metaprior.solar.maps.nowcast import forecaster
from metaprior.solar.maps.nowcast.forecaster import Nowcaster
from metaprior.solar.maps.nowcast.network import NowcastNetwork
from metaprior.solar.simulator import write_frames
from tests.runs.tiny import PowerFailure, assert_same_run, at_step, fail
from tests.runs.tiny import run as run_another
from tests.solar.maps.nowcast.small import moments, nowcaster, world

pytestmark = pytest.mark.filterwarnings("ignore::metaprior.solar.maps.archives.archive.GapsInTime")  # nights


START = nowcaster().networks[1]
"""The prior's network; the first one is what the seed of a run makes."""


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two archives in different units, and a saved prior of a small network."""
    folder = tmp_path_factory.mktemp("archives")
    one = world(days=8).to_frames()
    write_frames(one, folder / "one.nc")
    write_frames((one * 0.01 + 5).assign_attrs(one.attrs | {"units": "1"}), folder / "other.nc")
    Nowcaster((START,), (1.0,)).save(folder / "prior")
    return folder


@pytest.fixture(autouse=True)
def _prior(archives: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecaster, "PRIOR", archives / "prior")


def changes(archives: Path) -> list[str]:
    parts = [
        f"tasks.{part}.{change}"
        for part in (0, 1)
        for change in ("kind=nowcast", "patch=16", "k_shot=1", "k_query=2", "crops=2")
    ]
    paths = [f"tasks.0.path={archives / 'one.nc'}", f"tasks.1.path={archives / 'other.nc'}"]
    meta = ["meta.warm_start=3", "meta.epochs=1", "meta.tasks_per_epoch=6", "meta.meta_batch=2"]
    return [*parts, *paths, *meta, "model.width=4", "model.levels=2", "evaluate.tasks=2", "run.checkpoint_every=2"]


def run(archives: Path, folder: Path, *more: str, resume: bool = False) -> list[str]:
    said: list[str] = []
    config = read_config("nowcast", [*changes(archives), *more])
    text = config_text("nowcast")
    train(Request(config, text, folder, "metaprior train", resume, progress=False), said.append)
    return said


@pytest.fixture(scope="module")
def trained(archives: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "mine"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forecaster, "PRIOR", archives / "prior")
        said = run(archives, folder)
    assert said[0].startswith(f"tasks[0]: {archives / 'one.nc'}: 80 frames of 32 x 32 pixels, 15 minutes apart")
    assert f"next: metaprior nowcast {archives / 'one.nc'} --prior {folder}" in said[-2]
    return folder


def test_a_stopped_run_on_two_archives_goes_on_bitwise_identical(
    trained: Path, archives: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in (2, 5):
        with monkeypatch.context() as patch:
            at_step(patch, step, fail)
            with pytest.raises(PowerFailure):
                run(archives, tmp_path / f"killed {step}")
        run(archives, tmp_path / f"killed {step}", resume=True)
        assert_same_run(trained, tmp_path / f"killed {step}")


def test_a_run_is_a_prior_for_nowcasts(trained: Path, archives: Path, tmp_path: Path) -> None:
    own = Nowcaster.pretrained(trained)
    (network,) = own.networks
    assert network.config == START.config
    assert not torch.equal(network.output.residual.weight, START.output.residual.weight)  # type: ignore[union-attr]
    assert own.told == (f"the tasks of {trained}",)
    assert len(set(own.factors)) == 1
    window = moments().batch(int(moments().whole()[-1]))
    assert bool(own.predict(window).mean.isfinite().all())
    given = ["nowcast", str(archives / "one.nc"), "--prior", str(trained), "--out", str(tmp_path / "out.nc")]
    result = CliRunner().invoke(cli.app, given)
    assert result.exit_code == 0, result.output
    assert f"the networks were trained on the tasks of {trained}" in result.output


def test_a_run_on_other_tasks_is_no_prior(tmp_path: Path) -> None:
    run_another(tmp_path / "other", "meta.epochs=1")
    with pytest.raises(CheckpointError, match=r"must be a run with model.kind 'nowcast', got a MLP"):
        Nowcaster.pretrained(tmp_path / "other")


def test_training_goes_on_from_the_prior_with_pooled_steps_or_without(archives: Path) -> None:
    for warm_start, phase in ((2, "warm start"), (0, "everything")):
        config = read_config("nowcast", [*changes(archives), f"meta.warm_start={warm_start}"])
        assert config.meta.pretrained
        for name, value in network_of(config).state_dict().items():
            assert torch.equal(value, START.state_dict()[name])
        source = open_tasks(config.task_settings, progress=False)
        trainer = learner_of(config).trainer(source.tasks("train"), config.meta, source.pooled(2))
        before = trainer.theta.mu.detach().clone()
        assert trainer.step().phase.name == phase
        assert 0 < float((trainer.theta.mu.detach() - before).abs().max()) < 0.01
    fresh = network_of(read_config("nowcast", [*changes(archives), "warm_start.weights="]))
    assert not torch.equal(fresh.trunk.stem.weight, START.trunk.stem.weight)  # type: ignore[union-attr]


def test_weights_that_are_missing_or_of_another_network_are_told(
    archives: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match=r"nowcast belongs to another network .* or one of nowcast"):
        network_of(read_config("nowcast", [*changes(archives), "model.width=6"]))
    monkeypatch.setattr(forecaster, "PRIOR", tmp_path / "prior")
    with pytest.raises(CheckpointError, match=r"the prior of nowcasts cannot be read: .* Try make prior-maps"):
        network_of(read_config("nowcast", changes(archives)))
    file = tmp_path / "nowcast.safetensors"
    save_file(NowcastNetwork(4, 2).state_dict(), file)
    network_of(read_config("nowcast", [*changes(archives), f"warm_start.weights={file}"]))


def test_it_can_be_planned(archives: Path) -> None:
    assert choices_of(read_config("nowcast", changes(archives)))
