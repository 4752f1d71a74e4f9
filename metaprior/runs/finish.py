"""The end of a run, and ``metaprior evaluate``: how good the learned prior is on tasks that nothing has seen yet."""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from metaprior import checkpoint
from metaprior.evaluation import Evaluation
from metaprior.methods.meta_learner import MetaLearner
from metaprior.runs.config import Config
from metaprior.runs.folder import RunFolder
from metaprior.runs.learned import learned
from metaprior.runs.sources import FirstTasks, LearnedRun, TaskSource, open_tasks
from metaprior.runs.tensorboard import TensorBoard
from metaprior.runs.validation import Polled
from metaprior.scores import Reliability
from metaprior.team import current_team
from metaprior.team.agreement import refuse_disagreement, task_digest

Say = Callable[[str], None]


def finish(
    config: Config,
    learner: MetaLearner,
    source: TaskSource,
    run: RunFolder,
    board: TensorBoard | None,
    step: int,
    *,
    poll: Callable[[], None],
    say: Say,
) -> None:
    """Save the prior, evaluate it on test tasks, draw, and let the source add what it has to say.

    The ranks of the current team share what is computed. Only rank 0 looks at the folder, which others may not see.
    """
    team = current_team()
    best = team.on_first(lambda: save_prior(learner, run, step))
    found = evaluate_learner(config, learner, source, poll=poll)
    pictures = team.on_first(lambda: _write_evaluation(found, source, run, say))
    pictures += source.finish(LearnedRun(config, learner, run, best, poll, say))
    team.on_first(lambda: _end(run, board, pictures, step))


def save_prior(learner: MetaLearner, run: RunFolder, step: int) -> int:
    """The learner's theta as the run's prior; returns the steps before the best validation, which it is of."""
    best = run.best_step(step)
    learner.save(run.prior)
    run.note_saved("prior", best)
    return best


def _write_evaluation(found: Evaluation, source: TaskSource, run: RunFolder, say: Say) -> list[Path]:
    run.write_json("evaluation.json", found.as_json())
    say(_table(found, source))
    return draw(found, run, say)


def _table(found: Evaluation, source: TaskSource) -> str:
    """An evaluation for reading."""
    return "\n".join([*([source.heading] if source.heading else []), found.table()])


def _end(run: RunFolder, board: TensorBoard | None, pictures: Sequence[Path], step: int) -> None:
    if board is not None:
        for path in pictures:
            board.add_picture(path.stem, path, step)
    run.note_finished()


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
    config, learner = learned(run, options={"--shots": shots, "--steps": steps, "--tasks": tasks})
    team = current_team()

    def opened() -> TaskSource:
        source = open_tasks(config.task_settings, progress=team.first)
        source.check_description(run)
        return source

    source, digests = team.attempt(opened, lambda source: task_digest(source.tasks("test", 1)[0]))
    team.on_first(lambda: refuse_disagreement([{"data of the first test task": digest} for digest in digests]))
    found = evaluate_learner(config, learner, source, shots=shots, steps=steps, tasks=tasks, progress=True)
    team.on_first(lambda: say(_table(found, source)))
    return found


def evaluate_learner(
    config: Config,
    learner: MetaLearner,
    source: TaskSource,
    *,
    shots: Sequence[int] | None = None,
    steps: Sequence[int] | None = None,
    tasks: int | None = None,
    poll: Callable[[], None] = lambda: None,
    progress: bool = False,
) -> Evaluation:
    """By shots and by steps, on test tasks."""
    team, count, each = current_team(), tasks or config.evaluate.tasks, source.examples_per_shot
    unseen, _ = team.attempt(lambda: FirstTasks(source.tasks("test", count), count), lambda _: None)
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
    from metaprior.report.canvas import has_matplotlib
    from metaprior.report.learning_curve import learning_curve
    from metaprior.report.reliability import interval_diagram, reliability_diagram

    if not has_matplotlib():
        say("note: no pictures, which need matplotlib. Try: pip install 'metaprior[report]'")
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
    return [write_whole(run.path / f"{name}.png", picture) for name, picture in drawn.items()]


def write_whole(path: Path, write: Callable[[Path], None]) -> Path:
    """Let ``write`` make a file elsewhere, then move it to its place: half a file never stands in the folder."""
    with tempfile.TemporaryDirectory() as elsewhere:
        written = Path(elsewhere) / path.name
        write(written)
        checkpoint.write_file(path, written.read_bytes())
    return path
