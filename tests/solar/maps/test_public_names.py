"""The names of ``metaprior.solar.maps`` are imported when they are used."""

import subprocess
import sys

import pytest

from metaprior.solar import maps

HEAVY = ("xarray", "pvlib", "pandas", "netCDF4")


def test_every_public_name_can_be_imported_and_no_other() -> None:
    assert sorted(maps.MODULE_OF) == sorted(maps.__all__)
    for name in maps.__all__:
        assert getattr(maps, name) is not None
    with pytest.raises(AttributeError, match=r"'metaprior\.solar\.maps' has no attribute 'frames'"):
        _ = maps.frames


def test_the_package_and_its_registration_import_nothing_heavy() -> None:
    check = f"import sys, metaprior.solar.maps.application; print([name for name in {HEAVY} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True).stdout == "[]\n"
