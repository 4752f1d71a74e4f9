"""Other libraries, given the same problem, come to the same numbers."""

import pytest
import torch

from benchmarks.common import peers
from benchmarks.gradients import CASES, Case, relative_difference
from metaprior.metagrad import MetaGradient, unrolled
from metaprior.noise import Noise

NAMES = [f"{case.network.__name__}-{type(case.likelihood).__name__}-{i}" for i, case in enumerate(CASES)]


@pytest.mark.parametrize("peer", ["higher", "torchopt"])
@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_a_peer_agrees_with_unrolled(peer: str, case: Case) -> None:
    pytest.importorskip(peer)
    problem, theta, task = case.build(torch.float64)
    if peer == "torchopt" and theta.log_lr is not None:
        with pytest.raises(ValueError, match="one fixed step size"):
            peers.PEERS[peer](problem, theta, task, Noise(1))
        return
    expected = unrolled(problem, theta, task, Noise(1))
    assert isinstance(expected, MetaGradient)
    found = peers.PEERS[peer](problem, theta, task, Noise(1))
    torch.testing.assert_close(found.loss, expected.loss, rtol=1e-12, atol=0)
    assert list(found.grads.plain) == list(expected.grads.plain)
    assert relative_difference(found.grads, expected.grads) < 1e-10


def test_theta_is_left_alone() -> None:
    pytest.importorskip("higher")
    problem, theta, task = CASES[0].build(torch.float64)
    before = theta.detached()
    peers.higher_unroll(problem, theta, task, Noise(1))
    assert torch.equal(theta.mu, before.mu)
    assert not theta.mu.requires_grad
    assert all(p.grad is None for p in problem.network.module.parameters())
