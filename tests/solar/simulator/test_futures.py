"""The truth: what could have followed is distributed as what did follow."""

from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from metaprior.solar.simulator import Simulator, record
from metaprior.solar.sun import clear_sky

STEPS, CONTINUATIONS = 3, 9
HOUR = np.timedelta64(1, "h")


class Many(NamedTuple):
    """Clear-sky index now (N, P), later (N, STEPS, P) and in continuations (N, CONTINUATIONS, STEPS, P)."""

    now: NDArray[np.float64]
    later: NDArray[np.float64]
    continued: NDArray[np.float64]


@pytest.fixture(scope="module")
def many() -> Many:
    """Three times a day, 40 days, 4 pixels that lie 14 apart."""
    simulator = Simulator(days=40, size=16, seed=5, cadence="1h")
    rows = []
    for day in range(simulator.days):
        for hour in (8, 11, 14):
            index = simulator.index_of(np.datetime64("2025-03-01T00:00") + 24 * day * HOUR + hour * HOUR)
            rows.append(now_later_continued(simulator, index))
    return Many(*(np.stack(column) for column in zip(*rows, strict=True)))


def now_later_continued(simulator: Simulator, index: int) -> tuple[NDArray[np.float64], ...]:
    """The record's own future is made from its recorded innovations."""
    state = simulator.state_at(index)
    seen = [simulator.clear_sky_index(state)[0]]
    for _ in range(STEPS):
        state = simulator.advance(state, simulator.innovations(state.step))
        seen.append(simulator.clear_sky_index(state)[0])
    times = simulator.times[index] + (1 + np.arange(STEPS)) * HOUR
    ceiling = clear_sky(times, simulator.latitude, simulator.longitude)
    continued = simulator.futures(index, continuations=CONTINUATIONS, steps=STEPS, seed=1) / ceiling
    pixels = (..., slice(0, None, 14), slice(0, None, 14))
    now, later = np.stack(seen)[pixels][0], np.stack(seen)[pixels][1:]
    return now.reshape(-1), later.reshape(STEPS, -1), continued[pixels].reshape(CONTINUATIONS, STEPS, -1)


def rank_shares(continued: NDArray[np.float64], later: NDArray[np.float64]) -> NDArray[np.float64]:
    """How often what happened has rank 0 to CONTINUATIONS among the continuations, (STEPS, CONTINUATIONS + 1)."""
    ranks = (continued < later[:, None]).sum(1)
    return np.stack([np.bincount(ranks[:, step].ravel(), minlength=CONTINUATIONS + 1) for step in range(STEPS)]) / (
        ranks[:, 0].size
    )


def test_what_happened_has_any_rank_among_the_continuations(many: Many) -> None:
    """Shares of 0.1 within 0.05, which is 3.6 standard errors of 480 independent ranks."""
    shares = rank_shares(many.continued, many.later)
    assert np.abs(shares - 0.1).max() < 0.05


@pytest.mark.parametrize("factor", [0.6, 1.7])
def test_a_spread_that_is_not_the_truth_would_be_noticed(many: Many, factor: float) -> None:
    middle = many.continued.mean(1, keepdims=True)
    shares = rank_shares(middle + factor * (many.continued - middle), many.later)
    assert np.abs(shares - 0.1).max(1).min() > 0.05


def test_error_of_the_mean_is_the_spread_and_less_than_that_of_persistence(many: Many) -> None:
    mean, variance = many.continued.mean(1), many.continued.var(1, ddof=1).mean((0, 2))
    squared = np.square(mean - many.later).mean((0, 2))
    assert squared == pytest.approx(variance * (1 + 1 / CONTINUATIONS), rel=0.15)
    persistence = np.square(many.now[:, None] - many.later).mean((0, 2))
    assert (squared < 0.8 * persistence).all()
    assert (np.diff(variance) > 0.05 * variance[0]).all()


def test_recorded_innovations_lead_to_the_recorded_frames() -> None:
    simulator = Simulator(days=2, size=12)
    frames = simulator.frames(progress=False).values
    state = simulator.state_at(9)
    ceiling = clear_sky(simulator.times[10:14], simulator.latitude, simulator.longitude)
    for number in range(4):
        state = simulator.advance(state, simulator.innovations(state.step))
        np.testing.assert_array_equal(
            frames[10 + number], (simulator.clear_sky_index(state)[0] * ceiling[number]).astype("f4")
        )


def test_a_continuation_depends_on_seed_and_number_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    simulator = Simulator(days=1, size=8)
    five = simulator.futures(6, continuations=5, steps=3, seed=2)
    assert five.shape == (5, 3, 8, 8)
    assert five.dtype == np.float32
    monkeypatch.setattr(record, "CONTINUATIONS_AT_ONCE", 2)
    np.testing.assert_allclose(simulator.futures(6, continuations=3, steps=2, seed=2), five[:3, :2], rtol=1e-5)
    assert np.abs(simulator.futures(6, continuations=5, steps=3, seed=3) - five).max(axis=(1, 2, 3)).min() > 1
    assert np.abs(five[0] - five[1]).max() > 1


def test_futures_go_on_past_the_record_and_into_the_night() -> None:
    simulator = Simulator(days=1, size=4)
    last = simulator.futures(len(simulator.times) - 1, continuations=2, steps=3)
    assert (last == 0).all()
    longer = Simulator(days=2, size=4)
    np.testing.assert_array_equal(longer.futures(8, continuations=2), simulator.futures(8, continuations=2))
