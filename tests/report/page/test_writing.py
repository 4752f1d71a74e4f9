import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from metaprior.report.page.content import PageContent, Section
from metaprior.report.page.tables import shot_columns
from metaprior.report.page.writing import ENVIRONMENT, table_html, write_page
from tests.report.page.invented import content

NAME = "</script><script>alert(1)</script> & <coast>"
DATA = '<script type="application/json" id="plants-data">{{ data|tojson }}</script>'
SECTION = Section(
    "Power plants",
    "<p id=plants>body</p>" + ENVIRONMENT.from_string(DATA).render(data={"name": NAME, "unknown": [np.nan]}),
    style=".plants { color: red; }",
    script="const plants = 1;",
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "new" / "report.html"
    write_page(path, content(sections=[SECTION]))
    return path


@pytest.fixture(scope="module")
def page(path: Path) -> str:
    return path.read_text(encoding="utf-8")


class Ids(HTMLParser):
    """All ids of a page, and the ids that controls, links and sections refer to."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.wanted: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {key: value or "" for key, value in attributes}
        self.ids += [given["id"]] if "id" in given else []
        self.wanted |= {given[key] for key in ("for", "aria-labelledby", "aria-describedby") if key in given}
        self.wanted |= {given[key][1:] for key in ("href", "xlink:href") if given.get(key, "").startswith("#")}


def test_the_file_is_complete(path: Path, page: str) -> None:
    addresses = set(re.findall(r"https?://[^\s\"'<)]*", page))
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert not re.search(r"<(script|img|iframe|link)[^>]+(src|href)=[\"'](?!data:)", page)
    found = Ids(page)
    assert len(found.ids) == len(set(found.ids))
    assert found.wanted <= set(found.ids)
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_text_is_escaped(page: str) -> None:
    for name in ("<pysteps", "<to adapt>", "<presets>"):
        assert name not in page
        assert name.replace("<", "&lt;").replace(">", "&gt;") in page


def test_an_application_adds_a_section_with_its_own_style_script_and_data(page: str) -> None:
    titles = re.findall(r"<h2[^>]*>([^<]*)", page)
    assert titles == ["Scores", "Lead times", "Reliability", "Learning curve", "Power plants", "Settings"]
    assert '<a href="#power-plants">Power plants</a>' in page
    assert page.index(SECTION.style) < page.index("</style>") < page.index("<p id=plants>") < page.index(SECTION.script)
    found = re.search(r'<script type="application/json" id="plants-data">(.*?)</script>', page, re.S)
    assert found
    assert json.loads(found[1]) == {"name": NAME, "unknown": [None]}


def test_parts_without_content_are_left_out(tmp_path: Path) -> None:
    write_page(tmp_path / "page.html", PageContent(title="t", story="s", units="W/m2"))
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert not re.search('<(h2|nav|table|figure|canvas|p class="(note|caption)")', page)


def test_tables_explain_the_marks_that_they_have_and_no_others(page: str, tmp_path: Path) -> None:
    for mark in ("Small numbers are", "“best” marks", "A dash means"):
        assert mark in page
    rows = [{"method": name, "lead_minutes": "all", "rmse": rmse} for name, rmse in (("a", 1.0), ("b", 2.0))]
    write_page(tmp_path / "page.html", PageContent(title="t", story="s", units="K", scores=rows))
    plain = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "“best” marks" in plain
    assert "Small numbers are" not in plain
    assert "A dash means" not in plain


def test_numbers_of_numpy_are_numbers(tmp_path: Path) -> None:
    row = {"method": "a", "lead_minutes": np.int64(30), "crps": np.float32(0.25), "note": ["not", "a", "number"]}
    write_page(tmp_path / "page.html", PageContent(title="t", story="s", units="K", scores=[row]))
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<td>0.250</td>" in page
    assert "All lead times together" not in page


def test_headline_compares_with_the_best_other_method(page: str) -> None:
    assert "Worse than the best other method, Deep ensemble of 5, fine-tuned: 0.0587" in page
    assert "Equal, as far as shown, to the best other method, Deep ensemble of 5, fine-tuned" in page
    assert "0.475 at +30 min, 0.459 at +120 min" in page
    assert '<dd class="big">90.0 %</dd>' in page


def test_a_page_may_have_sections_of_an_application_alone(tmp_path: Path) -> None:
    write_page(tmp_path / "page.html", PageContent(title="t", story="s", units="K", sections=[SECTION]))
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert re.findall(r"<h2[^>]*>([^<]*)", page) == ["Power plants"]
    assert re.findall(r'<a href="#([^"]*)', page) == ["power-plants"]


def test_a_table_of_a_section_has_a_column_for_each_number_of_shots() -> None:
    rows = [{"method": "<a>", "shots": 0, "rmse": 2.0, "rmse_low": 1.5, "rmse_high": 2.5}]
    rows += [{"method": "b", "shots": shots, "rmse": 1.0} for shots in (0, 3)]
    html = table_html("Errors", shot_columns(rows, "rmse", "K", {0: "none", 3: "three"}), ours="b")
    assert re.findall(r'<th scope="col">(\w+)', html) == ["Method", "none", "three"]
    assert re.findall(r'<th scope="row">([^<]*)', html) == ["&lt;a&gt;", "b"]
    assert "<small>1.500 to 2.500</small>" in html
    assert html.count('class="unknown"') == 1
    assert html.count('class="ours"') == 1
