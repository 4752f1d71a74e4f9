r"""Ways to multiply a vector with the Hessian of a data loss in weight space.

For a loss $\ell(a, f)$ of adapted tensors a and fixed ones f, and a direction u in the space of a, each adds
$\nabla^2_{aa}\ell\,u$ and $\nabla^2_{fa}\ell\,u$ to given tensors: both are derivatives of $\nabla\ell$ along u,
because second derivatives commute.
"""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.func import grad, jvp

from metaprior.metagrad.data_loss import Chunk, Tensors


class HessianProduct(Protocol):
    """Adds the Hessian at ``adapted`` times ``direction`` to ``into``, and the fixed part of it to ``into_fixed``."""

    def __call__(self, chunk: Chunk, adapted: Tensors, direction: Tensors, into: Tensors, into_fixed: Tensors) -> None:
        """Directional derivative of the gradient, added in place."""


def forward_over_reverse(
    chunk: Chunk, adapted: Tensors, direction: Tensors, into: Tensors, into_fixed: Tensors
) -> None:
    """The gradient by reverse mode, differentiated along u by forward mode (Pearlmutter 1994). Exact."""

    def gradient(point: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        return grad(lambda a, f: chunk.loss(a, f).sum(), argnums=(0, 1))(point, list(chunk.fixed))  # type: ignore[no-any-return]

    products, fixed = jvp(gradient, (list(adapted),), (list(direction),))[1]
    _add([*products, *fixed], [*into, *into_fixed])


def reverse_over_reverse(
    chunk: Chunk, adapted: Tensors, direction: Tensors, into: Tensors, into_fixed: Tensors
) -> None:
    """The gradient by reverse mode, its inner product with u differentiated by reverse mode. Exact."""
    KeptGradient(chunk, adapted).add_product(direction, into, into_fixed)


class KeptGradient:
    """The graph of a gradient, without its numbers: a product needs no second forward pass. Used once."""

    def __init__(self, chunk: Chunk, adapted: Tensors, factor: float = 1.0, into: Tensors | None = None) -> None:
        """``into``: where factor times the gradient is added."""
        self._adapted = [tensor.detach().requires_grad_() for tensor in adapted]
        self._fixed = [tensor.detach().requires_grad_() for tensor in chunk.fixed]
        with torch.enable_grad():
            loss = chunk.loss(self._adapted, self._fixed)
            gradient = torch.autograd.grad(loss.sum(), self._adapted, create_graph=True, materialize_grads=True)
        self.loss = loss.detach()
        self._edges = [get_gradient_edge(g) if g.requires_grad else None for g in gradient]
        if into is not None:
            _add([g.detach() for g in gradient], into, factor)

    def add_product(self, direction: Tensors, into: Tensors, into_fixed: Tensors) -> None:
        """Add the product; the graph is gone afterwards."""
        edges = [edge for edge in self._edges if edge is not None]  # none: a loss that is linear in everything
        along = [u for u, edge in zip(direction, self._edges, strict=True) if edge is not None]
        self._edges = []
        if edges:
            _backward_into(edges, along, [*self._adapted, *self._fixed], [*into, *into_fixed])


def central_difference(chunk: Chunk, adapted: Tensors, direction: Tensors, into: Tensors, into_fixed: Tensors) -> None:
    r"""$\big(\nabla\ell(a + \delta u) - \nabla\ell(a - \delta u)\big) / 2\delta$, **approximate**: two plain gradients.

    $\delta = \sqrt[3]{\varepsilon}\,(1 + \|a\|) / \|u\|$ balances the error of truncation against that of rounding;
    a relative error of
    about $\varepsilon^{2/3}$ is left on smooth networks (4e-11 in float64, 2e-5 in float32, times how fast the
    curvature changes), and much more where a ReLU switches between the two points.
    """
    size = torch.stack([u.norm() for u in direction]).norm()
    reach = 1 + torch.stack([a.norm() for a in adapted]).norm()
    delta = float(torch.finfo(size.dtype).eps ** (1 / 3) * reach / size) if 0 < size < torch.inf else 1.0
    for sign in (1.0, -1.0):
        moved = [a + sign * delta * u for a, u in zip(adapted, direction, strict=True)]
        add_gradient(chunk, moved, sign / (2 * delta), into, into_fixed)


def add_gradient(
    chunk: Chunk, adapted: Tensors, factor: float | Tensor, into: Tensors, into_fixed: Tensors | None = None
) -> Tensor:
    """Add factor times the gradient by the adapted tensors (and by the fixed ones) in place; returns the loss.

    The factor is one number, or one for each observation.
    """
    leaves = [tensor.detach().requires_grad_() for tensor in adapted]
    fixed = [tensor.detach().requires_grad_(into_fixed is not None) for tensor in chunk.fixed]
    with torch.enable_grad():
        losses = chunk.losses(leaves, fixed)
    along = [torch.full_like(losses, factor) if isinstance(factor, float) else factor]
    if into_fixed is None:
        _backward_into([losses], along, leaves, into)
    else:
        _backward_into([losses], along, [*leaves, *fixed], [*into, *into_fixed])
    return losses.detach().sum(-1)


def _backward_into(outputs: Tensors | Sequence[GradientEdge], along: Tensors, leaves: Tensors, into: Tensors) -> None:
    """Reverse mode, with the result added to ``into``: tensor by tensor as it gets known, where the layout allows."""
    if not all(tensor.is_contiguous() for tensor in (*leaves, *into)):  # a stack of tasks
        _add(torch.autograd.grad(outputs, leaves, along, materialize_grads=True), into)
        return
    for leaf, target in zip(leaves, into, strict=True):
        leaf.grad = target
    torch.autograd.backward(outputs, along, inputs=leaves)
    if any(leaf.grad is not target for leaf, target in zip(leaves, into, strict=True)):
        raise AssertionError("autograd replaced a gradient buffer in place of adding to it")


def _add(values: Tensors, into: Tensors, factor: float = 1.0) -> None:
    for value, target in zip(values, into, strict=True):
        target.add_(value, alpha=factor)
