"""A network that reads contexts together with the encoder that makes them, in the names of theta."""

from collections.abc import Sequence

from torch import Tensor, nn

from metaprior.adaptation.context.encoder import SetEncoder, SupportEncoder
from metaprior.adaptation.context.reading import VALUE, ConditionedModule, ContextNoise, reads_argument
from metaprior.adaptation.context.settings import Context
from metaprior.adaptation.task_model import Binding
from metaprior.likelihoods import Gaussian, Likelihood
from metaprior.network import BayesianNetwork
from metaprior.tasks.task import Examples
from metaprior.weights import WeightDistribution

ENCODER = "context.encoder."
"""Prefix of the encoder's parameters in theta."""


class Conditioning:
    """What ``Context`` adds to a network: layers that read c, and an encoder of support sets.

    Args:
        context: the settings.
        binding: network and likelihood that are conditioned.
        stochastic: pattern of the random parameters' names; what belongs to the context is plain in any case.
        noise: whether a learned noise scale of a ``Gaussian`` reads the context too.
    """

    def __init__(self, context: Context, binding: Binding, stochastic: str, *, noise: bool) -> None:
        given, likelihood = binding.network, binding.likelihood
        noise = noise and type(likelihood) is Gaussian and likelihood.noise is None
        self.encoder = encoder_of(given.module, likelihood, context)
        module = ConditionedModule(given.module, self.encoder.size, context.reading, noise=noise)
        self.network = BayesianNetwork(module, stochastic)
        self.network.constants = given.constants
        self.likelihood: Likelihood = ContextNoise(**vars(likelihood)) if noise else likelihood

    def initial(self, theta: WeightDistribution) -> WeightDistribution:
        """Return a first theta from that of the conditioned network: with an encoder in place of a context."""
        plain = {name: value for name, value in theta.plain.items() if name != VALUE}
        return theta.replace(plain={**plain, **{ENCODER + name: v for name, v in self.encoder.initial().items()}})

    def contexts(self, theta: WeightDistribution, supports: Sequence[Examples]) -> Tensor:
        """Return the contexts of support sets, shape (tasks, size), differentiable by theta."""
        return self.encoder.contexts(self._encoder_values(theta), supports)

    def nothing(self, theta: WeightDistribution) -> Tensor:
        """Return the context of an empty support set, shape (size,)."""
        none = theta.mu.new_zeros(0)
        return self.contexts(theta, [Examples(none, none)])[0]

    @staticmethod
    def given(theta: WeightDistribution, context: Tensor) -> WeightDistribution:
        """Return theta as the conditioned network takes it: with a context in place of the encoder."""
        plain = {name: value for name, value in theta.plain.items() if not name.startswith(ENCODER)}
        return theta.replace(plain={**plain, VALUE: context})

    @staticmethod
    def _encoder_values(theta: WeightDistribution) -> dict[str, Tensor]:
        return {name.removeprefix(ENCODER): v for name, v in theta.plain.items() if name.startswith(ENCODER)}


def encoder_of(module: nn.Module, likelihood: Likelihood, context: Context) -> SupportEncoder:
    """Return the encoder of support sets: the module's own, or one with the settings of ``context``."""
    if not reads_argument(module):
        return SetEncoder(module, likelihood, context.size, context.encoder)
    own = module.support_encoder()  # type: ignore[operator]
    if not isinstance(own, SupportEncoder) or context.encoder is not None:
        raise TypeError(
            f"{type(module).__name__}.support_encoder() must return a SupportEncoder, which takes the place of "
            f"Context(encoder=...), got {type(own).__name__} and encoder={context.encoder}"
        )
    return own
