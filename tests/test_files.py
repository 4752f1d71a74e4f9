"""Names of new files, and files that appear when they are complete."""

from pathlib import Path

import pytest

from metaprior.files import bare_name, named_after, written_when_complete


def test_names_follow_the_file_or_folder_that_something_is_made_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert named_after("data/power.csv.gz", "forecast.csv") == "power_forecast.csv"
    assert named_after(Path("my runs/one"), "forecast.nc") == "one_forecast.nc"
    (tmp_path / "frames").mkdir()
    monkeypatch.chdir(tmp_path / "frames")
    assert bare_name(".") == "frames"


def test_a_file_that_is_not_complete_does_not_appear(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"

    def interrupted() -> None:
        with written_when_complete(path) as temporary:
            temporary.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == []
    with written_when_complete(path) as temporary:
        temporary.write_text("whole")
    assert path.read_text() == "whole"
