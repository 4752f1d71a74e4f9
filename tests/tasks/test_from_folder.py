"""One file is one group: CSV, NPZ and Parquet."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from metaprior.tasks import GroupedTasks, folder
from metaprior.tasks.folder import read_csv

ROWS = {
    name: {"hour": np.arange(8), "wind": place + np.arange(8.0) / 4, "power": 100.0 * place + np.arange(8.0)}
    for place, name in enumerate(("kyiv", "lima", "oslo"))
}


def write_csv(path: Path, columns: dict[str, Any]) -> None:
    rows = zip(*(np.asarray(column).tolist() for column in columns.values()), strict=True)
    path.write_text("\n".join([",".join(columns), *(",".join(map(str, row)) for row in rows)]) + "\n")


def write_npz(path: Path, columns: dict[str, Any]) -> None:
    np.savez(path, **columns)


def write_parquet(path: Path, columns: dict[str, Any]) -> None:
    pytest.importorskip("pyarrow")
    from pyarrow import parquet, table

    parquet.write_table(table(columns), path)


WRITERS = {".csv": write_csv, ".npz": write_npz, ".parquet": write_parquet}


def filled(path: Path, ending: str = ".csv") -> Path:
    for name in ("oslo", "kyiv", "lima"):
        WRITERS[ending](path / f"{name}{ending}", ROWS[name])
    return path


def opened(path: Path, **changes: Any) -> GroupedTasks:
    return GroupedTasks.from_folder(path, **{"target": "power", "k_shot": 2, "k_query": 3, **changes})


@pytest.mark.parametrize("ending", WRITERS)
@pytest.mark.parametrize("kept", [0, 2**20])
def test_a_folder_is_a_table_with_its_files_as_groups(
    tmp_path: Path, ending: str, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "KEPT_NUMBERS", kept)
    tasks = opened(filled(tmp_path, ending), time="hour", draws=3)
    table = {name: np.concatenate([ROWS[own][name] for own in ROWS]) for name in ROWS["oslo"]}
    table["place"] = np.repeat(list(ROWS), 8)
    same = GroupedTasks.from_table(table, group="place", target="power", time="hour", k_shot=2, k_query=3, draws=3)
    assert tasks.groups == same.groups == ["kyiv", "lima", "oslo"]
    for one, other in zip(tasks, same, strict=True):
        assert one.name == other.name
        assert all(
            torch.equal(a, b) for p, q in zip(one[:2], other[:2], strict=True) for a, b in zip(p, q, strict=True)
        )


def test_images_in_npz_files(tmp_path: Path) -> None:
    for name in "ab":
        np.savez(tmp_path / f"{name}.npz", image=np.ones((6, 2, 4, 4), np.float32), label=np.arange(6))
    task = opened(tmp_path, target="label")[1]
    assert (task.support.x.shape, task.query.y.dtype) == ((2, 2, 4, 4), torch.int64)


def test_columns_of_a_csv_file(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("\ufeffcount, share,note,gap\n1,0.5,dry,\n2, 1e3,wet,NA\n\n")
    columns = read_csv(path)
    assert {name: column.dtype.kind for name, column in columns.items()} == {
        "count": "i",
        "share": "f",
        "note": "O",
        "gap": "f",
    }
    assert columns["share"].tolist() == [0.5, 1000.0]
    assert np.isnan(columns["gap"]).all()


def test_files_of_other_kinds_are_named_and_hidden_ones_ignored(tmp_path: Path) -> None:
    filled(tmp_path)
    (tmp_path / "README.md").write_text("about")
    (tmp_path / ".cache").mkdir()
    with pytest.warns(UserWarning, match=r"1 entries of .* and make no task: README.md") as caught:
        assert len(opened(tmp_path)) == 3
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "other.csv: the file is empty"),
        ("hour;wind;power\n1;2;3\n", "other.csv: columns must be separated by commas"),
        ("hour,wind,power\n1,2,3\n1,2\n", "other.csv: row 3 has 2 fields and the header has 3"),
        ("hour,power\n1,2\n", "other.csv: features: there is no column 'wind'"),
        ("hour,wind,power\n1,,3\n", r"other.csv: feature columns have missing or infinite values: 'wind' \(1 of 1\)"),
        ("hour,wind,power\n1,2,calm\n", "other.csv: target column 'power' must hold numbers, got text"),
    ],
)
def test_odd_files_are_named(tmp_path: Path, content: str, message: str) -> None:
    filled(tmp_path)
    (tmp_path / "other.csv").write_text(content)
    with pytest.raises((ValueError, TypeError), match=message):
        opened(tmp_path)


@pytest.mark.parametrize("name", ["a first one", "the last one"])
@pytest.mark.parametrize("kept", [0, 2**20])
def test_integers_among_numbers_of_other_files_are_numbers(
    tmp_path: Path, name: str, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "KEPT_NUMBERS", kept)
    write_csv(filled(tmp_path) / f"{name}.csv", {**ROWS["oslo"], "power": [0] * 8})
    assert {(task.query.y.dtype, task.query.y.shape) for task in opened(tmp_path)} == {(torch.float32, (3,))}


def test_other_shapes_are_named(tmp_path: Path) -> None:
    for name, size in (("a", 4), ("b", 5)):
        np.savez(tmp_path / f"{name}.npz", image=np.ones((6, size)), label=np.arange(6))
    with pytest.raises(ValueError, match=r"b.npz: x must have the shape \(N, 4\) as in the first file, got \(N, 5\)"):
        opened(tmp_path, target="label")


def test_damaged_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(b"PK damaged")
    with pytest.raises(ValueError, match=r"^a\.npz: "):
        opened(tmp_path)


def test_a_file_that_has_changed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "KEPT_NUMBERS", 0)
    tasks = opened(filled(tmp_path))
    write_csv(tmp_path / "oslo.csv", {name: column[:5] for name, column in ROWS["oslo"].items()})
    with pytest.raises(ValueError, match=r"oslo\.csv had 8 rows when it was opened and has 5 now"):
        tasks[2]


def test_folders_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(NotADirectoryError, match="folder must be an existing folder"):
        opened(tmp_path / "none")
    with pytest.raises(ValueError, match=r"must hold files that end in .csv, .npz, .parquet, got none"):
        opened(tmp_path)
    write_npz(filled(tmp_path) / "oslo.npz", ROWS["oslo"])
    with pytest.raises(ValueError, match="file names must differ without their endings, got 'oslo'"):
        opened(tmp_path)


def test_the_extra_for_parquet_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.parquet").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ModuleNotFoundError, match=r"a.parquet needs pyarrow. Try pip install 'metaprior\[parquet\]'"):
        opened(tmp_path)
