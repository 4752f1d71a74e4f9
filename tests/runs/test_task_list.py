"""Several ``[[tasks]]`` in a run: parts take turns, and everything that a run does with one works with them."""

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from metaprior.cli import app
from metaprior.runs.build import choices_of
from metaprior.runs.config import Choices
from metaprior.runs.folder import RunFolder, RunFolderError
from metaprior.runs.program import Request, train
from metaprior.runs.reading import ConfigError, as_change, parse, read_config
from metaprior.runs.sources import TaskSource, open_tasks
from metaprior.runs.task_list import InterleavedTasks, SeveralSources
from metaprior.tasks import Examples, SineOrLine, Sinusoids, Task, Tasks
from tests.runs.tiny import TEXT, PowerFailure, assert_same_run, at_step, fail

ONE = '[tasks]\nkind = "sinusoids"\nk_shot = 3\nk_query = 2\n'
TWO = ONE.replace("[tasks]", "[[tasks]]") + ONE.replace("[tasks]", "[[tasks]]").replace("sinusoids", "sine_or_line")
LIST = TEXT.replace(ONE, TWO)


@pytest.fixture
def two(tmp_path: Path) -> Path:
    path = tmp_path / "two.toml"
    path.write_text(LIST)
    return path


def run(path: Path, folder: Path, *changes: str, resume: bool = False) -> list[str]:
    said: list[str] = []
    request = Request(read_config(path, changes), path.read_text(), folder, "metaprior train", resume, progress=False)
    train(request, said.append)
    return said


def refused(path: Path, *changes: str) -> list[str]:
    with pytest.raises(ConfigError) as error:
        read_config(path, changes)
    return [line.strip() for line in str(error.value).splitlines()[1:]]


