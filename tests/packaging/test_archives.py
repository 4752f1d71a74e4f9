"""Wheel and sdist have every file they should have, and are bitwise reproducible."""

import shutil
import subprocess
import tarfile
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

from tests.packaging.conftest import ROOT, build

GENERATED = {"PKG-INFO"}
LINK = "configs"  # to metaprior/configs


def committed() -> set[str]:
    """Return the files that git knows, and those that it would add; skip outside of a clone."""
    if not (ROOT / ".git").exists():
        pytest.skip("this is no clone of the repository")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    return {name for name in names if name and (ROOT / name).exists()}


def names_in_wheel(folder: Path) -> set[str]:
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def names_in_sdist(folder: Path) -> set[str]:
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        return {name.split("/", 1)[1] for name in archive.getnames()}


def test_the_sdist_has_what_git_has(built: Path) -> None:
    assert names_in_sdist(built) - GENERATED == committed() - {LINK}


def test_the_wheel_has_the_package_and_its_licence(built: Path) -> None:
    names = names_in_wheel(built)
    assert {name for name in names if ".dist-info/" not in name} == {
        name for name in committed() if name.startswith("metaprior/")
    }
    own = {name.split(".dist-info/")[1] for name in names if ".dist-info/" in name}
    assert own == {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"}


@pytest.mark.parametrize("suffix", [".toml", ".safetensors", ".json", ".html", ".css", ".js", ".md", "py.typed"])
def test_the_wheel_has_files_of_every_kind(built: Path, suffix: str) -> None:
    assert [name for name in names_in_wheel(built) if name.endswith(suffix)]


def test_builds_of_another_day_and_user_are_bitwise_identical(built: Path, tmp_path: Path) -> None:
    """The sdist is unpacked elsewhere with other times and permissions, and built into an sdist and a wheel again."""
    (sdist,) = built.glob("*.tar.gz")
    shutil.unpack_archive(sdist, tmp_path / "unpacked", filter="data")
    (source,) = (tmp_path / "unpacked").iterdir()
    for path in source.rglob("*"):
        path.touch()
        path.chmod(0o700 if path.is_dir() or path.stat().st_mode & 0o100 else 0o600)
    again = build(source, tmp_path / "again")
    first, second = ({path.name: path.read_bytes() for path in folder.iterdir()} for folder in (built, again))
    assert {name for name in first if first[name] != second.get(name)} == set()


def test_the_metadata_says_what_a_user_looks_for(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("METADATA")]
        found = message_from_bytes(archive.read(name))
    assert found["License-Expression"] == "MIT"
    assert found["Requires-Python"] == ">=3.11"
    assert found["Description-Content-Type"] == "text/markdown"
    assert "Typing :: Typed" in found.get_all("Classifier", [])
    assert "torchvision" not in str(found)
