import inspect
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from metaprior.adaptation import WAYS, kind_of
from metaprior.methods.meta_learner import MetaLearner
from metaprior.models import MLP
from metaprior.priors import NormalGammaHyperprior
from metaprior.runs.build import choices_of, learner_of, network_of
from metaprior.runs.config import Evaluate, Meta, Run, differences
from metaprior.runs.reading import ConfigError, parse, read_config
from metaprior.solar.maps.task_settings import SimulatedTasks
from metaprior.training.settings import MetaTraining

LEAST = """
[model]
kind = "mlp"
inputs = 1
hidden = [4, 4]
outputs = 1

[likelihood]
kind = "gaussian"

[tasks]
kind = "sinusoids"
"""


@pytest.fixture
def least(tmp_path: Path) -> Path:
    path = tmp_path / "least.toml"
    path.write_text(LEAST)
    return path


def refused(path: Path, *changes: str) -> list[str]:
    with pytest.raises(ConfigError) as error:
        read_config(path, changes)
    first, *lines = str(error.value).splitlines()
    assert first == f"{path}: {len(lines)} to correct"
    return [line.strip() for line in lines]


def test_defaults_are_those_of_the_classes(least: Path) -> None:
    config = read_config(least)
    assert (config.meta, config.evaluate, config.run) == (Meta(), Evaluate(), Run())
    assert config.hyperprior == NormalGammaHyperprior()
    assert config.tasks.arguments == {"k_shot": 5, "k_query": 10, "noise": 0.0, "seed": 0, "frequency": (1.0, 1.0)}
    assert config.model.arguments["activation"] == "relu"
    for field in fields(MetaTraining):
        assert getattr(config.meta, field.name) == field.default


def test_defaults_are_those_of_the_learner(least: Path) -> None:
    config, learner = read_config(least), inspect.signature(MetaLearner).parameters
    assert config.adaptation_settings == (learner["adaptation"].default, None)
    for name in ("objective", "outer_samples", "relative_sigma"):
        assert getattr(config.meta, name) == learner[name].default
    assert (config.run.memory, config.run.seed) == (learner["memory"].default, learner["seed"].default)
    assert (config.hyperprior, config.model.arguments["stochastic"]) == (learner["hyperprior"].default, None)


def test_what_is_written_down_is_read_back_the_same(least: Path) -> None:
    config = read_config(least, ["likelihood.noise=[0.1]", "run.memory=2GiB", "adaptation.learn_lr=true"])
    assert parse(config.resolved(), "config.json") == config
    assert config.resolved()["adaptation"]["learn_lr"] == "per_tensor"


def test_set_takes_toml_values_and_bare_words(least: Path) -> None:
    config = read_config(
        least,
        [
            "meta.lr=3e-4",
            "meta.schedule=plateau",
            "adaptation.adapt='a.*'",
            "evaluate.shots=[0, 2]",
            "model.hidden=[7]",
        ],
    )
    assert (config.meta.lr, config.meta.schedule, config.adaptation.arguments["adapt"]) == (3e-4, "plateau", "a.*")
    assert config.evaluate.shots == (0, 2)
    assert config.model.arguments["hidden"] == [7]


