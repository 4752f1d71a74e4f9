"""A headless Chromium that opens pages; tests that need it skip with a reason where there is none."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
WebDriverWait = pytest.importorskip("selenium.webdriver.support.wait").WebDriverWait


def _program(*names: str) -> str:
    for name in names:
        if found := shutil.which(name):
            return found
    return pytest.skip(f"{' or '.join(names)} is not installed")


@contextmanager
def opened(profile: Path, *, width: int = 1280, height: int = 800) -> "Iterator[webdriver.Chrome]":
    """A browser with a profile of its own, in a new folder; closed at the end."""
    options = webdriver.ChromeOptions()
    options.binary_location = _program("chromium", "chromium-browser", "google-chrome")
    for flag in (*FLAGS, f"--window-size={width},{height}", f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    # The driver's path is given, so that selenium does not go and look for one on the network.
    service = webdriver.ChromeService(_program("chromedriver"))
    browser = webdriver.Chrome(options=options, service=service)
    try:
        yield browser
    finally:
        browser.quit()


def show(browser: "webdriver.Chrome", page: Path) -> None:
    """Open a page of this package and wait until its script has run."""
    browser.get(page.as_uri())
    ready = "return location.href === arguments[0] && document.documentElement.classList.contains('js')"
    WebDriverWait(browser, 30).until(lambda _: browser.execute_script(ready, page.as_uri()))
