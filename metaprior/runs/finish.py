"""The end of a run, and ``metaprior evaluate``: how good the learned prior is on tasks that nothing has seen yet."""

from collections.abc import Callable, Sequence
from pathlib import Path

from metaprior.evaluation import Evaluation
from metaprior.files import written_when_complete
from metaprior.methods.meta_learner import MetaLearner
from metaprior.report.canvas import PENS
from metaprior.runs.config import Config
from metaprior.runs.folder import RunFolder
from metaprior.runs.learned import learned
from metaprior.runs.sources import LearnedRun, TaskSource, open_tasks
from metaprior.runs.tensorboard import EventFiles
from metaprior.scores import IntervalReliability
from metaprior.tasks.task import FirstTasks
from metaprior.team import current_team
from metaprior.team.agreement import refuse_disagreement, task_digest
from metaprior.text_table import counted

Say = Callable[[str], None]


def finish(end: LearnedRun, source: TaskSource, events: EventFiles, step: int) -> None:
    """Save the prior, evaluate it on test tasks, draw, and let the source add what it has to say.

    The ranks of the current team share what is computed. Only rank 0 looks at the folder, which others may not see.
    """
    team = current_team()
    team.on_first(lambda: save_prior(end.learner, end.run, end.step))
    found = evaluate_learner(end.config, end.learner, source, poll=end.poll)

    def write() -> list[Path]:
        end.run.write_json("evaluation.json", found.as_json())
        end.run.write_notes(end.notes)
        end.say(_summary(found, source, end.run))
        return draw(found, end.run, end.say)

    pictures = team.on_first(write) + source.finish(end)

    def close() -> None:
        for path in pictures:
            events.add_picture(path.stem, path, step)
        end.run.note_finished()

    team.on_first(close)


def save_prior(learner: MetaLearner, run: RunFolder, step: int) -> None:
    """Save a learner as the prior of a run; its theta is that after ``step`` steps."""
    learner.save(run.prior)
    run.note_saved("prior", step)


def _summary(found: Evaluation, source: TaskSource, run: RunFolder) -> str:
    """Return the table of an evaluation, below the source's heading and above the run's notes."""
    heading = [source.heading] if source.heading else []
    return "\n".join([*heading, found.table(), *(f"note: {note}" for note in run.notes)])


def evaluate_run(
    folder: Path,
    *,
    shots: Sequence[int] | None = None,
    steps: Sequence[int] | None = None,
    tasks: int | None = None,
    device: str = "cpu",
    say: Say = lambda _: None,
    announce: Say = lambda _: None,
) -> Evaluation:
    """Evaluate the prior that a run has saved on test tasks, and print the table.

    The ranks of the current team share the tasks. All of them have to see the folder.

    Args:
        folder: the folder of the run.
        shots, steps, tasks: as in ``evaluate_learner``.
        device: where to compute; noise of a GPU is not that of the CPU.
        say: prints a line of the result.
        announce: prints what is about to be done.

    Returns:
        The evaluation, the same on all ranks.
    """
    run = RunFolder(folder)
    config, learner = learned(
        run, device=device, options={"--shots": shots, "--steps": steps, "--tasks": tasks, "--device": device}
    )
    team = current_team()

    def opened() -> TaskSource:
        source = open_tasks(config.task_settings, progress=team.first)
        source.check_description(run)
        _check_shots(shots, source)
        return source

    source, digests = team.attempt(opened, lambda source: task_digest(source.tasks("test", 1)[0]))
    team.on_first(lambda: refuse_disagreement([{"data of the first test task": digest} for digest in digests]))
    team.on_first(lambda: announce(f"scoring {counted(tasks or config.evaluate.tasks, 'unseen task')} of {folder}"))
    found = evaluate_learner(config, learner, source, shots=shots, steps=steps, tasks=tasks, progress=True)
    team.on_first(lambda: say(_summary(found, source, run)))
    return found


def _check_shots(shots: Sequence[int] | None, source: TaskSource) -> None:
    """Raise if the first test task has too few support examples; the others are of the same size."""
    largest = source.tasks("test", 1)[0].support.size // source.examples_per_shot
    if shots and max(shots) > largest:
        raise ValueError(f"--shots must be at most {largest}, the shots of the run's tasks, got {max(shots)}")


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
    """Evaluate a prior on test tasks.

    Args:
        config: says what is not given.
        learner: the prior.
        source: the tasks.
        shots: numbers of support examples (for classes: of each class) to adapt to.
        steps: numbers of adaptation steps.
        tasks: how many tasks.
        poll: called before every task; may raise KeyboardInterrupt.
        progress: show a bar.
    """
    team, count, each = current_team(), tasks or config.evaluate.tasks, source.examples_per_shot
    unseen, _ = team.attempt(lambda: FirstTasks(source.tasks("test", count), count, poll), lambda _: None)
    return learner.evaluate(
        unseen,
        shots=shots or possible_shots(config.evaluate.shots, team.on_first(lambda: unseen[0].support.size), each),
        steps=steps or evaluated_steps(config, learner),
        samples=config.evaluate.samples,
        examples_per_shot=each,
        progress=progress,
    )


def evaluated_steps(config: Config, learner: MetaLearner) -> list[int] | None:
    """Return the numbers of steps to evaluate; None where adapting takes no steps."""
    usual = learner.task_model().steps
    return None if usual is None else sorted({*config.evaluate.adaptation_steps, usual})


def possible_shots(shots: Sequence[int], support: int, each: int) -> list[int | None]:
    """Return the shots that a support set has examples for, and None (all of them) if no other number says it."""
    possible: list[int | None] = [count for count in shots if count * each <= support]
    return possible if support % each == 0 and support // each in possible else [*possible, None]


def intervals_by_shots(found: Evaluation) -> dict[str, IntervalReliability]:
    """Return the counts of intervals by shots, after the most steps; at most as many as there are pens."""
    most = max(cell.steps for cell in found.reliability)
    cells = [cell for cell in found.reliability if cell.shots == 0 or cell.steps == most]
    names = {cell: "all shots" if cell.shots is None else f"{cell.shots} shots" for cell in cells[-len(PENS) :]}
    counts = {name: found.reliability[cell] for cell, name in names.items()}
    return {name: own for name, own in counts.items() if isinstance(own, IntervalReliability)}


def draw(found: Evaluation, run: RunFolder, say: Say) -> list[Path]:
    """Draw a learning curve and a calibration diagram; where matplotlib is not installed, print a note."""
    from metaprior.report.canvas import has_matplotlib
    from metaprior.report.learning_curve import learning_curve
    from metaprior.report.reliability import reliability_diagram

    if not has_matplotlib():
        say("note: no pictures, which need matplotlib. Try: pip install 'metaprior[report]'")
        return []
    drawn: dict[str, Callable[[Path], None]]
    drawn = {"learning_curve": lambda path: learning_curve(path, found, title=f"{run.path.name}: unseen tasks")}
    if found.reliability:
        cell, counts = list(found.reliability.items())[-1]
        title = f"{run.path.name}: {cell}"
        if isinstance(counts, IntervalReliability):
            by_shots, title = intervals_by_shots(found), f"{run.path.name}: unseen tasks by shots"
            drawn["reliability"] = lambda path: reliability_diagram(path, by_shots, title=title)
        else:
            drawn["reliability"] = lambda path: reliability_diagram(path, counts, title=title)
    for name, picture in drawn.items():
        with written_when_complete(run.path / f"{name}.png") as temporary:
            picture(temporary)
    return [run.path / f"{name}.png" for name in drawn]
