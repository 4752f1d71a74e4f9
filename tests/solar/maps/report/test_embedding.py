import base64
import math

import numpy as np

from metaprior.solar.maps.report.embedding import embedded
from tests.solar.maps.report.invented import example


def test_embedded_values_are_as_precise_as_stated() -> None:
    maps = example(leads=2, height=5, width=6)
    maps.mean[1, 2, 3] = math.nan
    one = embedded(maps)
    scale = one["scales"]["value"]
    codes = np.frombuffer(base64.b64decode(one["mean"]), dtype="<u2").reshape(2, 5, 6)
    assert codes[1, 2, 3] == 65535
    error = np.abs(scale["low"] + codes * scale["step"] - maps.mean)[~np.isnan(maps.mean)]
    assert error.max() <= scale["step"] / 2 * (1 + 1e-9)
    assert 2 * scale["step"] <= scale["precision"] < 20 * scale["step"]