def test_parts_take_turns_for_every_purpose(two: Path) -> None:
    source = open_tasks(read_config(two).task_settings, progress=False)
    alone = [open_tasks(kind(k_shot=3, k_query=2), progress=False) for kind in (Sinusoids, SineOrLine)]
    for purpose in ("train", "val", "test"):
        tasks = source.tasks(purpose, 6)
        for index in range(6):
            own = alone[index % 2].tasks(purpose, 6)[index // 2]
            assert tasks[index].query.x.equal(own.query.x)


def test_a_finite_part_is_gone_through_in_shuffled_passes() -> None:
    x = torch.zeros(1, 1)
    few = [Task(Examples(x, x), Examples(x, x), name) for name in "abc"]
    tasks = InterleavedTasks([few, Sinusoids(seed=1)], seed=0)
    names = [tasks[index].name for index in range(0, 12, 2)]
    assert sorted(names[:3]) == sorted(names[3:]) == ["a", "b", "c"]
    assert tasks[11].support.x.equal(Sinusoids(seed=1)[5].support.x)
    with pytest.raises(IndexError):
        tasks[-1]


def test_a_configuration_is_data_and_is_read_back_the_same(two: Path) -> None:
    config = read_config(two, ["tasks.1.k_query=4"])
    assert isinstance(config.tasks, Choices)
    assert (config.tasks.kind, config.tasks.arguments["1.k_query"]) == ("[sinusoids, sine_or_line]", 4)
    assert parse(config.resolved(), "config.json") == config
    assert config.digest != read_config(two).digest
    assert as_change("tasks.1.k_query", 4) == "tasks.1.k_query=4"


def test_every_mistake_names_its_part(two: Path) -> None:
    lines = refused(two, "tasks.0.k_shots=1", "tasks.1.k_shot=2.5", "tasks.k_shot=3", "tasks.2.k_shot=3")
    assert lines == [
        "--set tasks.k_shot=3: [[tasks]] is a list, whose keys are tasks.0.KEY to tasks.1.KEY",
        "--set tasks.2.k_shot=3: [[tasks]] is a list, whose keys are tasks.0.KEY to tasks.1.KEY",
        "tasks[0].k_shots is not known (did you mean 'k_shot'?); [[tasks]] takes kind, k_shot, k_query, noise, seed, "
        "frequency",
        "tasks[1].k_shot must be a valid integer, got 2.5",
    ]
    assert refused(two, "tasks.0.kind=waves")[0].startswith("tasks[0].kind must be one of sinusoids,")
    two.write_text(LIST.replace("k_shot = 3", "k_shot = 0"))
    assert [line.split(" ")[0] for line in refused(two)] == ["tasks[0].k_shot", "tasks[1].k_shot"]
    two.write_text("tasks = []\n" + TEXT.replace(ONE, ""))
    assert refused(two) == ["tasks must be a section, [tasks] and its keys below, got []"]


def test_parts_have_to_fit_the_network(two: Path) -> None:
    two.write_text(LIST.replace('kind = "sine_or_line"\nk_shot = 3\nk_query = 2', 'kind = "simulated"'))
    assert refused(two)[0].startswith("tasks[1]: model.kind is 'mlp'; these tasks are maps")


def test_support_sets_have_one_size(two: Path) -> None:
    assert refused(two, "tasks.1.k_shot=4") == ["tasks[1].k_shot is 4, tasks[0].k_shot is 3; they must be equal"]


def test_a_stopped_run_goes_on_bitwise_identical(two: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = run(two, tmp_path / "whole")
    assert said[-1] == f"next: metaprior evaluate {tmp_path / 'whole'}"
    for step in (2, 8):
        folder = tmp_path / f"killed {step}"
        with monkeypatch.context() as patch:
            at_step(patch, step, fail)
            with pytest.raises(PowerFailure):
                run(two, folder)
        run(two, folder, resume=True)
        assert_same_run(tmp_path / "whole", folder)


def test_a_changed_part_is_refused_and_a_run_is_inspected_and_planned(two: Path, tmp_path: Path) -> None:
    run(two, tmp_path / "run", "meta.epochs=1")
    with pytest.raises(RunFolderError, match=r"tasks\.1\.k_query: the run has 2, now 3"):
        run(two, tmp_path / "run", "meta.epochs=1", "tasks.1.k_query=3", resume=True)
    assert RunFolder(tmp_path / "run").tasks_kind == "[sinusoids, sine_or_line]"
    for path in (two, tmp_path / "run"):
        shown = CliRunner().invoke(app, ["inspect", str(path)]).stdout
        assert "sinusoids" in shown
        assert "sine_or_line" in shown
    assert CliRunner().invoke(app, ["evaluate", str(tmp_path / "run"), "--tasks", "3"]).exit_code == 0
    assert len(choices_of(read_config(two))) > 1


class Described(TaskSource):
    """Tasks with facts, and with files at the end."""

    def __init__(self, name: str, size: int = 1, shot: int = 1) -> None:
        super().__init__(0)
        self.name, self.size, self.examples_per_shot = name, size, shot

    def tasks(self, purpose: object, count: int | None = None) -> Tasks:
        x = torch.zeros(1, self.size)
        return [Task(Examples(x, x), Examples(x, x))]

    def pooled(self, meta_batch: int) -> Tasks | None:
        return self.tasks("train") if self.name == "pooled" else None

    def describe(self) -> dict[str, str]:
        return {"name": self.name}

    def finish(self, end: object) -> list[Path]:
        raise AssertionError


def test_facts_of_all_parts_are_described_and_compared(tmp_path: Path) -> None:
    source, run = SeveralSources([Described("a"), Described("b")]), RunFolder(tmp_path)
    assert source.describe() == {"tasks[0] name": "a", "tasks[1] name": "b"}
    (tmp_path / source.file).write_text(json.dumps(source.describe()))
    source.check_description(run)
    with pytest.raises(RunFolderError, match=r"tasks\[1\] name: the run has 'b', now 'c'"):
        SeveralSources([Described("a"), Described("c")]).check_description(run)


def test_what_parts_would_write_at_the_end_is_left_out_and_told() -> None:
    said: list[str] = []

    class End:
        say = said.append

    assert SeveralSources([Described("a")]).finish(End()) == []  # type: ignore[arg-type]
    assert said == ["note: what runs on tasks[0] alone add at their end is left out in a run on several"]


def test_parts_are_pooled_if_their_examples_have_one_shape() -> None:
    assert SeveralSources([Described("a"), Described("b")]).pooled(2) is None
    assert SeveralSources([Described("pooled"), Described("b")]).pooled(2) is not None
    with pytest.raises(
        ValueError, match=r"must have the same shape to be pooled by meta.warm_start, got \(1,\), \(2,\)"
    ):
        SeveralSources([Described("pooled"), Described("b", size=2)]).pooled(2)
    with pytest.raises(ValueError, match="equally many examples, got 1, 24"):
        SeveralSources([Described("a"), Described("b", shot=24)])


def test_an_error_of_a_part_says_how_its_keys_are_set(two: Path) -> None:
    text = LIST.replace('kind = "mlp"\ninputs = 1\nhidden = [4]\noutputs = 1', 'kind = "sites"')
    two.write_text(text.replace('[likelihood]\nkind = "gaussian"', '[likelihood]\nkind = "mixture"'))
    parts = '[[tasks]]\nkind = "sites"\nplants = 10\n[[tasks]]\nkind = "sites"\npath = "gone.csv"\n'
    two.write_text(two.read_text().replace(TWO, parts))
    with pytest.raises(FileNotFoundError) as error:
        open_tasks(read_config(two).task_settings, progress=False)
    assert error.value.__notes__ == ["This is about part 1 of [[tasks]], whose keys are set by --set tasks.1.KEY=VALUE"]
