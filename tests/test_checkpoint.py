import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from metaprior import checkpoint
from metaprior.errors import CheckpointError
from metaprior.likelihoods import Gaussian
from metaprior.priors import NormalPrior

TENSORS = {"mu": torch.arange(1000.0), "rho": torch.tensor([-torch.inf, 0.5])}


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    folder = tmp_path / "fit"
    checkpoint.write(folder, "Kind", TENSORS, {"note": "first"})
    return folder


def tensor_file(folder: Path) -> Path:
    return next(folder.glob("tensors-*.safetensors"))


def test_a_new_checkpoint_replaces_the_old_one_and_leaves_nothing_behind(saved: Path) -> None:
    checkpoint.write(saved, "Kind", {"mu": torch.ones(2)}, {"note": "second"})
    assert checkpoint.read(saved, "Kind")[1]["note"] == "second"
    assert len(list(saved.iterdir())) == 2


def test_an_interrupted_write_leaves_the_old_checkpoint_whole(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = checkpoint.write_file

    def crash_before_the_description(path: Path, content: bytes) -> None:
        if path.name == checkpoint.DESCRIPTION:
            raise KeyboardInterrupt
        real(path, content)

    monkeypatch.setattr(checkpoint, "write_file", crash_before_the_description)
    with pytest.raises(KeyboardInterrupt):
        checkpoint.write(saved, "Kind", {"mu": torch.ones(2)}, {"note": "second"})
    tensors, description = checkpoint.read(saved, "Kind")
    assert description["note"] == "first"
    assert torch.equal(tensors["mu"], TENSORS["mu"])


def test_a_file_is_replaced_only_when_its_content_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def crash(_: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(checkpoint.os, "fsync", crash)
    with pytest.raises(OSError, match="disk full"):
        checkpoint.write_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_what_cannot_be_written_as_json_leaves_the_old_checkpoint_whole(saved: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        checkpoint.write(saved, "Kind", {"mu": torch.ones(2)}, {"note": float("nan")})
    assert checkpoint.read(saved, "Kind")[1]["note"] == "first"


@pytest.mark.parametrize(
    "damage", [lambda c: c[:0], lambda c: c[:7], lambda c: c[:200], lambda c: c[:-1] + bytes([c[-1] ^ 1])]
)
def test_a_truncated_or_altered_tensor_file_is_noticed(saved: Path, damage: Callable[[bytes], bytes]) -> None:
    path = tensor_file(saved)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(CheckpointError, match="damaged"):
        checkpoint.read(saved, "Kind")


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": "other"}'])
def test_a_foreign_description_is_refused(saved: Path, text: str) -> None:
    (saved / checkpoint.DESCRIPTION).write_text(text)
    with pytest.raises(CheckpointError, match=r"checkpoint\.json"):
        checkpoint.read(saved, "Kind")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 99}, "version 99"),
        ({"sha256": None}, "lacks sha256"),
        ({"note": "altered"}, "is damaged: its content is not what was saved"),
        ({"tensors": "../elsewhere.safetensors"}, "damaged"),
    ],
)
def test_a_description_that_was_altered_is_noticed(saved: Path, change: dict[str, Any], message: str) -> None:
    path = saved / checkpoint.DESCRIPTION
    description = json.loads(path.read_text())
    path.write_text(json.dumps(description))  # laid out otherwise: the same content
    checkpoint.read(saved, "Kind")
    path.write_text(json.dumps({**description, **change}))
    with pytest.raises(CheckpointError, match=message):
        checkpoint.read(saved, "Kind")


def test_another_kind_or_a_missing_file_is_named(saved: Path) -> None:
    with pytest.raises(CheckpointError, match="holds a Kind, not a MetaLearner"):
        checkpoint.read(saved, "MetaLearner")
    tensor_file(saved).unlink()
    with pytest.raises(CheckpointError, match="incomplete"):
        checkpoint.read(saved, "Kind")
    with pytest.raises(CheckpointError, match="a checkpoint is a folder"):
        checkpoint.read(saved / "nowhere", "Kind")


