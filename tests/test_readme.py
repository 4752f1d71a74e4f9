"""The examples on the pages run as they are written, links lead somewhere, and tables of settings are the code's."""

import contextlib
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import benchmarks.common.application  # noqa: F401 (adds the benchmarks' kinds of tasks)
import metaprior
from benchmarks.common import registry
from metaprior.runs.config import KINDS, PLAIN_SECTIONS
from metaprior.runs.reading import parse

README = Path(metaprior.__file__).parent.parent / "README.md"
DOCS = README.parent / "docs"
PAGES = [README, README.parent / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
LEAST = {"model": "mlp", "likelihood": "gaussian", "tasks": "sinusoids"}
NEEDED: dict[str, dict[str, Any]] = {
    "mlp": {"inputs": 1, "hidden": [4], "outputs": 1},
    "frames": {"path": "archive.nc"},
}
"""Keys of a kind that have no default."""
FITTING: dict[str, dict[str, dict[str, Any]]] = {
    "frames": {"model": {"kind": "unet"}},
    "simulated": {"model": {"kind": "unet", "known": 4}},
    "sites": {"model": {"kind": "sites"}, "likelihood": {"kind": "mixture"}},
}
"""Networks and likelihoods for tasks that do not go with every one."""


def run_examples(page: Path, most: int | None = None) -> dict[str, Any]:
    """What the names mean after a page's Python examples have run, one after the other."""
    examples = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)[:most]
    assert examples
    names: dict[str, Any] = {}
    for example in examples:
        exec(example, names)
    return names


