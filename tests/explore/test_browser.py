"""The page as its reader uses it, in headless Chromium."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from metaprior.explore.page import write_page
from metaprior.explore.problems import PROBLEMS, WAYS
from tests.explore.reference import (
    COUNTS,
    LEVELS,
    PRECISION,
    XS,
    expected,
    largest_difference,
    learner,
    points,
    support,
)
from tests.solar.maps.report.browser import Browser, opened

PLOT = "plot-closed_form"


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with opened(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "explore.html"
    write_page(path)
    return path


@pytest.fixture
def browser(started: Browser, page: Path) -> Iterator[Browser]:
    """The page, freshly opened; whatever a test does, nothing may be logged."""
    yield started.show(page)
    assert started.driver.get_log("browser") == []


def points_of(browser: Browser) -> list[dict[str, float]]:
    return list(browser.run("return Curves.points()"))


def settled(browser: Browser) -> None:
    """Wait for the next drawing."""
    browser.driver.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")


def sentence(browser: Browser, way: str) -> str:
    settled(browser)
    return browser.text(f"say-{way}")


def position(browser: Browser, x: float, y: float, plot: str = PLOT) -> dict[str, float]:
    """Return where a value of the plot of sine waves is on the screen."""
    script = """
        const svg = document.getElementById(arguments[0]);
        svg.scrollIntoView({ block: "center" });
        const box = svg.getBoundingClientRect(), zoom = box.width / svg.viewBox.baseVal.width;
        const [w, h] = [svg.viewBox.baseVal.width, svg.viewBox.baseVal.height];
        const px = 34 + ((arguments[1] + 5) / 10) * (w - 42), py = h - 34 - ((arguments[2] + 6) / 12) * (h - 42);
        return { x: box.left + px * zoom, y: box.top + py * zoom };
    """
    return dict(browser.run(script, plot, x, y))


def mouse(browser: Browser, *path: tuple[float, float], plot: str = PLOT) -> None:
    """Press at the first value, move along the others, and release."""
    places = [position(browser, *value, plot) for value in path]
    common = {"button": "left", "clickCount": 1}
    browser.command("Input.dispatchMouseEvent", {"type": "mousePressed", **places[0], **common})
    for place in places[1:]:
        browser.command("Input.dispatchMouseEvent", {"type": "mouseMoved", **place, "button": "left", "buttons": 1})
    browser.command("Input.dispatchMouseEvent", {"type": "mouseReleased", **places[-1], **common})
    settled(browser)


def touch(browser: Browser, *path: tuple[float, float]) -> None:
    places = [position(browser, *value) for value in path]
    browser.command("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [places[0]]})
    for place in places[1:]:
        browser.command("Input.dispatchTouchEvent", {"type": "touchMove", "touchPoints": [place]})
    browser.command("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    settled(browser)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_forecasts_of_the_page_are_those_of_python(browser: Browser, problem: str) -> None:
    browser.choose("problem", list(PROBLEMS).index(problem))
    for way in WAYS:
        for count in COUNTS:
            examples = support(problem, count)
            found: Any = browser.run("return Curves.forecast(...arguments)", way, points(examples), XS.tolist())
            assert largest_difference(found, expected(problem, way, examples)) < PRECISION, (way, count)


def test_points_are_added_dragged_and_removed_by_mouse(browser: Browser) -> None:
    browser.click("clear")
    mouse(browser, (1.0, 2.0))
    assert points_of(browser)[0] == pytest.approx({"x": 1.0, "y": 2.0}, abs=0.05)
    mouse(browser, (1.0, 2.0), (0.0, 1.0), (-3.0, -2.0), plot=PLOT)
    assert points_of(browser)[0] == pytest.approx({"x": -3.0, "y": -2.0}, abs=0.05)
    mouse(browser, (4.0, -5.0), plot="plot-context")  # every plot takes points
    assert len(points_of(browser)) == 2
    mouse(browser, (-3.0, -2.0))
    assert [round(point["x"]) for point in points_of(browser)] == [4]


def test_a_drag_is_undone_at_once_and_everything_can_be_undone(browser: Browser) -> None:
    first = points_of(browser)
    browser.click("clear")
    mouse(browser, (1.0, 2.0))
    mouse(browser, (1.0, 2.0), (0.0, 1.0), (-1.0, 0.0), (-3.0, -2.0))
    browser.click("undo")
    assert points_of(browser)[0] == pytest.approx({"x": 1.0, "y": 2.0}, abs=0.05)
    browser.click("undo")
    assert points_of(browser) == []
    browser.click("undo")
    settled(browser)
    assert points_of(browser) == first
    assert browser.run("return document.getElementById('undo').disabled")


def test_touch_adds_drags_and_removes(browser: Browser) -> None:
    browser.command("Emulation.setTouchEmulationEnabled", {"enabled": True})
    try:
        browser.click("clear")
        touch(browser, (2.0, 1.0))
        assert points_of(browser)[0] == pytest.approx({"x": 2.0, "y": 1.0}, abs=0.05)
        touch(browser, (2.0, 1.0), (2.0, 0.0), (2.0, -2.0), (2.0, -4.0))  # downwards, where pages scroll
        assert points_of(browser)[0] == pytest.approx({"x": 2.0, "y": -4.0}, abs=0.05)
        touch(browser, (2.0, -4.0))
        assert points_of(browser) == []
    finally:
        browser.command("Emulation.setTouchEmulationEnabled", {"enabled": False})


def test_the_keyboard_does_all_that_the_mouse_does(browser: Browser) -> None:
    from selenium.webdriver import ActionChains, Keys

    browser.click("clear")
    browser.press(PLOT, Keys.ARROW_RIGHT * 3, Keys.ARROW_UP * 10, Keys.ENTER)
    assert points_of(browser) == [pytest.approx({"x": 0.3, "y": 1.0})]
    assert browser.text("announce") == "Point added at x 0.3, y 1.0: 1 point now."
    browser.press(PLOT, Keys.ARROW_LEFT * 20, Keys.SPACE)
    browser.press(PLOT, Keys.PAGE_DOWN)  # the first from the left is picked up, and moved
    browser.press(PLOT, Keys.ARROW_UP * 5, Keys.ENTER)
    assert sorted(point["y"] for point in points_of(browser)) == pytest.approx([1.0, 1.5])
    assert browser.text("announce") == "Point let go."
    ActionChains(browser.driver).key_down(Keys.CONTROL).send_keys("z").key_up(Keys.CONTROL).perform()
    assert [point["y"] for point in points_of(browser)] == pytest.approx([1.0, 1.0])
    browser.press(PLOT, Keys.PAGE_UP, Keys.DELETE)
    assert [point["x"] for point in points_of(browser)] == pytest.approx([-1.7])


def test_every_control_is_reached_by_tab_and_has_a_name(browser: Browser) -> None:
    unnamed = browser.run("""
        return [...document.querySelectorAll("button, select, input, [tabindex='0']")]
          .filter((e) => !(e.getAttribute("aria-label") || e.labels?.[0]?.textContent || e.textContent).trim())
          .map((e) => e.id);
    """)
    assert unnamed == []
    assert browser.run("return document.querySelectorAll('[tabindex]:not([tabindex=\"0\"])').length") == 0


def test_words_tell_the_band_that_python_gives(browser: Browser) -> None:
    browser.click("clear")
    prior = learner("sinusoids", "closed_form").prior_predictive()
    low, high = (value.item() for value in prior.predict(np.zeros((1, 1), np.float32)).interval(0.9))
    told = sentence(browser, "closed_form").replace("−", "-")
    assert told.startswith("Before any point this is the prior: at x = 0.0")
    assert [float(number) for number in re.findall(r"between (\S+) and (\S+),", told)[0]] == [
        round(low, 1),
        round(high, 1),
    ]
    mouse(browser, (0.0, 3.0))
    assert re.search(r"After 1 point .* \d+ % narrower than before any point\.$", sentence(browser, "closed_form"))


def test_an_example_shows_its_truth_on_demand_and_gives_more_points(browser: Browser) -> None:
    assert not browser.all("#ways path.truth")
    browser.click("truth")
    assert "The true curve lies inside the band along" in sentence(browser, "context")
    assert len(browser.all("#ways path.truth")) == 3
    before = points_of(browser)
    browser.click("more")
    assert points_of(browser)[:-1] == before
    browser.click("example")
    assert len(points_of(browser)) == len(before)
    assert points_of(browser) != before


def test_draws_are_shown_where_there_is_a_distribution_of_curves(browser: Browser) -> None:
    assert [len(browser.all(f"#plot-{way} path.draw")) for way in WAYS] == [8, 8, 0]
    browser.click("draws")
    settled(browser)
    assert not browser.all("#ways path.draw")


def test_the_slider_of_steps_goes_from_the_prior_on(browser: Browser) -> None:
    script = "const s = document.getElementById('steps'); s.value = arguments[0]; s.dispatchEvent(new Event('input'))"
    browser.run(script, 0)
    assert sentence(browser, "descent").startswith("Without a step this is the prior")
    browser.run(script, 1)
    examples = support("sinusoids", 2)
    found: Any = browser.run("return Curves.forecast(...arguments)", "descent", points(examples), XS.tolist())
    assert largest_difference(found, expected("sinusoids", "descent", examples, steps=1)) < PRECISION
    assert len(found["quantiles"]) == len(LEVELS)


def test_points_can_be_typed(browser: Browser) -> None:
    browser.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    field = browser.all("#numbers input")[1]
    browser.run("arguments[0].value = '2.5'; arguments[0].dispatchEvent(new Event('change'))", field)
    settled(browser)
    assert points_of(browser)[0]["y"] == 2.5
    assert "[2.50]" in browser.text("python")
    browser.run("document.querySelector('#numbers button').click()")
    assert points_of(browser) == []


def test_days_of_power_change_the_forecast_of_the_plant(browser: Browser) -> None:
    from selenium.webdriver import Keys

    texts = []
    for _ in range(2):
        browser.press("days", Keys.ARROW_RIGHT)
        texts.append((browser.text("days-text"), browser.text("plant-say")))
    assert [days for days, _ in texts] == ["7 days", "14 days"]
    assert texts[0][1] != texts[1][1]
    before = browser.run("return Plants.issued()")
    browser.click("place")
    assert browser.run("return Plants.issued()") != before
    rows = [row.text.split() for row in browser.all("#plant-scores tr")]
    assert [row[0] for row in rows] == ["0", "1", "3", "7", "14"]
    assert browser.all("#plant-scores tr.ours")[0].text.split() == rows[-1]
    browser.press("issue", Keys.END)
    assert "dark" in browser.text("plant-say")


@pytest.mark.parametrize("width", [360, 740, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_cut_off_on_any_screen(browser: Browser, width: int, scheme: str) -> None:
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.command("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
    browser.command("Emulation.setDeviceMetricsOverride", size)
    try:
        browser.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        settled(browser)
        assert browser.run("return document.documentElement.scrollWidth") <= width
        background = browser.run("return getComputedStyle(document.body).backgroundColor")
        assert (background == "rgb(255, 255, 255)") == (scheme == "light")
        columns = {round(one.rect["x"]) for one in browser.all(".way")}
        assert len(columns) == (3 if width > 640 else 1)
    finally:
        browser.command("Emulation.clearDeviceMetricsOverride", {})
        browser.command("Emulation.setEmulatedMedia", {"features": []})


def test_on_paper_there_are_plots_and_no_controls(browser: Browser) -> None:
    browser.command("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        assert browser.displayed(".plot")
        assert not any(one.is_displayed() for one in browser.all("button, input, select"))
    finally:
        browser.command("Emulation.setEmulatedMedia", {"media": ""})
