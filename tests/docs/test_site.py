"""The site is built without a warning, needs no network, and works from a folder."""

import html
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from metaprior.cli import app
from tests.docs.pages import DOCS, PAGES, ROOT
from tests.solar.maps.report.browser import Browser, opened

pytest.importorskip("mkdocs", reason="mkdocs is not installed: pip install 'metaprior[docs]'")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)]
    built = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True
    )
    assert (built.returncode, built.stdout, built.stderr) == (0, "", "")
    return folder


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with opened(tmp_path_factory.mktemp("profile")) as found:
        yield found


def test_every_page_is_there(site: Path) -> None:
    pages = [page.relative_to(DOCS).with_suffix(".html") for page in PAGES]
    assert [str(page) for page in pages if not (site / page).is_file()] == []


def test_frames_and_links_outside_of_markdown_lead_somewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        own = re.findall(r"<(?:iframe|a)\b[^>]*\b(?:src|href)=\"([^\"#:?]+\.html)", page.read_text())
        assert [address for address in own if page.name != "404.html" and not (page.parent / address).is_file()] == []


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        loaded = re.findall(r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=\"([^\"]*)\"", page.read_text())
        assert [address for address in loaded if re.match(r"(?:https?:)?//", address)] == []


def test_formulas_are_mathml(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text()
        assert "arithmatex" not in text
        formulas = re.findall(r"<math.*?</math>", text, re.DOTALL)
        assert [formula for formula in formulas if "\\" in formula or "merror" in formula] == []
    assert "<math" in (site / "methods" / "abml.html").read_text()


def test_the_reference_has_the_help_of_every_command(site: Path) -> None:
    text = html.unescape((site / "reference" / "command-line.html").read_text())
    command: Any = typer.main.get_command(app)
    for name, below in command.commands.items():
        assert f"Usage: metaprior {name} " in text
        for own in getattr(below, "commands", {}):
            assert f"Usage: metaprior {name} {own} " in text


def test_the_search_works_from_a_folder(site: Path, browser: Browser) -> None:
    browser.driver.get((site / "index.html").as_uri())
    browser.run("const box = document.querySelector('.md-search__input'); box.focus(); box.value = 'temperature';")
    found: list[str] = []
    for _ in range(100):
        browser.run("document.querySelector('.md-search__input').dispatchEvent(new KeyboardEvent('keyup'))")
        found = browser.run("return [...document.querySelectorAll('.md-search-result__link')].map(link => link.href)")
        if found:
            break
        time.sleep(0.1)
    assert any("conventions.html" in address for address in found)
    loaded = browser.run("return performance.getEntriesByType('resource').map(entry => entry.name)")
    assert [address for address in loaded if not address.startswith("file:")] == []
    assert browser.driver.get_log("browser") == []


@pytest.mark.parametrize("page", ["index", "choosing", "glossary", "methods/closed-form", "reference/methods"])
def test_pages_fit_a_narrow_screen(site: Path, browser: Browser, page: str) -> None:
    size = {"width": 400, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    browser.command("Emulation.setDeviceMetricsOverride", size)
    browser.driver.get((site / f"{page}.html").as_uri())
    assert browser.run("return document.documentElement.scrollWidth") <= 400
    assert browser.driver.get_log("browser") == []