@pytest.fixture(scope="module")
def readme(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What the names mean after the README's examples, in a folder of their own."""
    with contextlib.chdir(tmp_path_factory.mktemp("readme")):
        torch.manual_seed(0)
        names = run_examples(README)
        names["files"] = sorted(path.name for path in Path().iterdir())
        yield names


def test_the_example_runs_and_its_comment_is_true(readme: dict[str, Any]) -> None:
    std = readme["std"]
    assert min(std[0], std[-1]) > 2 * std[2]
    assert 0.09 < float(readme["forecast"].aleatoric.mean()) < 0.13  # the noise that was put in is 0.1
    assert torch.equal(readme["again"].predict(readme["x_new"]).mean, readme["mean"])


def test_the_meta_learner_of_the_readme(readme: dict[str, Any]) -> None:
    learner = readme["learner"]
    assert readme["files"] == ["fit", "posteriors", "prior"]
    assert readme["waves"].mean.shape == readme["unseen"][0].query.y.shape
    assert len(learner.history_) == 2
    assert sum(summary.bad_tasks for summary in learner.history_) == 0
    losses = [
        [
            float(learner.inner_loop_loss(q, task.support).nll)
            for q in (learner.prior_predictive(), learner.adapt(task.support))
        ]
        for task in readme["unseen"]
    ]
    before, after = torch.tensor(losses).mean(0)
    assert after < before


def test_the_meta_gradient_of_the_readme_and_of_its_page(readme: dict[str, Any]) -> None:
    assert readme["value"].grads.mu.shape == readme["theta"].mu.shape
    first = run_examples(DOCS / "methods" / "meta-gradients.md", most=1)
    assert first["chosen"].engine.exact
    assert float(first["value"].loss) > 0


def test_the_page_of_the_method() -> None:
    names = run_examples(DOCS / "methods" / "abml.md")
    assert names["inner"].kl > 0  # lambda has left theta
    assert names["outer"].nll_support == names["outer"].kl == names["outer"].hyperprior == 0  # the query set alone
    assert names["maml"].theta_.sigma.count_nonzero() == 0
    assert names["trunk"] == 5  # all of flatten, linear, relu, linear, relu
    means, scales, noise = 6, 6, 1  # tensors of the network, and the noise scale
    assert names["learner"].theta_.log_lr.shape == (means + scales + noise,)


def test_the_example_of_the_contexts_page() -> None:
    names = run_examples(DOCS / "methods" / "context.md")
    assert names["forecast"].mean.shape == names["before"].mean.shape == names["task"].query.y.shape


def test_the_page_of_the_ways_of_adapting() -> None:
    learner = run_examples(DOCS / "adaptation.md")["learner"]
    assert learner.calibration_.examples == (0, 1, 2, 5, 10, 20)


def test_the_hierarchy_of_the_readme_and_of_its_page(readme: dict[str, Any]) -> None:
    assert readme["third"].weights.mu.shape == readme["hvi"].psi_.mean.shape
    assert readme["parts"].std.shape == readme["unseen"][0].query.y.shape
    page = run_examples(DOCS / "methods" / "hierarchical-vi.md")
    assert page["terms"].elbo == -(page["terms"].nll + page["terms"].kl + page["terms"].hyper_kl)
    assert page["forecast"].mean.shape == page["parts"].std.shape


def test_the_page_of_the_training() -> None:
    names = run_examples(DOCS / "training.md")
    assert [summary.tasks for summary in names["learner"].history_] == [64, 64]
    assert torch.equal(names["std"], names["forecast"].std)
    assert torch.equal(names["epistemic"], names["forecast"].epistemic)
    assert [len(names[name]) for name in ("stations", "training", "unseen")] == [48, 36, 12]
    assert names["own"].history_[0].bad_tasks == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_a_page_and_to_a_heading_of_it(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s:#]*)(?:#([^)\s]+))?\)", page.read_text())
    targets = [(page.parent / path if path else page, anchor) for path, anchor in links]
    assert [path for path, _ in targets if not path.exists()] == []
    assert [(path.name, anchor) for path, anchor in targets if anchor and anchor not in headings(path)] == []


def headings(page: Path) -> set[str]:
    """The anchors of a page's headings, as they are made of their text."""
    texts = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in texts}


def test_the_readme_lists_every_benchmark_with_its_needs() -> None:
    lines = [line for line in README.read_text().splitlines() if re.match(r"\| `\w+` \|", line)]
    assert lines == [f"| `{row['NAME']}` | {row['what']} | {row['needs']} |" for row in registry.rows()]


def section_of(name: str) -> str:
    """What the page of the training says about a section of a configuration."""
    page = (DOCS / "training.md").read_text()
    found = re.search(rf"^#### `\[{name}\]`\n(.*?)(?=^#)", page, re.DOTALL | re.MULTILINE)
    assert found, name
    return found[1]


def defaults(section: str, **kinds: str) -> dict[str, Any]:
    """Every key of a section with its value, in a configuration that says as little as possible."""
    content = {name: {"kind": kind, **NEEDED.get(kind, {})} for name, kind in {**LEAST, **kinds}.items()}
    content |= FITTING.get(kinds.get("tasks", ""), {})
    return parse(content, "the least").resolved()[section]


def as_toml(value: object) -> str:
    """A value as it stands in a configuration; TOML has no None."""
    if isinstance(value, str):
        return f'"{value}"'
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


@pytest.mark.parametrize("section", PLAIN_SECTIONS)
def test_keys_and_defaults_of_a_section_are_the_codes(section: str) -> None:
    rows = re.findall(r"^\| `(\w+)` \| (?:`(.*?)`|none) \|", section_of(section), re.MULTILINE)
    assert dict(rows) == {key: as_toml(value) for key, value in defaults(section).items()}


@pytest.mark.parametrize(("section", "kind"), [(section, kind) for section, kinds in KINDS.items() for kind in kinds])
def test_keys_and_defaults_of_a_kind_are_the_codes(section: str, kind: str) -> None:
    (line,) = [line for line in section_of(section).splitlines() if line.startswith("|") and f'`"{kind}"`' in line]
    for key, value in defaults(section, **{section: kind}).items():
        if key == "stochastic":  # of every kind
            assert value is None
            assert "`stochastic` (none: " in section_of(section)
        elif key != "kind":
            without_default = value is None or key in NEEDED.get(kind, {})
            assert (f"`{key}`" if without_default else f"`{key} = {as_toml(value)}`") in line


def test_the_version_is_the_same_everywhere() -> None:
    package, cited = (README.parent / name for name in ("pyproject.toml", "CITATION.cff"))
    version = tomllib.loads(package.read_text())["project"]["version"]
    assert f"\nversion: {version}\n" in cited.read_text()
    assert PAGES[1].read_text().startswith(f"# Changelog\n\n## {version}")
