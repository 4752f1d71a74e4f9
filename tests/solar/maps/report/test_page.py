import base64
import math
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from metaprior.report.page.content import PageContent
from metaprior.report.page.writing import write_page
from metaprior.solar.maps.report.content import maps_section
from metaprior.solar.maps.report.example import ExampleForecast
from tests.report.page.invented import content
from tests.solar.maps.report.browser import Browser, opened
from tests.solar.maps.report.invented import example

EXAMPLES = (
    example(),
    example("Desert", seed=3, height=24, width=24, latitude=None, longitude=None, samples=None),
)
LAYERS: dict[str, Callable[[ExampleForecast, int], Any]] = {
    "target": lambda maps, lead: maps.target[lead],
    "mean": lambda maps, lead: maps.mean[lead],
    "std": lambda maps, lead: maps.std[lead],
    "error": lambda maps, lead: maps.mean[lead] - maps.target[lead],
    "sample": lambda maps, lead: maps.samples[0, lead],  # type: ignore[index]
    "input": lambda maps, lead: maps.inputs[-1],  # type: ignore[index]
}


def only(*examples: ExampleForecast) -> PageContent:
    """Return a page of maps and nothing else, which is quick to write and to open."""
    return PageContent(title="t", story="s", units="reflectance", sections=[maps_section(examples)])


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with opened(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The complete page, and the page of maps only."""
    folder = tmp_path_factory.mktemp("pages")
    maps = only(*EXAMPLES)
    write_page(folder / "all.html", content(sections=maps.sections))
    write_page(folder / "maps.html", maps)
    return folder / "all.html", folder / "maps.html"


@pytest.fixture
def browser(started: Browser, pages: tuple[Path, Path]) -> Browser:
    """The complete page, freshly opened."""
    return started.show(pages[0])


@pytest.fixture
def panel(started: Browser, pages: tuple[Path, Path]) -> Browser:
    """The page of maps, freshly opened."""
    return started.show(pages[1])


def test_the_page_fetches_nothing_and_shows_one_table_of_a_measure(browser: Browser) -> None:
    def captions() -> list[str]:
        return [caption.text for caption in browser.all(".by-lead caption") if caption.is_displayed()]

    assert browser.driver.get_log("browser") == []
    assert browser.run("return performance.getEntriesByType('resource').map((entry) => entry.name)") == []
    assert captions() == ["RMSE (reflectance) by lead time"]
    browser.choose("measure", 5)
    assert captions() == ["CRPS (reflectance) by lead time"]


def test_the_page_fits_screens_and_paper(browser: Browser) -> None:
    for width in (400, 1280):
        metrics = {"width": width, "height": 800, "deviceScaleFactor": 2, "mobile": False}
        browser.command("Emulation.setDeviceMetricsOverride", metrics)
        assert browser.run("return document.documentElement.scrollWidth") == width
        box = browser.run("return document.getElementById('map').getBoundingClientRect().toJSON()")
        assert 0 < box["left"] < box["right"] < width
        assert box["width"] * 2 % 40 == pytest.approx(0, abs=1e-6)  # every value covers equally many pixels
    browser.command("Emulation.clearDeviceMetricsOverride", {})
    assert browser.displayed("#panel")
    assert not browser.displayed(".static img")
    browser.command("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        assert browser.displayed(".static img, .by-lead")
        assert not browser.displayed("#panel")
        assert not browser.displayed("#settings")
        assert browser.run("return document.querySelector('.static img').naturalWidth") > 800
    finally:
        browser.command("Emulation.setEmulatedMedia", {"media": ""})
    printed = browser.command("Page.printToPDF", {"preferCSSPageSize": True})
    assert base64.b64decode(printed["data"]).startswith(b"%PDF")


def test_values_under_the_pointer_are_those_of_the_arrays(panel: Browser) -> None:
    maps, lead = EXAMPLES[0], 2
    panel.all("#strip button")[lead].click()
    stated = [float(found) for found in re.findall(r"within ([\d.]+) reflectance", panel.text("precision"))]
    assert stated == [1e-4, 1e-5]
    for row, column in ((0, 0), (31, 39), (7, 22)):
        panel.point_at(row, column)
        for layer, of in LAYERS.items():
            precision = stated[1] if layer == "std" else stated[0]
            assert panel.value(layer) == pytest.approx(of(maps, lead)[row, column], abs=precision)
        assert panel.text("place") == f"at {maps.latitude[row]:.3f}° N, {maps.longitude[column]:.3f}° E"  # type: ignore[index]


def test_layers_change_map_title_and_colour_bar(panel: Browser) -> None:
    seen = {}
    for layer in LAYERS:
        panel.click(f"layer-{layer}")
        seen[layer] = (panel.pixels(), panel.text("layer-title"), panel.text("bar-title"), panel.text("ticks"))
    assert len({str(drawn) for drawn, *_ in seen.values()}) == len(LAYERS)
    assert seen["std"][2] == "Standard deviation, reflectance"
    assert seen["error"][2] == "Error (mean − target), reflectance"
    assert seen["mean"][2:] == seen["target"][2:]
    assert seen["std"][3] != seen["mean"][3]
    panel.choose("sample", 1)
    assert panel.text("layer-title") == "Sample 2 of 3"
    assert panel.displayed("#sample-note")
    assert panel.pixels() != seen["sample"][0]


def test_an_error_of_zero_is_white_and_unknown_values_are_transparent(started: Browser, tmp_path: Path) -> None:
    maps = example(leads=1, height=4, width=4, cadence_minutes=np.int64(10))
    maps.mean[:] = maps.target + 0.5
    maps.mean[0, 0, :3] = maps.target[0, 0, 0], maps.target[0, 0, 1] - 0.5, math.nan
    write_page(tmp_path / "page.html", only(maps))
    started.show(tmp_path / "page.html").click("layer-error")
    zero, low, unknown, high = (started.pixels()[i : i + 4] for i in (0, 4, 8, 12))
    assert min(zero) >= 244
    assert low[2] > low[0]  # blue
    assert high[0] > high[2]  # orange
    assert unknown[3] == 0
    started.point_at(0, 2)
    assert started.text("value-mean") == started.text("value-error") == "unknown"
    assert not started.displayed("#strip")  # a single lead time leaves nothing to choose


def test_keys_thumbnails_and_slider_change_lead_time_and_pointer(panel: Browser) -> None:
    from selenium.webdriver.common.keys import Keys

    first = panel.pixels()
    panel.press("lead", Keys.ARROW_RIGHT)
    assert panel.text("time-title") == "t+60 min, valid 2026-02-11 04:00 UTC"
    assert panel.pixels() != first
    panel.press("map", Keys.PAGE_UP)
    assert panel.text("lead-text").startswith("+90 min")
    assert panel.driver.find_element("id", "lead").get_attribute("aria-valuetext") == "90 minutes"
    panel.all("#strip button")[0].click()
    panel.press("map", Keys.PAGE_DOWN)  # there is nothing before the first
    assert panel.driver.find_element("id", "lead").get_property("value") == "0"
    assert panel.pixels() == first
    panel.point_at(1, 1)
    panel.press("map", Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_RIGHT)
    assert panel.value("target") == pytest.approx(EXAMPLES[0].target[0, 3, 2], abs=1e-4)
    panel.press("map", *[Keys.ARROW_UP] * 5, *[Keys.ARROW_LEFT] * 5)
    assert panel.value("target") == pytest.approx(EXAMPLES[0].target[0, 0, 0], abs=1e-4)


def test_play_runs_through_the_lead_times_until_paused(panel: Browser) -> None:
    panel.click("play")
    assert panel.text("play") == "Pause"
    deadline = time.monotonic() + 20
    while panel.text("lead-text").startswith("+30"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    panel.click("play")
    assert panel.text("play") == "Play"
    stopped_at = panel.text("lead-text")
    time.sleep(0.9)  # longer than a step
    assert panel.text("lead-text") == stopped_at


def test_another_example_has_its_own_size_values_and_layers(panel: Browser) -> None:
    panel.click("layer-sample")
    panel.choose("example", 1)
    assert len(panel.pixels()) == 4 * 24 * 24
    assert not panel.all("#layer-sample")  # it has no samples
    assert not panel.displayed("#sample-note")
    assert panel.text("layer-title") == "Mean of the forecast"
    panel.point_at(5, 6)
    assert panel.text("place") == "at row 5, column 6"
    assert panel.value("mean") == pytest.approx(EXAMPLES[1].mean[0, 5, 6], abs=1e-4)
    panel.choose("example", 0)
    assert panel.all("#layer-sample")
