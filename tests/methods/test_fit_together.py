"""``MetaLearner.fit`` by several ranks; threads for processes. With real ones: tests/team/test_equality.py."""

import torch

import metaprior as mp
from metaprior.tasks import Sinusoids
from metaprior.team import OtherRankFailed
from metaprior.team.agreement import Disagreement
from tests.team.fake import outcomes


def fit(**settings: int) -> mp.MetaLearner:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.pop("module_seed", 0))
        module = mp.MLP(1, [4], 1)
    learner = mp.MetaLearner(module, mp.Gaussian(), adaptation=mp.Descent(1), standardize=False)
    data_seed = settings.pop("data_seed", 0)
    return learner.fit(
        Sinusoids(seed=data_seed),
        epochs=1,
        tasks_per_epoch=4,
        progress=False,
        **{"meta_batch": 2, **settings},
    )


def refusal(**of_rank_1: int) -> str:
    found = outcomes(2, lambda team: fit(**(of_rank_1 if team.rank else {})))
    assert isinstance(found[0], Disagreement)
    assert isinstance(found[1], OtherRankFailed)
    return str(found[0])


def test_modules_that_start_from_other_weights_are_refused() -> None:
    """Every process makes its own module, and without a seed each makes another one."""
    assert "first theta (seed torch before the module is made): rank 0 has '" in refusal(module_seed=1)


def test_other_settings_and_other_data_are_refused() -> None:
    assert "meta_batch: rank 0 has 2, rank 1 has 4" in refusal(meta_batch=4)
    assert "data of the first task: rank 0 has '" in refusal(data_seed=1)
