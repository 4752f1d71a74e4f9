"""``metaprior train`` and ``evaluate`` with the configurations that come with the package, made small."""

from pathlib import Path

from tests.golden.digest import Entries
from tests.golden.registry import FLOAT32, case
from tests.golden.run_files import command, evaluation_entries, is_same, run_entries, shipped_config, train, train_until

TINY = (
    "meta.epochs=2",
    "meta.tasks_per_epoch=6",
    "meta.meta_batch=2",
    "meta.grad_clip_norm=1.0",
    "evaluate.tasks=2",
    "evaluate.samples=3",
    "evaluate.calibrate=false",
    "run.checkpoint_every=2",
)
SINUSOID = (*TINY, "model.hidden=[8]", "adaptation.steps=2", "meta.warm_start=4", "meta.warm_start_average=0.5")


@case("runs/sinusoid, stopped and resumed", FLOAT32)
def sinusoid(folder: Path) -> Entries:
    config = shipped_config("sinusoid")
    train(config, folder / "run", *SINUSOID)
    train_until(3, config, folder / "stopped", *SINUSOID)  # in the warm start; a checkpoint is at 2
    train_until(9, config, folder / "stopped", *SINUSOID, resume=True)  # in the last epoch; a checkpoint is at 8
    train(config, folder / "stopped", *SINUSOID, resume=True)
    found = run_entries(folder / "run")
    found["resumed is bitwise identical"] = is_same(found, run_entries(folder / "stopped"))
    again = ("evaluate", folder / "run", "--shots", "0,2", "--steps", "1,3", "--tasks", "3")
    command(*again, "--json", folder / "evaluation.json")
    evaluated = evaluation_entries(folder / "evaluation.json")
    return found | {f"evaluate/{name}": value for name, value in evaluated.items()}


@case("runs/sine_or_line", FLOAT32)
def sine_or_line(folder: Path) -> Entries:
    changes = (*TINY, "model.hidden=[8]", "adaptation.steps=2", "meta.schedule=plateau", "meta.plateau_patience=1")
    train(shipped_config("sine_or_line"), folder / "run", *changes)
    return run_entries(folder / "run")


@case("runs/wheel", FLOAT32)
def wheel(folder: Path) -> Entries:
    small = ("tasks.k_shot=8", "tasks.k_query=5", "tasks.num_tasks=5", "evaluate.shots=[0,1]")
    changes = (*TINY, *small, "model.hidden=[8]", "adaptation.steps=2", "meta.warm_start=2", "meta.objective=abml")
    train(shipped_config("wheel"), folder / "run", *changes)
    return run_entries(folder / "run")


@case("runs/drifting_blobs", FLOAT32)
def drifting_blobs(folder: Path) -> Entries:
    small = ("model.width=4", "tasks.size=8", "tasks.k_shot=3", "tasks.k_query=2", "meta.search_step_size=false")
    train(shipped_config("drifting_blobs"), folder / "run", *TINY, *small, "adaptation.steps=2", "meta.warm_start=2")
    return run_entries(folder / "run")