def test_a_checkpoint_of_the_version_before_is_still_read(saved: Path) -> None:
    path = saved / checkpoint.DESCRIPTION
    description = json.loads(path.read_text())
    del description["description_sha256"]
    path.write_text(json.dumps({**description, "version": 1}))
    checkpoint.read(saved, "Kind")
    path.write_text(json.dumps(description))
    with pytest.raises(CheckpointError, match="lacks description_sha256"):
        checkpoint.read(saved, "Kind")


@pytest.mark.parametrize("name", ["checkpoint.json", "tensors-00001.safetensors", "thesis.tex"])
def test_a_folder_of_other_things_is_not_written_into(saved: Path, tmp_path: Path, name: str) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / name).write_text('{"mine": "other tool"}')
    for write in (lambda: checkpoint.write(other, "Kind", TENSORS, {}), lambda: checkpoint.duplicate(saved, other)):
        with pytest.raises(CheckpointError, match=name):
            write()
    assert [entry.name for entry in other.iterdir()] == [name]


def test_what_an_interrupted_first_write_left_is_cleaned_by_the_next(tmp_path: Path) -> None:
    (tmp_path / "tensors-0123456789abcdef.safetensors").write_bytes(b"half")
    (tmp_path / "tensors-0123456789abcdef.safetensors.123.tmp").write_bytes(b"half")
    (tmp_path / "checkpoint.json.123.tmp").write_bytes(b"half")
    checkpoint.write(tmp_path, "Kind", TENSORS, {})
    assert len(list(tmp_path.iterdir())) == 2


def test_files_follow_the_umask(saved: Path) -> None:
    reference = saved.parent / "reference"
    reference.touch()
    assert {p.stat().st_mode for p in saved.iterdir()} == {reference.stat().st_mode}


def test_descriptions_rebuild_and_unknown_things_are_refused() -> None:
    for thing in (Gaussian(noise=(0.1, 0.2)), NormalPrior(0.5)):
        description = json.loads(json.dumps(checkpoint.describe(thing, (Gaussian, NormalPrior))))
        assert checkpoint.restore(description, (Gaussian, NormalPrior)) == thing
    with pytest.raises(CheckpointError, match="a NormalPrior cannot be saved"):
        checkpoint.describe(NormalPrior(), (Gaussian,))
    with pytest.raises(CheckpointError, match="cannot rebuild 'Gaussian'"):
        checkpoint.restore({"name": "Gaussian", "noise": -1.0}, (Gaussian,))


def test_a_write_that_fails_leaves_no_new_file(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {path.name: path.read_bytes() for path in saved.iterdir()}
    calls = iter(range(100))
    real = os.fsync

    def full(descriptor: int) -> None:
        if next(calls) == 2:  # the tensors and their folder are synced, the description is not
            raise OSError(errno.ENOSPC, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(checkpoint.os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: .*checkpoint\.json"):
        checkpoint.write(saved, "Kind", {"mu": torch.ones(2)}, {})
    assert {path.name: path.read_bytes() for path in saved.iterdir()} == before


@pytest.mark.parametrize("links", [True, False])
def test_a_duplicate_is_the_same_and_independent(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    def no_links(*_: object) -> None:
        raise OSError("not supported")

    if not links:
        monkeypatch.setattr(checkpoint.os, "link", no_links)
    copy = tmp_path / "copy"
    for _ in range(2):
        checkpoint.duplicate(saved, copy)
    assert {p.name: p.read_bytes() for p in copy.iterdir()} == {p.name: p.read_bytes() for p in saved.iterdir()}
    checkpoint.write(saved, "Kind", {"mu": torch.ones(2)}, {"note": "second"})
    assert checkpoint.read(copy, "Kind")[1]["note"] == "first"
    checkpoint.duplicate(saved, copy)
    assert checkpoint.read(copy, "Kind")[1]["note"] == "second"
    assert len(list(copy.iterdir())) == 2


def test_a_checkpoint_without_an_entry_is_of_another_version(tmp_path: Path) -> None:
    """Its content is what was saved, so it is not damaged."""
    made_by = r"lacks 'gradients': it was made by an older version of metaprior"
    with pytest.raises(CheckpointError, match=made_by), checkpoint.readable(tmp_path):
        raise KeyError("gradients")
