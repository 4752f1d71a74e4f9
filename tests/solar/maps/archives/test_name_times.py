"""Times in the names of files, as agencies write them."""

import numpy as np
import pytest

from metaprior.solar.maps.archives.name_times import times_in_names

HOURS = np.datetime64("2023-04-10T12:00") + np.arange(6) * np.timedelta64(10, "m")


def names(form: str) -> list[str]:
    """Return names in which ``strftime`` of the form stands."""
    return [time.astype(object).strftime(form) for time in HOURS]


@pytest.mark.parametrize(
    "form",
    [
        "%Y-%m-%d_%H%M.npy",
        "SISin%Y%m%d%H%M002231000101MA.nc",
        "HDF5_LSASAF_MSG_DSSF_MSG-Disk_%Y%m%d%H%M",
        "NC_H09_%Y%m%d_%H%M_R21_FLDK.02801_02401.nc",
        "OR_ABI-L2-DSRC-M6_G16_s%Y%j%H%M000_e%Y%j%H%M515_c20231001214563.nc",
        "MSG4-SEVI-MSG15-0100-NA-%Y%m%d%H%M00.896000000Z-NA.nc",
        "MCD_A%Y%j.%H%M.hdf",
        "sat_%Y-%m-%dT%H-%M-00.nc",
        "sat.%Y%m%dT%H%M00Z.h5",
        "%Y/%m/%d/%H%M.nc",
        "%Y%m%d/clouds_%H:%M_v2.nc",
        "created_20240101_0930_of_%Y%m%d_%H%M.nc",
    ],
)
def test_times_are_found(form: str) -> None:
    found = times_in_names(names(form))
    assert found is not None
    np.testing.assert_array_equal(found.times, HOURS.astype("datetime64[ns]"))


def test_seconds_since_1970_and_days() -> None:
    seconds = HOURS.astype("datetime64[s]").astype(int)
    for texts in ([f"a_{s}.nc" for s in seconds], [f"a_{s}000.nc" for s in seconds]):
        found = times_in_names(texts)
        assert found is not None
        np.testing.assert_array_equal(found.times, HOURS.astype("datetime64[ns]"))
    daily = times_in_names(["sis_20230601.nc", "sis_20230602.nc"])
    assert daily is not None
    assert np.diff(daily.times) == np.timedelta64(1, "D")


def test_the_time_of_the_picture_and_not_of_its_making_is_taken() -> None:
    made = [
        f"C_EUMT_202304101{hour}_OPE_{name}.nc"
        for hour, name in zip(
            ["11233", "22911", "33407", "43105", "53811", "63407"], names("%Y%m%d%H%M00"), strict=True
        )
    ]
    found = times_in_names(made)
    assert found is not None
    np.testing.assert_array_equal(found.times, HOURS.astype("datetime64[ns]"))


def test_names_without_a_time() -> None:
    assert times_in_names(["a.nc", "version_2_1000.nc"]) is None
    found = times_in_names([*names("%Y%m%d_%H%M"), "notes_1.nc"])
    assert found is not None
    assert np.isnat(found.times).tolist() == [False] * 6 + [True]


@pytest.mark.parametrize("pattern", ["a_%d%b%y_%H%M", "a_*_%H%M", "%d%b%y_%H%M"])
def test_a_pattern_says_where_the_time_is(pattern: str) -> None:
    texts = names("20000101_a_%d%b%y_%H%M.nc")
    if "*" in pattern:
        with pytest.raises(ValueError, match="time_pattern must be a pattern of strptime with year, day and clock"):
            times_in_names(texts, pattern)
        return
    found = times_in_names(texts, pattern)
    assert found is not None
    np.testing.assert_array_equal(found.times, HOURS.astype("datetime64[ns]"))
    assert times_in_names(["b.nc"], pattern) is None


@pytest.mark.parametrize("pattern", ["%Q%Y%m%d", "%Y%Y%m%d", "noon", ""])
def test_patterns_that_are_none(pattern: str) -> None:
    with pytest.raises(ValueError, match="time_pattern must be a pattern of strptime"):
        times_in_names(["a"], pattern)


@pytest.mark.parametrize(
    ("form", "ahead"),
    [("m_%Y%m%dT%H%M+0200.nc", 2), ("%Y-%m-%dT%H:%M:%S-05:00.nc", -5), ("%Y%m%d_%H%M-0300.nc", -3)],
)
def test_a_time_zone_in_all_names_is_followed(form: str, ahead: int) -> None:
    found = times_in_names(names(form))
    assert found is not None
    np.testing.assert_array_equal(found.times, HOURS.astype("datetime64[ns]") - np.timedelta64(ahead, "h"))
    assert "zone" in found.form


def test_the_clock_of_the_end_is_no_time_zone() -> None:
    ends = [str(time)[11:16].replace(":", "") for time in HOURS + np.timedelta64(10, "m")]
    begun = [f"{name}-{end}.nc" for name, end in zip(names("%Y%m%d_%H%M"), ends, strict=True)]
    for texts in (begun, begun[:1]):
        found = times_in_names(texts)
        assert found is not None
        np.testing.assert_array_equal(found.times, HOURS.astype("datetime64[ns]")[: len(texts)])


@pytest.mark.parametrize("form", ["m_%Y%m%d_%I%M%p.nc", "%Y-%m-%d_%I-%M-%S_%p.nc"])
@pytest.mark.parametrize("pattern", [False, True])
def test_clocks_of_twelve_hours(form: str, pattern: bool) -> None:
    texts = names(form)
    found = times_in_names(texts, form if pattern else None)
    assert found is not None
    np.testing.assert_array_equal(found.times, HOURS.astype("datetime64[ns]"))


def test_a_pattern_may_name_the_zone() -> None:
    found = times_in_names([f"{name}+0530" for name in names("%d.%m.%Y %H.%M")], "%d.%m.%Y %H.%M%z")
    assert found is not None
    assert found.times[0] == np.datetime64("2023-04-10T06:30")
