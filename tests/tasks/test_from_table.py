"""Tables of every kind give the same tasks; what is wrong with one is named by column."""

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import metaprior as mp
from metaprior.errors import NotFinite
from metaprior.tasks import GroupedTasks, tables

generator = np.random.default_rng(0)
STATIONS = {
    "station": np.repeat(np.array(["oslo", "lima", "kyiv"]), 20)[generator.permutation(60)],
    "hour": generator.integers(0, 12, 60),
    "temperature": generator.normal(size=60),
    "wind": generator.normal(size=60),
    "power": np.arange(60.0),
    "cloudy": generator.integers(0, 2, 60),
}
ROLES: dict[str, Any] = {"group": "station", "target": "power", "k_shot": 3, "k_query": 4}


def structured(columns: dict[str, Any]) -> Any:
    array = np.empty(60, dtype=[(name, column.dtype) for name, column in columns.items()])
    for name, column in columns.items():
        array[name] = column
    return array


def polars(columns: dict[str, Any]) -> Any:
    return pytest.importorskip("polars").DataFrame(columns)


def arrow(columns: dict[str, Any]) -> Any:
    return pytest.importorskip("pyarrow").table(columns)


def with_tensors(columns: dict[str, Any]) -> Any:
    return {name: torch.from_numpy(own) if own.dtype.kind == "f" else own.tolist() for name, own in columns.items()}


@pytest.mark.parametrize("kind", [pd.DataFrame, polars, arrow, structured, with_tensors])
@pytest.mark.parametrize("time", [None, "hour"])
def test_all_kinds_of_tables_give_the_same_tasks(kind: Callable[[Any], Any], time: str | None) -> None:
    tasks, others = (GroupedTasks.from_table(own, time=time, **ROLES) for own in (STATIONS, kind(STATIONS)))
    assert tasks.groups == others.groups == list(dict.fromkeys(STATIONS["station"].tolist()))
    for one, other in zip(tasks, others, strict=True):
        assert one.name == other.name
        for part in range(2):
            assert all(torch.equal(a, b) for a, b in zip(one[part], other[part], strict=True))


def test_rows_stay_together_and_features_are_all_other_columns() -> None:
    for task in GroupedTasks.from_table(STATIONS, **ROLES):
        for x, y in (task.support, task.query):
            assert (x.dtype, x.shape[1], y.dtype, y.ndim) == (torch.float32, 4, torch.float32, 1)
            for features, row in zip(x, y.int().tolist(), strict=True):
                names = ("hour", "temperature", "wind", "cloudy")
                assert torch.allclose(features, torch.tensor([float(STATIONS[name][row]) for name in names]))
                assert STATIONS["station"][row] == task.name


