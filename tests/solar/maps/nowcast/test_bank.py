"""Batches of the bank are functions of the seed and their number, and show no window its own future."""

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from metaprior.solar.maps.nowcast import bank as bank_module
from metaprior.solar.maps.nowcast.bank import COARSE, DAYS, FRAMES, LENGTH, SIZE, Bank, Batch, typical_of
from metaprior.solar.maps.nowcast.inputs import INPUTS, LEADS
from metaprior.solar.simulator.worlds import draw_world

SMALL = 32


@pytest.fixture
def numbered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bank:
    """Return a bank whose values tell world, day, frame and column: 1000 w + 100 d^2 + 10 t + column / 2."""
    monkeypatch.setattr(bank_module, "SIZE", SMALL)
    bank = Bank(tmp_path, 3)
    world, day, frame, column = np.ogrid[:3, :DAYS, :FRAMES, :SMALL]
    tells = 100 * day**2 + 10 * frame + column / 2 + 0 * world
    bank.values[:] = tells[:, :, :, None, :] / 8
    coarse = tells[..., ::COARSE] / 1000
    bank.sine[:] = coarse[:, :, :, None, :]
    bank.facts[:] = [(1000 * number, 8, 15 * (number + 1), number % 2) for number in range(3)]
    return bank


def some(bank: Bank, count: int = 30, **changes: int) -> Iterator[Batch]:
    settings = {"size": 4, "crop": 16, "seed": 5, **changes}
    return islice(bank.batches(**settings), count)  # type: ignore[arg-type]


def same(one: Batch, other: Batch) -> bool:
    parts = zip((*one[:2], *one.known, one.minutes), (*other[:2], *other.known, other.minutes), strict=True)
    return all(torch.equal(a.nan_to_num(-1e9), b.nan_to_num(-1e9)) for a, b in parts)


def test_a_batch_is_a_function_of_the_seed_and_its_number(numbered: Bank) -> None:
    three = list(some(numbered, 3))
    (third,) = some(numbered, 1, first=2)
    assert same(three[2], third)
    assert not same(three[0], three[1])
    assert not same(three[0], next(some(numbered, 1, seed=6)))


@pytest.mark.parametrize("crop", [16, 24, SMALL])
def test_windows_have_their_shapes(numbered: Bank, crop: int) -> None:
    batch = next(some(numbered, 1, crop=crop))
    assert batch.frames.shape == (4, INPUTS, crop, crop)
    assert batch.targets.shape == (4, LEADS, crop, crop)
    assert batch.known.sine.shape == batch.known.typical.shape == (4, LENGTH, crop, crop)
    assert batch.known.darkest.shape == (4, crop, crop)
    assert batch.minutes.shape == (4,)
    assert {part.dtype for part in (batch.frames, batch.targets, *batch.known)} == {torch.float32}


def test_targets_follow_inputs_in_one_world_and_other_days_are_known(numbered: Bank) -> None:
    located, known = set(), []
    for batch in some(numbered):
        for number in range(4):
            values = torch.cat([batch.frames[number], batch.targets[number]])
            steps = values.mean((1, 2)).diff()
            torch.testing.assert_close(steps, torch.full((LENGTH - 1,), 10.0), atol=0.3, rtol=0)
            world, told = divmod(float(values[0].min()), 1000)
            assert float(batch.minutes[number]) == 15 * (world + 1)
            sine, typical, darkest = (part[number] for part in batch.known)
            if sine.isfinite().any():
                located.add(world)
                torch.testing.assert_close(1000 * sine, values - 1000 * world, atol=2.5, rtol=0)
            known.append(bool(typical.isfinite().all()))
            if not known[-1]:
                assert typical.isnan().all()
                assert darkest.isnan().all()
                continue
            day = 2 if told > 395 else 1 if told > 95 else 0  # columns and times of the first frame tell up to 36
            offset = (typical - values).mean((1, 2)) + 100 * day**2  # 100 d^2, averaged over other days, at each time
            others = [100.0 * other**2 for other in range(DAYS) if other != day]
            allowed = torch.tensor([*others, sum(others) / 2])
            assert float((offset[:, None] - allowed).abs().amin(1).max()) < 0.5
            assert float((darkest - typical.amin(0)).max()) < 0.5
    assert located == {1}  # coordinates are known of world 1 alone
    assert 0.45 < np.mean(known) < 0.75


