"""Write the page: template, style, scripts and numbers in one HTML file that needs no other, and no network.

The same version of the package writes the same bytes.
"""

import json
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from metaprior.checkpoint import write_file
from metaprior.explore.export import exported
from metaprior.explore.problems import PRIORS, PROBLEMS, WAYS, load_learner

NUMERIC = ("numbers.js", "forecast.js", "ways.js")
"""Scripts that compute and touch no element of the page, in the order in which they need each other."""
INTERACTIVE = ("plot.js", "points.js", "curves.js", "plants.js")
TITLE = "metaprior explore: a prior becomes a posterior"
STYLES = (("metaprior.report.page", "page.css"), ("metaprior.explore", "web/explore.css"))


def write_page(path: Path) -> None:
    """Write the page; an existing file is replaced when the new one is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, page().encode())


def page() -> str:
    """Return the page as HTML."""
    return Template(text("metaprior.explore", "web/explore.html")).substitute(
        title=TITLE,
        style="\n".join(text(package, name) for package, name in STYLES),
        # In a script element only "</" and "<!--" mean something; "<" in JSON is within strings, and may be escaped.
        data=json.dumps(content(), separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"),
        script="\n".join(script(name) for name in (*NUMERIC, *INTERACTIVE)),
        version=version("metaprior"),
    )


def content(folder: Path = PRIORS) -> dict[str, Any]:
    """Return all numbers of the page, for JSON.

    Args:
        folder: What ``metaprior.explore.training`` wrote.
    """
    scores = json.loads((folder / "scores.json").read_text(encoding="utf-8"))
    problems = [
        {
            "name": name,
            "title": problem.title,
            "about": problem.about,
            "noise": problem.noise,
            "families": problem.families,
            "inputs": problem.inputs,
            "reach": problem.reach,
            "learners": {way: exported(load_learner(name, way, folder)) for way in WAYS},
            "scores": [row for row in scores if row["problem"] == name],
        }
        for name, problem in PROBLEMS.items()
    ]
    plants = json.loads((folder / "plants.json").read_text(encoding="utf-8"))
    return {"ways": {name: way.title for name, way in WAYS.items()}, "problems": problems, "plants": plants}


def script(name: str) -> str:
    """Return one of the page's scripts."""
    return text("metaprior.explore", f"web/{name}")


def text(package: str, name: str) -> str:
    """Return the text of a file that lies in a folder of the package."""
    return files(package).joinpath(name).read_text(encoding="utf-8")
