"""What version 0.1.0 saved, and what has to come out of it for ever: ``tests/golden/saved_0_1_0``.

``python -m tests.golden.saved FOLDER`` made that folder with 0.1.0 (saved models and ``expected.json``). It is
never to be made again: later versions read it.
"""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import torch

import metaprior as mp
from metaprior.models.small import Conv4
from tests.golden import cases_bayes_by_backprop, cases_hierarchy, cases_meta_learner
from tests.golden.adapters import forecast_entries, posterior_entries
from tests.golden.data import Waves, generator, wave
from tests.golden.digest import Entries, digest, write
from tests.golden.registry import Case, entries_of

SAVED = Path(__file__).parent / "saved_0_1_0"
X_NEW = torch.linspace(-2.5, 2.5, 5, dtype=torch.float64)[:, None]


def meta_learner(folder: Path) -> Entries:
    """Return theta, and forecasts before and after adaptation, of a saved meta-learner."""
    return cases_meta_learner.entries(mp.MetaLearner.load(folder), Waves()[cases_meta_learner.NEW])


def bayes_by_backprop(folder: Path) -> Entries:
    """Return weights, history and forecast of a saved fit."""
    return cases_bayes_by_backprop.entries(mp.BayesByBackprop.load(folder), wave()[1])


def hierarchical_vi(folder: Path) -> Entries:
    """Return psi, posteriors and forecasts of a store, and those of a new task."""
    hvi = mp.HierarchicalVI.load(folder)
    posterior = hvi.adapt(Waves()[900].support, 4)
    found = posterior_entries(posterior, "new task") | forecast_entries(posterior.predict(X_NEW, samples=4))
    return cases_hierarchy.entries(hvi) | found


def maps_tasks() -> list[mp.Task]:
    """Return tasks of maps (1, 4, 4) -> (1, 4, 4)."""
    made = generator(7)

    def examples(count: int) -> mp.Examples:
        return mp.Examples(*torch.randn(2, count, 1, 4, 4, dtype=torch.float64, generator=made))

    return [mp.Task(examples(2), examples(2), f"maps {number}") for number in range(3)]


def class_tasks() -> list[mp.Task]:
    """Return tasks of images (1, 16, 16) of two classes."""
    made = generator(8)

    def examples(count: int) -> mp.Examples:
        return mp.Examples(torch.randn(count, 1, 16, 16, dtype=torch.float64, generator=made), torch.arange(count) % 2)

    return [mp.Task(examples(4), examples(2), f"images {number}") for number in range(3)]


READERS: dict[str, Callable[[Path], Entries]] = {
    "meta_learner": meta_learner,
    "meta_learner_maps": lambda folder: cases_meta_learner.entries(mp.MetaLearner.load(folder), maps_tasks()[2]),
    "meta_learner_classes": lambda folder: cases_meta_learner.entries(mp.MetaLearner.load(folder), class_tasks()[2]),
    "bayes_by_backprop": bayes_by_backprop,
    "hierarchical_vi": hierarchical_vi,
}


def read_saved(name: str, folder: Path) -> Entries:
    """Return the entries of a saved model, read from a copy of it: a store may be written to."""
    shutil.copytree(SAVED / name, folder / name)
    return entries_of(Case(lambda _: READERS[name](folder / name), 0.0), folder)


def _save(folder: Path) -> None:
    learner = cases_meta_learner.fitted(cases_meta_learner.SETTINGS["random head, plain trunk fixed"])
    learner.save(folder / "meta_learner")
    inner = mp.Descent(steps=2, lr=1e-3, learn_lr="one", adapt=None)
    torch.manual_seed(0)
    unet = mp.BayesianUNet(input_len=1, target_len=1, width=4, levels=1).double()
    mp.MetaLearner(unet, mp.CRPSGaussian(), adaptation=inner, standardize=False).start(maps_tasks()).save(
        folder / "meta_learner_maps"
    )
    torch.manual_seed(0)
    conv4 = Conv4(channels=1, size=16, classes=2, width=2).double()
    images = mp.MetaLearner(conv4, mp.Categorical(), adaptation=inner, objective="abml")
    images.start(class_tasks()).save(folder / "meta_learner_classes")
    _, y = wave()
    cases_bayes_by_backprop.fitted(mp.Gaussian(), y, prior=mp.ScaleMixturePrior()).save(folder / "bayes_by_backprop")
    cases_hierarchy.inference(folder / "hierarchical_vi", stochastic=".*weight").fit(
        cases_hierarchy.tasks(3), **cases_hierarchy.FIT
    )
    expected = {
        name: {key: digest(value) for key, value in read(folder / name).items()} for name, read in READERS.items()
    }
    write(folder / "expected.json", expected)


if __name__ == "__main__":
    torch.set_num_threads(1)
    _save(Path(sys.argv[1]))