def test_every_mistake_has_a_line(least: Path) -> None:
    lines = refused(
        least,
        "meta.learning_rate=1",
        "optimiser.lr=1",
        "adaptation.steps=2.5",
        "meta.lr=-1.0",
        "tasks.k_shots=1",
        "run.threads='two'",
        "nonsense",
    )
    assert lines[0] == "--set nonsense: write it like meta.lr=3e-4 (section.key=value)"
    assert lines[1].startswith("[optimiser] is not a section; sections are model, likelihood, tasks, adaptation, meta")
    assert lines[2].startswith(
        "tasks.k_shots is not known (did you mean 'k_shot'?); [tasks] takes kind, k_shot, k_query"
    )
    assert lines[3] == "adaptation.steps must be a valid integer, got 2.5"
    assert lines[4].startswith("meta.learning_rate is not known; [meta] takes epochs, tasks_per_epoch")
    assert lines[5] == "meta.lr must be a positive number, got -1.0"
    assert lines[6] == "run.threads must be a valid integer, got 'two'"


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            "model.kind=unett",
            "model.kind must be one of mlp, conv4, unet, bayesian_unet, nowcast, sites, got 'unett' (did you mean "
            "'unet'?)",
        ),
        ("modle.kind=mlp", "[modle] is not a section (did you mean 'model'?); sections are model,"),
        ("model.activation=gelu", "[model] unknown activation 'gelu'; known are relu, silu, tanh"),
        ("meta.schedule=linear", "meta.schedule must be 'cosine', 'plateau' or 'constant', got 'linear'"),
        ("adaptation.engine=exact", "adaptation.engine must be 'auto', 'mixed'"),
        ("adaptation.adapt=(", "adaptation.adapt='(' is not a regular expression"),
        ("run.memory=lots", "run.memory must be an amount such as '4GiB'"),
        ("evaluate.samples=1", "evaluate.samples must be an integer of at least 2, got 1"),
        ("tasks.k_shot=0", "tasks.k_shot must be an integer of at least 1, got 0"),
        ("meta.epochs=true", "meta.epochs must be a valid integer, got True"),
        ("meta.epochs='3'", "meta.epochs must be a valid integer, got '3'"),
        ("likelihood.noise=-1.0", "likelihood.noise, a standard deviation, must be positive"),
        ("meta.lr=2020-01-01", "meta.lr must be a valid number, got '2020-01-01'"),
        ("meta.outer_samples=0", "meta.outer_samples must be an integer of at least 1, got 0"),
    ],
)
def test_a_mistake_names_the_key_what_was_found_and_what_is_allowed(least: Path, change: str, line: str) -> None:
    (found,) = refused(least, change)
    assert found.startswith(line)


def test_what_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "empty.toml"
    path.write_text("[model]\nkind = 'mlp'\n")
    lines = refused(path)
    assert lines[:3] == [f"model.{key} is missing; [model] needs it" for key in ("inputs", "hidden", "outputs")]
    kinds = (
        "gaussian, heteroscedastic, balanced, crps, mixture, student_t, censored, zero_inflated, quantiles, poisson, "
        "negative_binomial, categorical, bernoulli, nowcast"
    )
    assert lines[3] == f"likelihood.kind must be one of {kinds}, got nothing"
    path.write_text("model = 3")
    assert refused(path)[0] == "model must be a section, [model] and its keys below, got 3"


def test_files_that_are_no_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_config(tmp_path / "nowhere.toml")
    (tmp_path / "broken.toml").write_text("[model")
    with pytest.raises(ConfigError, match=r"broken\.toml is not TOML"):
        read_config(tmp_path / "broken.toml")


def test_differences_are_dotted_keys(least: Path) -> None:
    old, new = read_config(least).resolved(), read_config(least, ["meta.lr=1", "tasks.seed=4"]).resolved()
    assert differences(old, new) == [("tasks.seed", 0, 4), ("meta.lr", 1e-3, 1.0)]
    assert not differences(old, old)


def test_the_seed_makes_the_network_and_no_global_generator_is_touched(least: Path) -> None:
    before = torch.random.get_rng_state()
    first, again, other = (network_of(read_config(least, [f"run.seed={seed}"])) for seed in (1, 1, 2))
    assert before.equal(torch.random.get_rng_state())
    weights = [torch.nn.utils.parameters_to_vector(module.parameters()) for module in (first, again, other)]
    assert weights[0].equal(weights[1])
    assert not weights[0].equal(weights[2])


def test_pretrained_weights_become_the_means(least: Path, tmp_path: Path) -> None:
    pretrained = MLP(1, [4, 4], 1)
    save_file(pretrained.state_dict(), tmp_path / "weights.safetensors")
    config = read_config(least, [f"warm_start.weights={tmp_path / 'weights.safetensors'}"])
    assert config.meta.pretrained
    assert not read_config(least).meta.pretrained
    learner = learner_of(config)
    expected = torch.nn.utils.parameters_to_vector(pretrained.parameters())
    assert learner.network.initial().mu.equal(expected)


