import base64
import json
import math
import re
import time
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from metaprior.solar.maps.report.page.content import Maps
from metaprior.solar.maps.report.solar_page import PageContent, write_page
from tests.report.solar_content import content, example

CONTENT = content()
LAYERS: dict[str, Callable[[Maps, int], Any]] = {
    "target": lambda maps, lead: maps.target[lead],
    "mean": lambda maps, lead: maps.mean[lead],
    "std": lambda maps, lead: maps.std[lead],
    "error": lambda maps, lead: maps.mean[lead] - maps.target[lead],
    "sample": lambda maps, lead: maps.samples[0, lead],  # type: ignore[index]
    "input": lambda maps, lead: maps.inputs[-1],  # type: ignore[index]
}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "new" / "report.html"
    write_page(path, CONTENT)
    return path


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from tests.report.browser import opened  # here: it skips where there is no browser

    with opened(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture(scope="module")
def page_of_maps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("maps") / "maps.html"
    write_page(path, only(*CONTENT.maps))
    return path


def only(*maps: Maps) -> PageContent:
    """A page of maps and nothing else: quick to write and to open."""
    return PageContent(title="t", story="s", units="reflectance", maps=list(maps))


@pytest.fixture
def browser(started: Any, page: Path) -> Any:
    """The whole page, freshly opened."""
    show(started, page)
    return started


@pytest.fixture
def panel(started: Any, page_of_maps: Path) -> Any:
    """The page of maps, freshly opened."""
    show(started, page_of_maps)
    return started


def show(browser: Any, page: Path) -> None:
    from tests.report.browser import show

    show(browser, page)


def text(browser: Any, name: str) -> str:
    return str(browser.find_element("id", name).get_attribute("textContent"))


def pixels(browser: Any) -> list[int]:
    """Red, green, blue and opacity of the map, read from a copy (Chromium complains if a canvas is read often)."""
    script = """
        const map = document.getElementById("map"), copy = document.createElement("canvas");
        [copy.width, copy.height] = [map.width, map.height];
        const context = copy.getContext("2d", { willReadFrequently: true });
        context.drawImage(map, 0, 0);
        return context.getImageData(0, 0, map.width, map.height).data.join(" ");
    """
    return [int(channel) for channel in browser.execute_script(script).split()]


def click(browser: Any, name: str) -> None:
    browser.execute_script("document.getElementById(arguments[0]).click()", name)


def choose(browser: Any, name: str, index: int) -> None:
    script = (
        "const s = document.getElementById(arguments[0]); s.selectedIndex = arguments[1];"
        "s.dispatchEvent(new Event('change'))"
    )
    browser.execute_script(script, name, index)


def point_at(browser: Any, row: int, column: int) -> None:
    """Move the real pointer to the middle of a pixel of the map."""
    from selenium.webdriver import ActionChains

    canvas = browser.find_element("id", "map")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", canvas)
    width, height, columns, rows = browser.execute_script(
        "const c = arguments[0], b = c.getBoundingClientRect(); return [b.width, b.height, c.width, c.height]", canvas
    )
    x, y = (column + 0.5) * width / columns - width / 2, (row + 0.5) * height / rows - height / 2
    ActionChains(browser).move_to_element_with_offset(canvas, round(x), round(y)).perform()


def shown_value(browser: Any, layer: str) -> float:
    number, units = text(browser, f"value-{layer}").split(" ", 1)
    assert units == "reflectance"
    return float(number.replace("−", "-"))


def press(browser: Any, name: str, *keys: str) -> None:
    browser.find_element("id", name).send_keys(*keys)


def test_no_errors_and_nothing_is_fetched(browser: Any) -> None:
    assert browser.get_log("browser") == []
    assert browser.execute_script("return performance.getEntriesByType('resource').map((entry) => entry.name)") == []


def test_values_under_the_pointer_are_those_of_the_arrays(panel: Any) -> None:
    maps, lead = CONTENT.maps[0], 2
    panel.find_elements("css selector", "#strip button")[lead].click()
    stated = [float(found) for found in re.findall(r"within ([\d.]+) reflectance", text(panel, "precision"))]
    assert stated == [1e-4, 1e-5]
    for row, column in ((0, 0), (31, 39), (7, 22)):
        point_at(panel, row, column)
        for layer, of in LAYERS.items():
            precision = stated[1] if layer == "std" else stated[0]
            assert shown_value(panel, layer) == pytest.approx(of(maps, lead)[row, column], abs=precision)
        assert text(panel, "place") == f"at {maps.latitude[row]:.3f}° N, {maps.longitude[column]:.3f}° E"  # type: ignore[index]


def test_layers_change_map_title_and_colour_bar(panel: Any) -> None:
    seen = {}
    for layer in LAYERS:
        click(panel, f"layer-{layer}")
        seen[layer] = (
            pixels(panel),
            text(panel, "layer-title"),
            text(panel, "bar-title"),
            text(panel, "ticks"),
        )
    assert len({str(drawn) for drawn, *_ in seen.values()}) == len(LAYERS)
    assert seen["std"][2] == "Standard deviation, reflectance"
    assert seen["error"][2] == "Error (mean − target), reflectance"
    assert seen["mean"][2:] == seen["target"][2:]
    assert seen["std"][3] != seen["mean"][3]
    choose(panel, "sample", 1)
    assert text(panel, "layer-title") == "Sample 2 of 3"
    assert pixels(panel) != seen["sample"][0]


def test_how_a_sample_is_made_is_said_where_it_is_chosen(panel: Any) -> None:
    note = panel.find_element("id", "sample-note")
    assert note.is_displayed()
    assert note.text.startswith("A sample is the mean plus std times the standardised errors")
    assert "it is not drawn from the forecast" in note.text
    chooser, below = (panel.find_element("id", name).rect for name in ("layers", "sample-note"))
    assert below["y"] - (chooser["y"] + chooser["height"]) < 40


def test_an_error_of_zero_is_white_and_unknown_is_nothing(started: Any, tmp_path: Path) -> None:
    maps = example(leads=1, height=4, width=4)
    maps.mean[:] = maps.target + 0.5
    maps.mean[0, 0, :3] = maps.target[0, 0, 0], maps.target[0, 0, 1] - 0.5, math.nan
    write_page(tmp_path / "page.html", only(maps))
    show(started, tmp_path / "page.html")
    click(started, "layer-error")
    zero, low, unknown, high = (pixels(started)[i : i + 4] for i in (0, 4, 8, 12))
    assert min(zero) >= 244
    assert low[2] > low[0]  # blue
    assert high[0] > high[2]  # orange
    assert unknown[3] == 0
    point_at(started, 0, 2)
    assert text(started, "value-mean") == text(started, "value-error") == "unknown"
    assert not started.find_element("id", "strip").is_displayed()  # a single lead time is no choice


def test_lead_time_by_slider_keys_and_thumbnails(panel: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    first = pixels(panel)
    press(panel, "lead", Keys.ARROW_RIGHT)
    assert text(panel, "time-title") == "t+60 min, valid 2026-02-11 04:00 UTC"
    assert pixels(panel) != first
    press(panel, "map", Keys.PAGE_UP)
    assert text(panel, "lead-text").startswith("+90 min")
    assert panel.find_element("id", "lead").get_attribute("aria-valuetext") == "90 minutes"
    panel.find_elements("css selector", "#strip button")[0].click()
    assert panel.find_element("id", "lead").get_property("value") == "0"
    assert pixels(panel) == first
    press(panel, "map", Keys.PAGE_DOWN)  # there is nothing before the first
    assert pixels(panel) == first


def test_arrow_keys_move_the_pointer_and_stop_at_the_edge(panel: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    maps = CONTENT.maps[0]
    point_at(panel, 1, 1)
    press(panel, "map", Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_RIGHT)
    assert shown_value(panel, "target") == pytest.approx(maps.target[0, 3, 2], abs=1e-4)
    press(panel, "map", *[Keys.ARROW_UP] * 5, *[Keys.ARROW_LEFT] * 5)
    assert shown_value(panel, "target") == pytest.approx(maps.target[0, 0, 0], abs=1e-4)


def test_play_runs_through_the_lead_times_until_paused(panel: Any) -> None:
    click(panel, "play")
    assert text(panel, "play") == "Pause"
    deadline = time.monotonic() + 20
    while text(panel, "lead-text").startswith("+30"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    click(panel, "play")
    assert text(panel, "play") == "Play"
    stopped_at = text(panel, "lead-text")
    time.sleep(0.9)  # longer than a step
    assert text(panel, "lead-text") == stopped_at


def test_another_example_has_its_own_size_values_and_layers(panel: Any) -> None:
    click(panel, "layer-sample")
    choose(panel, "example", 1)
    maps = CONTENT.maps[1]
    assert len(pixels(panel)) == 4 * 24 * 24
    assert not panel.find_elements("id", "layer-sample")  # it has no samples
    assert not panel.find_element("id", "sample-note").is_displayed()
    assert text(panel, "layer-title") == "Mean of the forecast"
    point_at(panel, 5, 6)
    assert text(panel, "place") == "at row 5, column 6"
    assert shown_value(panel, "mean") == pytest.approx(maps.mean[0, 5, 6], abs=1e-4)
    choose(panel, "example", 0)
    assert panel.find_element("id", "layer-sample")


def test_one_table_of_a_measure_is_shown(browser: Any) -> None:
    def captions() -> list[str]:
        return [t.text for t in browser.find_elements("css selector", ".by-lead caption") if t.is_displayed()]

    assert captions() == ["RMSE (reflectance) by lead time"]
    choose(browser, "measure", 5)
    assert captions() == ["CRPS (reflectance) by lead time"]


def test_nothing_sticks_out(browser: Any) -> None:
    for width in (400, 1280):
        metrics = {"width": width, "height": 800, "deviceScaleFactor": 2, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        assert browser.execute_script("return document.documentElement.scrollWidth") == width
        box = browser.execute_script("return document.getElementById('map').getBoundingClientRect().toJSON()")
        assert 0 < box["left"] < box["right"] < width
        assert box["width"] * 2 % 40 == pytest.approx(0, abs=1e-6)  # a value is a whole number of the screen's pixels
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_paper_has_static_maps_and_all_tables(browser: Any) -> None:
    def displayed(selector: str) -> bool:
        return all(found.is_displayed() for found in browser.find_elements("css selector", selector))

    assert displayed("#panel")
    assert not displayed(".static img")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        assert displayed(".static img")
        assert displayed(".by-lead")
        assert not displayed("#panel")
        assert not displayed("#settings")
        assert browser.execute_script("return document.querySelector('.static img').naturalWidth") > 800
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    printed = browser.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})
    assert base64.b64decode(printed["data"]).startswith(b"%PDF")


class Ids(HTMLParser):
    """All ids, and the names that controls and sections refer to."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.wanted: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        self.ids += [given["id"] or ""] if "id" in given else []
        self.wanted |= {given[key] or "" for key in ("for", "aria-labelledby", "aria-describedby") if key in given}
        self.wanted |= {
            (given[key] or "")[1:] for key in ("href", "xlink:href") if (given.get(key) or "").startswith("#")
        }


def test_the_file_is_whole_by_itself(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    addresses = set(re.findall(r"https?://[^\s\"'<)]*", text))
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert not re.search(r"<(script|img|iframe|link)[^>]+(src|href)=[\"'](?!data:)", text)
    found = Ids(text)
    assert len(found.ids) == len(set(found.ids))
    assert found.wanted <= set(found.ids)
    assert [entry.name for entry in page.parent.iterdir()] == [page.name]


def test_text_is_escaped_and_json_is_json(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "<coast>" not in text
    assert "<pysteps" not in text
    assert "<to adapt>" not in text
    assert "&lt;presets&gt;" in text
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    assert found
    data = json.loads(found[1], parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert data["examples"][0]["name"] == "Taipei & <coast>"


def test_a_name_cannot_end_the_script(tmp_path: Path) -> None:
    write_page(tmp_path / "page.html", only(example("</script><script>alert(1)</script>", leads=1, height=4, width=4)))
    assert "</script><script>alert" not in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_an_empty_page_says_what_is_missing_and_why(started: Any, tmp_path: Path) -> None:
    write_page(tmp_path / "page.html", PageContent(title="t", story="s", units="W/m2"))
    show(started, tmp_path / "page.html")
    assert started.get_log("browser") == []
    assert [note.text.split(":")[0] for note in started.find_elements("css selector", ".note")] == [
        "No headline numbers",
        "No score tables",
        "No figure of Skill over persistence by lead time",
        "No figure of CRPS by lead time",
        "No reliability figure",
        "No learning curve",
        "No maps",
        "No settings",
    ]
    assert not started.find_elements("css selector", "table, figure, canvas")


def test_numbers_of_numpy_are_numbers(tmp_path: Path) -> None:
    row = {"method": "a", "lead_minutes": np.int64(30), "crps": np.float32(0.25), "note": ["not", "a", "number"]}
    maps = example(leads=1, height=4, width=4, cadence_minutes=np.int64(10))
    write_page(tmp_path / "page.html", PageContent(title="t", story="s", units="K", scores=[row], maps=[maps]))
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<td>0.250</td>" in text
    assert "No table of all lead times together" in text


def test_headline_compares_with_the_best_other(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "Worse than the best other, Deep ensemble of 5, fine-tuned: 0.0587" in text
    assert "To these digits the same as the best other, Deep ensemble of 5, fine-tuned" in text
    assert "0.475 at +30 min, 0.459 at +120 min" in text
    assert '<dd class="big">90.0 %</dd>' in text
