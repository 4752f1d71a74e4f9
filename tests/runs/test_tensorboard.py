import sys
from pathlib import Path

import pytest

from metaprior.runs.tensorboard import PNG_HEADER, EventFiles, event_files
from tests.runs.tiny import run

LINE = {"epoch": 1, "step": 7, "phase": "scales", "loss": 1.5, "validation": {"skill": 0.25, "after": {"nll": None}}}


def test_numbers_at_any_depth_and_pictures_arrive(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    picture = PNG_HEADER + b"\x00\x00\x00\x0dIHDR" + (30).to_bytes(4, "big") + (20).to_bytes(4, "big")
    (tmp_path / "curve.png").write_bytes(picture)
    (tmp_path / "other.png").write_bytes(b"GIF")
    with event_files(tmp_path / "events", 0, lambda _: None) as events:
        events.add_epoch(LINE, 1e9)
        events.add_picture("curve", tmp_path / "curve.png", 7)
        with pytest.raises(ValueError, match="is not a PNG file"):
            events.add_picture("curve", tmp_path / "other.png", 7)
    found = accumulator.EventAccumulator(str(tmp_path / "events")).Reload()
    assert set(found.Tags()["scalars"]) == {"loss", "validation/skill", "peak_memory_bytes"}
    (skill,) = found.Scalars("validation/skill")
    assert (skill.step, skill.value) == (7, 0.25)
    (image,) = found.Images("curve")
    assert (image.width, image.height, image.encoded_image_string) == (30, 20, picture)


def test_after_a_resumption_what_was_before_is_there_and_what_was_after_is_not(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    for resumed, steps in ((0, (3, 6, 9)), (6, (9, 12))):
        with event_files(tmp_path, resumed, lambda _: None) as events:
            for step in steps:
                events.add_epoch({**LINE, "step": step, "loss": float(resumed)}, 1e9)
    found = accumulator.EventAccumulator(str(tmp_path)).Reload()
    assert [(event.step, event.value) for event in found.Scalars("loss")] == [(3, 0), (6, 0), (9, 6), (12, 6)]


def test_a_run_without_tensorboard_says_so_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torch.utils.tensorboard", "tensorboard"):
        monkeypatch.setitem(sys.modules, name, None)
    said = run(tmp_path / "run", "meta.epochs=1", "meta.warm_start=0")
    (note,) = [line for line in said if "event files" in line]
    assert note.endswith("pip install 'metaprior[tensorboard]'")
    assert not (tmp_path / "run" / "tensorboard").exists()


def test_other_ranks_write_nothing() -> None:
    EventFiles().add_epoch(LINE, 1e9)
    EventFiles().add_picture("curve", Path("nowhere.png"), 1)