@pytest.mark.parametrize(
    ("target", "shape", "dtype"),
    [
        ("power", (4,), torch.float32),
        (["power"], (4, 1), torch.float32),
        (["power", "wind"], (4, 2), torch.float32),
        ("cloudy", (4,), torch.int64),
        (["cloudy", "power"], (4, 2), torch.float32),
        (["cloudy", "hour"], (4, 2), torch.int64),
    ],
)
def test_targets(target: Any, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    task = GroupedTasks.from_table(STATIONS, **{**ROLES, "target": target, "features": "temperature"})[0]
    assert (task.query.x.shape, task.query.y.shape, task.query.y.dtype) == ((4, 1), shape, dtype)


def test_columns_of_a_plain_array_are_numbers() -> None:
    array = np.stack([np.repeat([1.0, 2.0], 10), np.arange(20.0), np.arange(20.0)], 1)
    tasks = GroupedTasks.from_table(array, group=0, target=2, k_shot=2, k_query=3)
    assert [task.name for task in tasks] == ["1.0", "2.0"]
    assert torch.equal(tasks[1].query.x[:, 0], tasks[1].query.y)


def test_images_are_a_column_of_a_mapping() -> None:
    table = {"digit": np.arange(12) % 2, "image": np.ones((12, 1, 4, 4)), "place": np.arange(12) // 6}
    task = GroupedTasks.from_table(
        table, group="place", target="digit", features="image", k_shot=range(3), k_query=4, draws=20
    )[0]
    assert task.query.x.shape == (4, 1, 4, 4)
    with pytest.raises(ValueError, match=r"columns of features must be 1-D and of one length, or a single array"):
        GroupedTasks.from_table(table, group="place", target="place", features=["image", "digit"], k_shot=1, k_query=1)


@pytest.mark.parametrize("missing", [np.nan, None, pd.NA])
def test_missing_targets_stay_missing(missing: Any) -> None:
    power = [missing if row % 3 == 0 else float(row) for row in range(60)]
    for table in (pd.DataFrame({**STATIONS, "power": power}), {**STATIONS, "power": power}):
        (task, *_) = GroupedTasks.from_table(table, **{**ROLES, "k_shot": 8, "k_query": 8})
        y = torch.cat([task.support.y, task.query.y])
        assert 0 < int(y.isnan().sum()) < 16
        assert not bool((y[~y.isnan()] % 3 == 0).any())


def test_masked_arrays_and_nullable_integers_have_missing_targets() -> None:
    codes = np.arange(60)
    masked = {**STATIONS, "power": np.ma.MaskedArray(codes, mask=codes % 2 == 0)}
    nullable = pd.DataFrame(STATIONS).assign(power=pd.array([None if i % 2 == 0 else i for i in range(60)], "Int64"))
    for table in (masked, nullable):
        y = GroupedTasks.from_table(table, **{**ROLES, "k_shot": 8, "k_query": 8})[0].query.y
        assert y.isnan().any()
        assert bool((y[~y.isnan()] % 2 == 1).all())


def dates(hours: Any) -> list[datetime]:
    return [datetime(2020, 1, 1) + timedelta(hours=int(hour)) for hour in hours]


@pytest.mark.parametrize(
    "times",
    [
        lambda hours: hours / 2,
        dates,
        lambda hours: np.array(dates(hours), dtype="datetime64[ns]"),
        lambda hours: pd.Series(dates(hours)).dt.tz_localize("UTC"),
        lambda hours: [date.isoformat() for date in dates(hours)],
        lambda hours: np.array([f"{date.isoformat()}Z" for date in dates(hours)]),
    ],
)
def test_supports_lie_before_queries_whatever_times_are_in(times: Callable[[Any], Any]) -> None:
    table = {**STATIONS, "hour": times(STATIONS["hour"])}
    tasks = GroupedTasks.from_table(table, **{**ROLES, "k_shot": (0, 1, 5)}, time="hour", draws=20)
    assert {task.support.size for task in tasks} == {0, 1, 5}
    cuts = set()
    for task in tasks:
        support, query = (STATIONS["hour"][part.y.int().numpy()] for part in (task.support, task.query))
        assert query.size == 4
        assert bool((np.diff(support) >= 0).all())
        assert bool((np.diff(query) >= 0).all())
        assert not support.size or support.max() < query.min(), "strictly before"
        cuts.add(query.min())
    assert len(cuts) > 3
    assert task.query.x.shape[1] == 3, "time is no feature unless it is named"


def test_groups_without_a_moment_between_support_and_query_make_no_task() -> None:
    table = {"group": ["a"] * 6 + ["b"] * 6, "x": range(12), "y": np.arange(12.0), "day": [1] * 6 + [1] * 3 + [2] * 3}
    with pytest.warns(UserWarning, match="the 4 examples that a task needs, with the support before the query") as seen:
        tasks = GroupedTasks.from_table(table, group="group", target="y", time="day", k_shot=2, k_query=2)
    assert seen[0].filename == __file__
    assert tasks.skipped == {"a": 6}


def test_dates_as_groups_have_readable_names() -> None:
    table = {"day": np.repeat(np.array(["2020-01-01", "2020-01-02"], "datetime64[ns]"), 5), "x": range(10)}
    tasks = GroupedTasks.from_table({**table, "y": np.arange(10.0)}, group="day", target="y", k_shot=2, k_query=2)
    assert [task.name for task in tasks] == ["2020-01-01 00:00:00", "2020-01-02 00:00:00"]


def frame(**changes: Any) -> pd.DataFrame:
    return pd.DataFrame({**STATIONS, **changes})


HOLES = np.where(np.arange(60) < 3, np.nan, 1.0)


@pytest.mark.parametrize(
    ("table", "changes", "error", "message"),
    [
        (frame(wind=HOLES), {}, NotFinite, r"feature columns have missing or infinite values: 'wind' \(3 of 60\)"),
        (frame(power=1 / HOLES[::-1] * np.inf), {}, NotFinite, r"target columns have infinite values: 'power' \(57 of"),
        (STATIONS, {"target": "rain"}, ValueError, "target: there is no column 'rain'. Columns are 'station', 'hour'"),
        (frame().set_index("station"), {}, ValueError, r"no column 'station'. Try table.reset_index\(\)"),
        (pd.concat([frame()[["wind"]], frame()], axis=1), {}, ValueError, "there are several columns 'wind'"),
        (
            STATIONS,
            {"target": "station", "group": "hour"},
            TypeError,
            r"'station' must hold numbers, got text. numpy.uni",
        ),
        (frame(note="dry"), {}, TypeError, r"feature column 'note' must hold numbers, got text.*features=\[...\]"),
        (frame(day=np.datetime64("2020-01-01")), {}, TypeError, "column 'day' must hold numbers, got datetime64"),
        (STATIONS, {"features": ["wind", "power"]}, ValueError, r"cannot be features and target, got \['power'\]"),
        (STATIONS, {"features": []}, ValueError, "features must name at least one column, got none"),
        (frame(station=[None, *["a"] * 59]), {}, ValueError, "group column 'station' has 1 missing values of 60"),
        (frame(hour=HOLES), {"time": "hour"}, ValueError, "time column 'hour' has 3 missing values"),
        (
            frame(hour="noon"),
            {"time": "hour"},
            TypeError,
            "'hour' must hold numbers, dates or ISO 8601 text, got 'noon'",
        ),
        ({**STATIONS, "power": np.zeros(7)}, {}, ValueError, "got 60 rows of features and 7 of targets"),
        ({**STATIONS, "station": ["a"]}, {}, ValueError, "60 examples and there are 1 group labels"),
        ([1, 2], {}, TypeError, "table must be a data frame, a mapping .* got list"),
        (STATIONS, {"k_shot": (2, -1)}, ValueError, "k_shot must be an integer of at least 0, got -1"),
        (STATIONS, {"k_shot": ()}, ValueError, r"k_shot must be an integer of at least 0, got \(\)"),
    ],
)
def test_what_is_wrong_with_a_table_is_named(
    table: Any, changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        GroupedTasks.from_table(table, **{**ROLES, **changes})


def test_a_lazy_frame_is_to_be_collected() -> None:
    lazy = polars(STATIONS).lazy()
    with pytest.raises(TypeError, match=r"got LazyFrame. Try table.collect\(\)"):
        GroupedTasks.from_table(lazy, **ROLES)


def test_data_frame_libraries_are_not_imported() -> None:
    for path in Path(tables.__file__).parent.glob("*.py"):
        assert not re.search(r"^\s*(import|from) (pandas|polars|pyarrow)", path.read_text(), re.MULTILINE), path


def test_forecasts_of_a_column_have_its_shape_before_and_after_adaptation() -> None:
    tasks = GroupedTasks.from_table(STATIONS, **ROLES)
    learner = mp.MetaLearner(mp.MLP(4, [3], 1), mp.Gaussian(), adaptation=mp.ClosedForm())
    learner.fit(tasks, epochs=1, tasks_per_epoch=4, meta_batch=2, progress=False)
    support, query = tasks[0].support, tasks[0].query
    before, after = learner.predict(query.x), learner.adapt(support).predict(query.x)
    assert before.mean.shape == after.mean.shape == query.y.shape == (4,)


def test_frames_are_no_tasks_and_the_way_to_make_some_is_named() -> None:
    learner = mp.MetaLearner(mp.MLP(4, [3], 1), mp.Gaussian())
    with pytest.raises(TypeError, match=r"got DataFrame. Try GroupedTasks.from_table\(table, group="):
        learner.fit(pd.DataFrame(STATIONS))
