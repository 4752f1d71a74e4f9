"""The end of a run, and ``metaprior evaluate``: how good the learned prior is on tasks that nothing has seen yet."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch

from metaprior import checkpoint
from metaprior.evaluation import Evaluation
from metaprior.methods.meta_learner import MetaLearner
from metaprior.runs.build import examples_per_shot, unseen_tasks
from metaprior.runs.config import Config, flat
from metaprior.runs.folder import RunFolder, Saved
from metaprior.runs.opening import check_frames
from metaprior.runs.reading import parse
from metaprior.runs.tensorboard import TensorBoard
from metaprior.runs.validation import Polled
from metaprior.scores import Reliability
from metaprior.tasks import Task
from metaprior.team import current_team
from metaprior.team.agreement import code_facts, refuse_disagreement, task_digest, tensors_digest

if TYPE_CHECKING:
    from metaprior.solar.maps.solar_scores import SolarScores

Say = Callable[[str], None]
FILES: dict[Saved, str] = {"prior": "prior", "scores": "scores.json"}


def finish(
    config: Config,
    learner: MetaLearner,
    run: RunFolder,
    board: TensorBoard | None,
    step: int,
    *,
    poll: Callable[[], None],
    say: Say,
) -> None:
    """Save the prior, evaluate it on test tasks, draw.

    The ranks of the current team share what is computed. Only rank 0 looks at the folder, which others may not see.
    """
    team = current_team()
    best = team.on_first(lambda: save_prior(learner, run, step))
    found = evaluate_learner(config, learner, poll=poll)
    pictures = team.on_first(lambda: _write_evaluation(config, found, run, say))
    if config.is_solar:
        pictures += finish_solar(config, learner, run, poll=poll, say=say)
    team.on_first(lambda: _end(config, run, board, pictures, step, best))


def save_prior(learner: MetaLearner, run: RunFolder, step: int) -> int:
    """The learner's theta as the run's prior; returns the steps before the best validation, which it is of."""
    best = run.best_step(step)
    learner.save(run.prior)
    run.note_saved("prior", best)
    return best


def _write_evaluation(config: Config, found: Evaluation, run: RunFolder, say: Say) -> list[Path]:
    run.write_json("evaluation.json", found.as_json())
    say(_table(config, found))
    return draw(found, run, say)


def _table(config: Config, found: Evaluation) -> str:
    """An evaluation for reading."""
    return "\n".join([*_numbers_heading(config), found.table()])


def _numbers_heading(config: Config) -> list[str]:
    """What a solar run's evaluation is in: scores by lead time are in the frames' own units."""
    return [f"unseen tasks, in the network's numbers ({config.solar.units})"] if config.is_solar else []


def _end(
    config: Config, run: RunFolder, board: TensorBoard | None, pictures: Sequence[Path], step: int, best: int
) -> None:
    if config.is_solar:
        run.note_saved("scores", best)
    if board is not None:
        for path in pictures:
            board.add_picture(path.stem, path, step)
    run.note_finished()


def finish_solar(
    config: Config,
    learner: MetaLearner,
    run: RunFolder,
    *,
    poll: Callable[[], None],
    say: Say,
) -> list[Path]:
    """Scores by lead time and maps to look at; the picture of the first, where what draws is installed."""
    from metaprior.solar.maps.solar_scores import score_run  # only solar runs need the extra `solar`

    scores = score_run(config, learner, poll=poll)
    return current_team().on_first(lambda: _write_solar(config, learner, run, scores, say))


def _write_solar(config: Config, learner: MetaLearner, run: RunFolder, scores: "SolarScores", say: Say) -> list[Path]:
    from metaprior.solar.maps.solar_examples import example_maps, write_examples

    run.write_json("scores.json", scores.as_json())
    say(scores.table())
    examples = example_maps(config, learner)
    if not examples:
        say("note: no maps, because none of the first forecasts is finite")
        return []
    _whole(run.path / "examples.nc", lambda path: write_examples(path, examples))
    try:
        from metaprior.solar.maps.report.solar_figures import forecast_figure
    except ModuleNotFoundError:  # said already, where the other pictures were to be drawn
        return []
    return [_whole(run.path / "forecast.png", lambda path: forecast_figure(path, examples[0]))]


def evaluate_run(
    folder: Path,
    *,
    shots: Sequence[int] | None = None,
    steps: Sequence[int] | None = None,
    tasks: int | None = None,
    say: Say = lambda _: None,
) -> Evaluation:
    """The prior that a run has saved, on test tasks; what is not given is as configured. The table is said.

    The ranks of the current team share the tasks. All of them have to see the folder.
    """
    run = RunFolder(folder)
    asked = {"--shots": shots, "--steps": steps, "--tasks": tasks}
    config, learner = learned(run, options=asked)
    team = current_team()
    _, digests = team.attempt(lambda: _first_task(run, config, progress=team.first), task_digest)
    team.on_first(lambda: refuse_disagreement([{"data of the first test task": digest} for digest in digests]))
    found = evaluate_learner(config, learner, shots=shots, steps=steps, tasks=tasks, progress=True)
    team.on_first(lambda: say(_table(config, found)))
    return found


def _first_task(run: RunFolder, config: Config, *, progress: bool) -> Task:
    """Of the test tasks, which are opened for it."""
    if config.is_solar:
        config.open_solar(progress=progress)
        check_frames(run, config)
    return unseen_tasks(config, "test", 1)[0]


def learned(
    run: RunFolder,
    *,
    options: Mapping[str, object] = MappingProxyType({}),
) -> tuple[Config, MetaLearner]:
    """The configuration of a run, and the prior that it has saved.

    Every rank reads the folder, so all have to see it, and to find the same in it; also ``options``, what
    is asked for beside it, have to be the same on all of them.
    """
    team = current_team()
    if team.size == 1:
        return _read(run)
    found, facts = team.attempt(lambda: _read(run), lambda found: {**_facts(*found), **options})
    team.on_first(lambda: refuse_disagreement(facts))
    return found


def _read(run: RunFolder) -> tuple[Config, MetaLearner]:
    config = parse(run.config(), str(run.path / "config.json"))
    torch.set_num_threads(config.run.threads)  # as in training: the same numbers, to the last bit
    if not run.prior.exists():
        raise ValueError(
            f"{run.prior} is not there: the run has neither finished nor had a validation; go on with metaprior train "
            "--resume"
        )
    return config, MetaLearner.load(run.prior)


def _facts(config: Config, learner: MetaLearner) -> dict[str, Any]:
    """What has to be the same on all ranks: one may have another copy of the folder, or read while it is written."""
    named = learner.theta_.named()
    prior = tensors_digest([named[name] for name in sorted(named)])  # a file gives them in any order
    return {**flat(config.resolved()), **code_facts(), "prior": prior}


def unfinished_note(folder: Path, name: Saved) -> str | None:
    """Which state of a run is used by what needs its prior or its scores; None where that is the end of a finished run.

    The prior is saved whenever a validation is the best so far. A run that is continued has the scores of its earlier
    end until it comes to the next one.
    """
    run = RunFolder(folder)
    if not (run.path / FILES[name]).exists() or run.finished:
        return None  # what is not there is an error of its own
    lines, steps = run.metrics(), parse(run.config(), str(run.path / "config.json")).meta.steps
    now = lines[-1]["step"] if lines else 0
    return (
        f"note: {run.path} has not finished (step {now} of {steps}): its {name} {_state(run, name, now)}; "
        "metaprior train --resume goes on"
    )


def _state(run: RunFolder, name: Saved, now: int) -> str:
    verb, saved, best = "is" if name == "prior" else "are", run.saved_step(name), run.best_step(now)
    if saved is None:
        return f"{verb} of an earlier end"
    if saved == best:
        return f"{verb} of step {saved}, the best so far"
    return f"{verb} of step {saved}, the best at an earlier end; the best so far is step {best}"


def evaluate_learner(
    config: Config,
    learner: MetaLearner,
    *,
    shots: Sequence[int] | None = None,
    steps: Sequence[int] | None = None,
    tasks: int | None = None,
    poll: Callable[[], None] = lambda: None,
    progress: bool = False,
) -> Evaluation:
    """By shots and by steps, on test tasks."""
    team = current_team()
    unseen, _ = team.attempt(lambda: unseen_tasks(config, "test", tasks or config.evaluate.tasks), lambda _: None)
    each = examples_per_shot(config)
    return learner.evaluate(
        Polled(unseen, poll),
        shots=shots or possible_shots(config.evaluate.shots, team.on_first(lambda: unseen[0].support.size), each),
        steps=steps or sorted({*config.evaluate.adaptation_steps, config.inner.steps}),
        samples=config.evaluate.samples,
        examples_per_shot=each,
        progress=progress,
    )


def possible_shots(shots: Sequence[int], support: int, each: int) -> list[int | None]:
    """Those for which a support set has examples, and all that it has (None, unless it is one of the others)."""
    possible: list[int | None] = [count for count in shots if count * each <= support]
    return possible if support % each == 0 and support // each in possible else [*possible, None]


def draw(found: Evaluation, run: RunFolder, say: Say) -> list[Path]:
    """Learning curve and calibration; where what draws is not installed, a note."""
    try:
        from metaprior.report.learning_curve import learning_curve
        from metaprior.report.reliability import interval_diagram, reliability_diagram
    except ModuleNotFoundError as error:
        say(f"note: no pictures ({error}); they need: pip install 'metaprior[report]'")
        return []
    drawn = {"learning_curve": lambda path: learning_curve(path, found, title=f"{run.path.name}: unseen tasks")}
    if found.reliability:
        cell, counts = list(found.reliability.items())[-1]
        title = f"{run.path.name}: {cell}"
        drawn["reliability"] = lambda path: (
            reliability_diagram(path, counts, title=title)
            if isinstance(counts, Reliability)
            else interval_diagram(path, counts, title=title)
        )
    return [_whole(run.path / f"{name}.png", picture) for name, picture in drawn.items()]


def _whole(path: Path, picture: Callable[[Path], None]) -> Path:
    """Draw elsewhere first: half a picture never stands in the folder."""
    with tempfile.TemporaryDirectory() as elsewhere:
        drawn = Path(elsewhere) / path.name
        picture(drawn)
        checkpoint.write_file(path, drawn.read_bytes())
    return path
