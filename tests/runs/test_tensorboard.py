from pathlib import Path

import pytest

from metaprior.runs.tensorboard import PNG_HEADER, TensorBoard

LINE = {"epoch": 1, "step": 7, "phase": "scales", "loss": 1.5, "validation": {"skill": 0.25, "after": {"nll": None}}}


def test_numbers_at_any_depth_and_pictures_arrive(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    picture = PNG_HEADER + b"\x00\x00\x00\x0dIHDR" + (30).to_bytes(4, "big") + (20).to_bytes(4, "big")
    (tmp_path / "curve.png").write_bytes(picture)
    with TensorBoard(tmp_path / "events", 0) as board:
        board.add_epoch(LINE)
        board.add_picture("curve", tmp_path / "curve.png", 7)
    events = accumulator.EventAccumulator(str(tmp_path / "events")).Reload()
    assert set(events.Tags()["scalars"]) == {"loss", "validation/skill", "peak_memory_bytes"}
    (skill,) = events.Scalars("validation/skill")
    assert (skill.step, skill.value) == (7, 0.25)
    (image,) = events.Images("curve")
    assert (image.width, image.height, image.encoded_image_string) == (30, 20, picture)


def test_after_a_resumption_what_was_before_is_there_and_what_was_after_is_not(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    for resumed, steps in ((0, (3, 6, 9)), (6, (9, 12))):
        with TensorBoard(tmp_path, resumed) as board:
            for step in steps:
                board.add_epoch({**LINE, "step": step, "loss": float(resumed)})
    events = accumulator.EventAccumulator(str(tmp_path)).Reload()
    assert [(event.step, event.value) for event in events.Scalars("loss")] == [(3, 0), (6, 0), (9, 6), (12, 6)]


def test_what_is_no_picture_is_refused(tmp_path: Path) -> None:
    (tmp_path / "curve.png").write_bytes(b"GIF")
    with TensorBoard(tmp_path / "events", 0) as board, pytest.raises(ValueError, match="is not a PNG file"):
        board.add_picture("curve", tmp_path / "curve.png", 7)
