"""The wheel and the sdist, built once, and a fresh environment with the wheel."""

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("build", reason="build is not installed: pip install 'metaprior[dev]'")
pytest.importorskip("hatchling", reason="hatchling is not installed: pip install 'metaprior[dev]'")

ROOT = Path(__file__).parents[2]


def build(source: Path, out: Path, *options: str) -> Path:
    """Build wheel and sdist into a folder, and return it; nothing is downloaded."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), *options, str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, tmp_path_factory.mktemp("built"))


@pytest.fixture(scope="session")
def fresh_python(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the wheel, which borrows the dependencies from this environment."""
    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    paths = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (packages / "dependencies.pth").write_text("\n".join(sorted(paths)) + "\n")  # without the editable metaprior
    return folder / "bin" / "python"


@pytest.fixture(scope="session")
def outside() -> dict[str, str]:
    """Environment variables of a process that knows nothing of the working tree."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MYPYPATH")}
