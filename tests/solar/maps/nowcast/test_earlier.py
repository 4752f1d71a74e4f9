"""Earlier moments are over at the time of issue, like the present one, and show something."""

import numpy as np

from metaprior.solar.maps.nowcast.earlier import earlier_moments, spread_moments
from metaprior.solar.maps.nowcast.inputs import LEADS
from tests.solar.maps.nowcast.small import moments


def test_targets_of_earlier_moments_were_there_at_the_time_of_issue() -> None:
    archive = moments()
    for issue in archive.times[[14, 25, -1]]:
        for found in (earlier_moments(archive, issue, 8), spread_moments(archive, issue, 5)):
            assert len(found)
            assert (archive.times[found] + LEADS * archive.step <= issue).all()
            assert (np.diff(found) > 0).all()


def test_the_same_time_of_day_comes_first() -> None:
    archive = moments()
    issue = archive.times[34]
    found = archive.times[earlier_moments(archive, issue, 3)]
    assert (issue - found).tolist() == [day * 86_400 * 10**9 for day in (3, 2, 1)]


def test_frames_of_one_value_are_left_out() -> None:
    archive = moments()
    frames = archive.frames.copy(deep=True)
    frames[:10] = 0.0
    dark = type(archive)(frames)
    assert spread_moments(dark, dark.times[-1], 20).min() >= 10
    assert earlier_moments(dark, dark.times[-1], 20).min() >= 10


def test_an_archive_without_earlier_moments_has_none() -> None:
    archive = moments()
    assert not len(earlier_moments(archive, archive.times[4], 8))
    assert not len(spread_moments(archive, archive.times[4], 8))