def test_weights_that_do_not_fit_are_said(least: Path, tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    config = read_config(least, [f"warm_start.weights={path}"])
    with pytest.raises(ValueError, match=r"warm_start\.weights: .* is not there"):
        network_of(config)
    path.write_bytes(b"nonsense")
    with pytest.raises(ValueError, match="cannot be read"):
        network_of(config)
    save_file(MLP(2, [4], 1).state_dict(), path)
    with pytest.raises(ValueError, match="belongs to another network"):
        network_of(config)


def test_an_engine_by_name_and_a_likelihood_with_its_fields(least: Path) -> None:
    config = read_config(least, ["adaptation.engine=first_order", "likelihood.kind=heteroscedastic", "model.outputs=2"])
    engine = learner_of(config).engine
    assert engine is not None
    assert engine.name == "first_order"
    assert learner_of(config).likelihood.min_scale == 1e-3


SOLAR = """
[model]
kind = "bayesian_unet"
known = 4

[likelihood]
kind = "crps"

[tasks]
kind = "simulated"
"""


def test_a_network_and_frames_that_do_not_fit_are_refused_by_both_keys(tmp_path: Path) -> None:
    path = tmp_path / "solar.toml"
    path.write_text(SOLAR)
    assert isinstance(read_config(path).task_settings, SimulatedTasks)
    assert refused(path, "model.known=0") == [
        'model.known is 0, but with tasks.units "clear_sky" and tasks.target_len 4 it must be 4 (one channel for '
        "each target frame)"
    ]
    assert refused(path, "tasks.units=scaled")[0].startswith('model.known is 4, but with tasks.units "scaled"')
    assert refused(path, "tasks.input_len=3") == ["model.input_len is 4, tasks.input_len is 3; they must be equal"]
    assert refused(path, "model.target_len=4", "tasks.target_len=2", "model.known=2") == [
        "model.target_len is 4, tasks.target_len is 2; they must be equal"
    ]
    assert refused(path, "tasks.patch=8") == ["tasks.patch is 8 pixels, but model.levels 4 needs at least 16"]
    assert read_config(path, ["tasks.patch=0"]).tasks.arguments["patch"] == 0
    assert refused(path, "likelihood.kind=gaussian") == [
        "model.scales is true, but likelihood.kind 'gaussian' needs false"
    ]
    assert refused(path, "likelihood.kind=categorical")[0].startswith("likelihood.kind is 'categorical'; frames are")
    path.write_text(SOLAR.replace('"bayesian_unet"\nknown = 4', '"conv4"'))
    assert refused(path) == ["model.kind is 'conv4'; these tasks are maps, for unet or bayesian_unet"]


def test_a_day_may_be_written_as_toml_writes_it(tmp_path: Path) -> None:
    path = tmp_path / "solar.toml"
    path.write_text(SOLAR + "train_before = 2025-04-01\n")
    assert read_config(path).tasks.arguments["train_before"] == "2025-04-01"
    (line,) = refused(path, "tasks.test_from=soon")
    assert line == "tasks.test_from must be a day such as 2026-02-10, got 'soon'"
    (line,) = refused(path, "tasks.path=x.nc")
    assert line.startswith("tasks.path is not known (did you mean 'patch'?)")


def test_the_section_of_the_inner_loop_is_read_as_adaptation_by_descent(tmp_path: Path, least: Path) -> None:
    old = tmp_path / "old.toml"
    old.write_text(least.read_text() + '\n[inner]\nsteps = 7\nlearn_lr = "one"\n')
    new = read_config(least, ["adaptation.kind=descent", "adaptation.steps=7", "adaptation.learn_lr=one"])
    assert read_config(old) == new
    assert parse({**new.resolved(), "meta": {}}, "saved").adaptation == new.adaptation
    assert refused(old, "adaptation.steps=3")[0].startswith("[inner] is not a section")


def test_every_way_of_adapting_has_its_keys_and_its_settings(least: Path) -> None:
    for kind, way in WAYS.items():
        adaptation, engine = read_config(least, [f"adaptation.kind={kind}"]).adaptation_settings
        assert kind_of(adaptation) == kind
        assert type(adaptation) is way.settings
        assert engine is None
    assert "adaptation.kind must be one of descent" in refused(least, "adaptation.kind=steepest")[0]


def test_only_an_inner_loop_is_planned(least: Path) -> None:
    with pytest.raises(ValueError, match=r"adaptation.kind must be 'descent' to be planned, got 'closed_form'"):
        choices_of(read_config(least, ["adaptation.kind=closed_form"]))
