from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from metaprior.objectives import free_energy, geometric_shares, minibatch_free_energy, uniform_shares


@given(n=st.integers(1, 200), batch_size=st.integers(1, 250), temperature=st.floats(0.05, 20), geometric=st.booleans())
def test_mean_over_an_epoch_is_the_free_energy_whatever_the_batch_size(
    n: int, batch_size: int, temperature: float, geometric: bool
) -> None:
    nll = torch.rand(n, dtype=torch.float64, generator=torch.Generator().manual_seed(n))
    kl = torch.tensor(3.7, dtype=torch.float64)
    whole = free_energy(nll.sum(), kl, num_observations=n, temperature=temperature)
    batches = nll.split(batch_size)
    shares = (geometric_shares if geometric else uniform_shares)(len(batches))
    parts = [
        minibatch_free_energy(
            b.sum(), kl, num_observations=n, num_batches=len(batches), kl_share=s, temperature=temperature
        )
        for b, s in zip(batches, shares, strict=True)
    ]
    for term in ("nll", "kl", "total"):
        mean = torch.stack([getattr(part, term) for part in parts]).mean()
        torch.testing.assert_close(mean, getattr(whole, term), rtol=1e-9, atol=0)


def test_free_energy_is_the_equation() -> None:
    terms = free_energy(torch.tensor(30.0), torch.tensor(4.0), num_observations=10, temperature=0.5)
    assert float(terms.nll) == pytest.approx(6.0)
    assert float(terms.kl) == pytest.approx(0.4)
    assert float(terms.total) == pytest.approx(6.4)


@pytest.mark.parametrize("batches", [1, 2, 7, 5000])
def test_geometric_shares_halve_and_sum_to_one(batches: int) -> None:
    shares = geometric_shares(batches)
    assert sum(shares) == pytest.approx(1.0)
    assert all(later == pytest.approx(earlier / 2) for earlier, later in pairwise(shares[:40]))
