"""Open pages in a headless Chromium; tests that need it are skipped where there is none."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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


def _program(*names: str) -> str:
    for name in names:
        if found := shutil.which(name):
            return found
    return pytest.skip(f"{' or '.join(names)} is not installed")


@contextmanager
def opened(profile: Path) -> "Iterator[Browser]":
    """Yield a browser with a new profile, and close it at the end."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = _program("chromium", "chromium-browser", "google-chrome")
    for flag in (*FLAGS, "--window-size=1280,800", f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    # With the driver's path, selenium does not look for one on the network.
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(_program("chromedriver")))
    try:
        yield Browser(driver)
    finally:
        driver.quit()


class Browser:
    """A page of this package as its reader uses it; elements are named by their ids."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self.run = driver.execute_script
        self.command = driver.execute_cdp_cmd

    def show(self, page: Path) -> "Browser":
        """Open a page; its scripts have run when this returns."""
        self.driver.get(page.as_uri())
        assert self.run("return document.documentElement.classList.contains('js')")
        return self

    def all(self, selector: str) -> list[Any]:
        return list(self.driver.find_elements("css selector", selector))

    def displayed(self, selector: str) -> bool:
        return all(found.is_displayed() for found in self.all(selector))

    def text(self, name: str) -> str:
        return str(self.driver.find_element("id", name).get_attribute("textContent"))

    def click(self, name: str) -> None:
        self.run("document.getElementById(arguments[0]).click()", name)

    def choose(self, name: str, index: int) -> None:
        script = (
            "const s = document.getElementById(arguments[0]); s.selectedIndex = arguments[1];"
            "s.dispatchEvent(new Event('change'))"
        )
        self.run(script, name, index)

    def press(self, name: str, *keys: str) -> None:
        self.driver.find_element("id", name).send_keys(*keys)

    def point_at(self, row: int, column: int) -> None:
        """Move the real pointer to the centre of a pixel of the map."""
        from selenium.webdriver import ActionChains

        canvas = self.driver.find_element("id", "map")
        self.run("arguments[0].scrollIntoView({block: 'center'})", canvas)
        width, height, columns, rows = self.run(
            "const c = arguments[0], b = c.getBoundingClientRect(); return [b.width, b.height, c.width, c.height]",
            canvas,
        )
        x, y = (column + 0.5) * width / columns - width / 2, (row + 0.5) * height / rows - height / 2
        ActionChains(self.driver, duration=0).move_to_element_with_offset(canvas, round(x), round(y)).perform()

    def pixels(self) -> list[int]:
        """Return red, green, blue and opacity of the map, read from a copy: Chromium warns of repeated reading."""
        script = """
            const map = document.getElementById("map"), copy = document.createElement("canvas");
            [copy.width, copy.height] = [map.width, map.height];
            const context = copy.getContext("2d", { willReadFrequently: true });
            context.drawImage(map, 0, 0);
            return context.getImageData(0, 0, map.width, map.height).data.join(" ");
        """
        return [int(channel) for channel in self.run(script).split()]

    def value(self, layer: str) -> float:
        """Return the value that is shown of a layer at the pointer."""
        number, units = self.text(f"value-{layer}").split(" ", 1)
        assert units == "reflectance"
        return float(number.replace("−", "-"))
