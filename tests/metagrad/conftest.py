import warnings

import pytest
import torch

with warnings.catch_warnings():  # torch's own: its first forward-mode derivative compiles helpers with torch.jit.script
    warnings.simplefilter("ignore", DeprecationWarning)
    torch.func.jvp(torch.sin, (torch.ones(1),), (torch.ones(1),))


@pytest.fixture(autouse=True)
def same_networks_every_time() -> None:
    """A bias that starts close to zero has a tiny sigma, and so an inner loop that explodes."""
    torch.manual_seed(0)
