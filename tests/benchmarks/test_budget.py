import pytest
import torch

from benchmarks.common import budget
from benchmarks.common.budget import fit_within, meta_train_within, one_thread
from metaprior.likelihoods import Gaussian
from metaprior.metagrad.problem import Descent
from metaprior.methods.meta_learner import MetaLearner
from metaprior.models.small import MLP
from metaprior.tasks.waves import Sinusoids
from metaprior.training.settings import MetaTraining


@pytest.mark.parametrize(("share", "warm", "meta"), [(0.0, 0, 8), (0.5, 50, 3), (1.0, 100, 0), (0.999, 100, 1)])
def test_the_time_is_shared_between_warm_start_and_meta_steps(
    monkeypatch: pytest.MonkeyPatch, share: float, warm: int, meta: int
) -> None:
    def pace(learner: MetaLearner, tasks: Sinusoids, training: MetaTraining) -> budget._Pace:
        return budget._Pace(0.0, 0.1) if training.warm_start else budget._Pace(2.0, 1.0)

    monkeypatch.setattr(budget, "_pace", pace)
    learner = MetaLearner(MLP(1, [4], 1), Gaussian(), adaptation=Descent(steps=1), standardize=False)
    fitted = fit_within(learner, Sinusoids(), MetaTraining(meta_batch=2), seconds=10, warm_share=share, progress=False)
    assert (fitted.warm_start, fitted.meta_steps) == (warm, meta)
    assert sum(summary.steps for summary in learner.history_) == warm + meta
    assert fitted.seconds > 0


def test_threads_are_as_before_also_after_an_error() -> None:
    def fail() -> None:
        with one_thread():
            assert torch.get_num_threads() == 1
            raise KeyError

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    with pytest.raises(KeyError):
        fail()
    assert torch.get_num_threads() == 2
    torch.set_num_threads(before)


@pytest.mark.usefixtures("short_search")
def test_without_any_time_there_is_still_the_step_that_searches_step_sizes() -> None:
    learner = MetaLearner(
        MLP(1, [4], 1), Gaussian(), adaptation=Descent(steps=1, lr=10.0, learn_lr="per_tensor"), standardize=False
    )
    fitted = meta_train_within(learner, Sinusoids(), MetaTraining(meta_batch=2), seconds=-3.0)
    assert fitted.meta_steps == 1
    assert bool((learner.theta_.log_lr != torch.tensor(10.0).log()).all())
