import re
import subprocess
import sys
from pathlib import Path

import pytest

from metaprior.explore.export import exported
from metaprior.explore.page import INTERACTIVE, NUMERIC, page, script, write_page
from metaprior.explore.problems import PROBLEMS, WAYS, load_learner
from metaprior.methods import MetaLearner


@pytest.fixture(scope="module")
def html() -> str:
    return page()


def test_the_page_is_one_small_file_that_loads_nothing(html: str) -> None:
    assert len(html.encode()) < 600_000
    assert "default-src 'none'" in html
    assert not re.findall(r"(?:src|href)=\"(?!data:|#)", html)
    assert "url(" not in re.sub(r"url\(#", "", html)


def test_the_same_version_writes_the_same_bytes(html: str, tmp_path: Path) -> None:
    write_page(tmp_path / "new" / "page.html")
    assert (tmp_path / "new" / "page.html").read_text(encoding="utf-8") == html


def test_no_number_ends_the_script_that_holds_it(html: str) -> None:
    data = html.split('id="explore-data">')[1].split("</script>")[0]
    assert "<" not in data
    assert html.count("</script>") == 2


def test_scripts_that_compute_touch_no_page() -> None:
    for name in NUMERIC:
        assert not re.search(r"\b(document|window)\b", script(name)), name
    assert all(script(name) for name in INTERACTIVE)


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("way", WAYS)
def test_packaged_learners_are_calibrated_and_those_of_the_settings(problem: str, way: str) -> None:
    learner = load_learner(problem, way)
    made = WAYS[way].new_learner(PROBLEMS[problem])
    assert learner.adaptation_ == made.adaptation_
    assert learner.likelihood == made.likelihood
    assert exported(learner)["way"] == way


def test_a_learner_that_is_not_calibrated_is_refused() -> None:
    learner = load_learner("sinusoids", "context")
    with pytest.raises(ValueError, match=r"must be calibrated.*Try learner.calibrate"):
        exported(learner.with_theta(learner.theta_))


def test_other_ways_to_adapt_are_refused() -> None:
    learner = load_learner("sinusoids", "context")
    other = MetaLearner(learner.module, learner.likelihood, adaptation=_Other())
    other.theta_, other.target_scale_, other.calibration_ = learner.theta_, learner.target_scale_, learner.calibration_
    with pytest.raises(TypeError, match="must be ClosedForm, Descent or Context, got _Other"):
        exported(other)


class _Other:
    __dataclass_fields__ = {}  # noqa: RUF012


def test_importing_metaprior_imports_no_page() -> None:
    code = "import metaprior, sys; assert not [name for name in sys.modules if name.startswith('metaprior.explore')]"
    subprocess.run([sys.executable, "-c", code], check=True)
