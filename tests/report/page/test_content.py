from typing import Any

import pytest

from tests.report.page.invented import content


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"ours": "nobody"}, r"ours must be a method of scores \(Adapted meta-prior, .*\), got 'nobody'"),
        ({"scores": [{"method": "a"}]}, r"scores\[0\] lacks lead_minutes; it has method"),
        ({"scores": [{"method": "a", "lead_minutes": "30"}]}, r"lead_minutes must be a number or \"all\", got '30'"),
        ({"learning_curve": [{"method": "a", "shots": 1}] * 2}, r"learning_curve\[1\]: 'a' has shots 1 twice"),
    ],
)
def test_rows_are_checked(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        content(**given)
