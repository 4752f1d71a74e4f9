"""The public types of the wheel are what a user's own project is checked against."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parent / "typed_project"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return Path(shutil.copytree(PROJECT, tmp_path / "project", ignore=shutil.ignore_patterns("__pycache__")))


def test_a_users_project_passes_mypy(fresh_python: Path, project: Path, outside: dict[str, str]) -> None:
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--python-executable", str(fresh_python)]
    command += ["--cache-dir", str(project.parent / "cache"), "."]
    done = subprocess.run(command, cwd=project, env=outside, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_a_users_project_passes_pyright(fresh_python: Path, project: Path, outside: dict[str, str]) -> None:
    pytest.importorskip("pyright", reason="pyright is not installed: pip install 'metaprior[dev]'")
    settings = {"typeCheckingMode": "strict", "reportMissingTypeStubs": False}
    (project / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--pythonpath", str(fresh_python), "--outputjson"]
    done = subprocess.run(command, cwd=project, env=outside, capture_output=True, text=True, check=False)
    try:
        found = json.loads(done.stdout)["generalDiagnostics"]
    except json.JSONDecodeError:
        pytest.skip(f"pyright could not be started, it needs the npm registry at first: {done.stderr[-500:]}")
    assert [f"{Path(one['file']).name}: {one['message']}" for one in found] == []
