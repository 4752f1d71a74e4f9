from pathlib import Path

import numpy as np
import pytest

from metaprior.solar.maps.report.simulated_futures import simulated_futures

HOW = {"minutes": 30, "units": "W m-2", "title": "futures"}


def test_a_picture_is_written(tmp_path: Path) -> None:
    values = np.random.default_rng(0).uniform(0, 800, (5, 3, 6, 6))
    path = tmp_path / "new" / "futures.png"
    simulated_futures(path, observed=values[0], continued=values[1:], **HOW)  # type: ignore[arg-type]
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("shape", [(1, 3, 6, 6), (4, 2, 6, 6)])
def test_futures_of_something_else_are_refused(shape: tuple[int, ...], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"2 or more futures of the shape \(3, 6, 6\) of observed, got"):
        simulated_futures(tmp_path / "a.png", observed=np.ones((3, 6, 6)), continued=np.ones(shape), **HOW)  # type: ignore[arg-type]