def test_windows_are_turned_and_mirrored_with_all_that_is_known(numbered: Bank) -> None:
    directions = set()
    for batch in some(numbered):
        for number in range(4):
            frame, sine = batch.frames[number, 0], batch.known.sine[number, 0]
            rise = torch.stack([(frame[-1] - frame[0]).mean(), (frame[:, -1] - frame[:, 0]).mean()])
            directions.add(tuple(rise.sign().tolist()))
            if sine.isfinite().all():
                other = torch.stack([(sine[-1] - sine[0]).mean(), (sine[:, -1] - sine[:, 0]).mean()])
                torch.testing.assert_close(1000 * other, rise, atol=2.5, rtol=0)
    assert directions == {(0, 1), (0, -1), (1, 0), (-1, 0)}


def test_a_folder_of_other_worlds_is_refused(numbered: Bank) -> None:
    with pytest.raises(ValueError, match=r"facts.npy must hold \(5, 4\), got \(3, 4\). Try another folder"):
        _ = Bank(numbered.folder, 5).facts


@pytest.mark.parametrize("crop", [10, 0, SMALL + 4])
def test_crops_that_do_not_fit_raise(numbered: Bank, crop: int) -> None:
    with pytest.raises(ValueError, match=f"crop must be a multiple of 4 from 4 to 32, got {crop}"):
        next(some(numbered, 1, crop=crop))


def test_worlds_that_are_not_drawn_yet_are_not_read(numbered: Bank) -> None:
    numbered.facts[1] = 0
    with pytest.raises(ValueError, match=r"1 of 3 worlds of .* are not drawn yet. Try draw"):
        next(some(numbered, 1))


def test_usual_and_darkest_values_ignore_what_is_missing() -> None:
    days = torch.tensor([[[1.0, torch.nan]], [[3.0, torch.nan]]])[:, :, None]  # (D, T, H, W) = (2, 1, 1, 2)
    typical, darkest = typical_of(days)
    assert typical[0, 0, 0] == 2
    assert darkest[0, 0] == 1
    assert typical[0, 0, 1].isnan()
    assert darkest[0, 1].isnan()


class InThisProcess:
    """A pool of no other process."""

    def __init__(self, processes: int, context: object, initializer: Callable[..., None], arguments: tuple[Any, ...]):
        initializer(*arguments)

    def __enter__(self) -> "InThisProcess":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def map(self, function: Callable[[int], None], numbers: list[int], chunksize: int) -> Iterator[None]:
        return map(function, numbers)


def test_drawing_resumes_and_stores_the_worlds_of_the_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bank_module, "SIZE", SMALL)
    monkeypatch.setattr(bank_module, "ProcessPoolExecutor", InThisProcess)
    bank = Bank(tmp_path / "bank", 2)
    bank.draw(11, progress=False)
    for number in range(2):
        world = draw_world(11 + number, size=SMALL, days=DAYS, frames=FRAMES)
        mean, scale, minutes, located = bank.facts[number]
        assert (minutes, located) == (world.cadence, world.located)
        stored = np.asarray(bank.values[number], np.float64) * scale + mean
        np.testing.assert_allclose(stored, world.values, atol=4e-3 * scale, rtol=1e-3)
        np.testing.assert_allclose(bank.sine[number, 0, 0].mean(), world.sine[0, 0].mean(), atol=1e-3)
    first, kept = np.array(bank.values[0]), np.array(bank.values[1])
    bank.values[0], bank.facts[0] = 0, 0
    bank.values[1] += 1  # what is there is not drawn again
    again = Bank(bank.folder, 2)
    again.draw(11, progress=False)
    np.testing.assert_array_equal(again.values[0], first)
    np.testing.assert_array_equal(again.values[1], kept + 1)


@pytest.mark.slow
def test_processes_draw_what_one_draws(tmp_path: Path) -> None:
    bank = Bank(tmp_path, 2)
    bank.draw(11, processes=2, progress=False)
    world = draw_world(12, size=SIZE, days=DAYS, frames=FRAMES)
    mean, scale = bank.facts[1, :2]
    stored = np.asarray(bank.values[1], np.float64) * scale + mean
    np.testing.assert_allclose(stored, world.values, atol=4e-3 * scale, rtol=1e-3)
