import sys
import webbrowser
from pathlib import Path

import pytest
from typer.testing import CliRunner

from metaprior import cli
from metaprior.explore import commands


def invoke(*arguments: str) -> str:
    result = CliRunner().invoke(cli.app, ["explore", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def refuse_browsers(monkeypatch: pytest.MonkeyPatch) -> None:
    def started(*_: object) -> bool:
        raise AssertionError("a browser was started")

    monkeypatch.setattr(webbrowser, "open", started)


def test_the_page_is_written_and_its_path_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_browsers(monkeypatch)  # the output is no terminal
    path = tmp_path / "page.html"
    assert invoke("--out", str(path)) == f"written: {path}\nnext: open it in a browser\n"
    assert invoke("--out", str(path), "--no-open").startswith("written")  # its own page is replaced
    assert path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_a_file_of_the_users_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "notes.html"
    path.write_text("mine")
    with pytest.raises(FileExistsError, match=r"no page of this command\. Try another --out"):
        invoke("--out", str(path))
    assert path.read_text() == "mine"
    with pytest.raises(IsADirectoryError, match="must be a file"):
        invoke("--out", str(tmp_path))


def test_a_browser_is_opened_on_a_desktop_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CI", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert not commands.has_desktop()
    monkeypatch.setenv("DISPLAY", ":0")
    assert commands.has_desktop()
    monkeypatch.setenv("CI", "true")
    assert not commands.has_desktop()
    monkeypatch.delenv("CI")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False, raising=False)
    assert not commands.has_desktop()


def test_a_browser_that_fails_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: str) -> bool:
        raise webbrowser.Error("there is none")

    monkeypatch.setattr(webbrowser, "open", fails)
    assert not commands.shown(tmp_path / "page.html")
    opened = []
    monkeypatch.setattr(webbrowser, "open", lambda address: bool(opened.append(address)) or True)
    assert commands.shown(tmp_path / "page.html")
    assert opened == [(tmp_path / "page.html").resolve().as_uri()]
