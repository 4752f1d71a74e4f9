r"""Ways to multiply a vector with the Hessian of a data loss in weight space.

For a loss $\ell(a, f)$ of adapted tensors a and fixed ones f, and a direction u in the space of a, each returns
$\big(\nabla^2_{aa}\ell\,u,\; \nabla^2_{fa}\ell\,u\big)$: both are the derivative of $\nabla\ell$ along u, because second derivatives commute.
"""

from typing import Protocol

import torch
from torch import Tensor
from torch.func import grad, jvp

from metaprior.metagrad.data_loss import Chunk, Tensors

Product = tuple[Tensors, Tensors]


class HessianProduct(Protocol):
    """(micro-batch, adapted tensors, direction) -> (derivative of the adapted gradient, of the fixed one)."""

    def __call__(self, chunk: Chunk, adapted: Tensors, direction: Tensors) -> Product:
        """Directional derivative of the gradient."""


def forward_over_reverse(chunk: Chunk, adapted: Tensors, direction: Tensors) -> Product:
    """The gradient by reverse mode, differentiated along u by forward mode (Pearlmutter 1994). Exact."""

    def gradient(point: list[Tensor]) -> Product:
        return grad(lambda a, f: chunk.loss(a, f).sum(), argnums=(0, 1))(point, list(chunk.fixed))  # type: ignore[no-any-return]

    return jvp(gradient, (list(adapted),), (list(direction),))[1]  # type: ignore[no-any-return]


def reverse_over_reverse(chunk: Chunk, adapted: Tensors, direction: Tensors) -> Product:
    """The gradient by reverse mode, its inner product with u differentiated by reverse mode. Exact."""
    return KeptGradient(chunk, adapted)(direction)


class KeptGradient:
    """A gradient with its graph, so that a product needs no second forward pass; used once."""

    def __init__(self, chunk: Chunk, adapted: Tensors) -> None:
        self._adapted = [tensor.detach().requires_grad_() for tensor in adapted]
        self._fixed = [tensor.detach().requires_grad_() for tensor in chunk.fixed]
        with torch.enable_grad():
            loss = chunk.loss(self._adapted, self._fixed)
            self.loss = loss.detach()
            self._gradient = torch.autograd.grad(loss.sum(), self._adapted, create_graph=True, materialize_grads=True)

    @property
    def gradient(self) -> list[Tensor]:
        """By the adapted tensors."""
        return [g.detach() for g in self._gradient]

    def __call__(self, direction: Tensors) -> Product:
        """The product; the graph is gone afterwards."""
        leaves = [*self._adapted, *self._fixed]
        pairs = [(g, u) for g, u in zip(self._gradient, direction, strict=True) if g.requires_grad]
        if not pairs:  # a loss that is linear in everything
            zeros = [torch.zeros_like(leaf) for leaf in leaves]
            return zeros[: len(self._adapted)], zeros[len(self._adapted) :]
        gradient, along = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        self._gradient = ()
        products = torch.autograd.grad(gradient, leaves, along, materialize_grads=True)
        return products[: len(self._adapted)], products[len(self._adapted) :]


def central_difference(chunk: Chunk, adapted: Tensors, direction: Tensors) -> Product:
    r"""$\big(\nabla\ell(a + \delta u) - \nabla\ell(a - \delta u)\big) / 2\delta$, **approximate**: two plain gradients.

    $\delta = \sqrt[3]{\varepsilon}\,(1 + \|a\|) / \|u\|$ balances the error of truncation against that of rounding; a relative error of
    about $\varepsilon^{2/3}$ is left on smooth networks (4e-11 in float64, 2e-5 in float32 times the curvature's change), and
    much more where a ReLU switches between the two points.
    """
    size = torch.stack([u.norm() for u in direction]).norm()
    reach = 1 + torch.stack([a.norm() for a in adapted]).norm()
    delta = torch.finfo(size.dtype).eps ** (1 / 3) * reach / size.clamp_min(torch.finfo(size.dtype).tiny)

    def gradient(sign: float) -> list[Tensor]:
        moved = [a + sign * delta * u for a, u in zip(adapted, direction, strict=True)]
        return plain_gradient(chunk, moved, with_fixed=True)[1]

    products = [(up - down) / (2 * delta) for up, down in zip(gradient(1.0), gradient(-1.0), strict=True)]
    return products[: len(adapted)], products[len(adapted) :]


def plain_gradient(chunk: Chunk, adapted: Tensors, *, with_fixed: bool = False) -> tuple[Tensor, list[Tensor]]:
    """Loss (for each task) and gradient by the adapted tensors, then (if asked for) by the fixed ones. No graph is left."""
    leaves = [tensor.detach().requires_grad_() for tensor in adapted]
    fixed = [tensor.detach().requires_grad_(with_fixed) for tensor in chunk.fixed]
    with torch.enable_grad():
        loss = chunk.loss(leaves, fixed)
    wanted = [*leaves, *(fixed if with_fixed else ())]
    return loss.detach(), list(torch.autograd.grad(loss.sum(), wanted, materialize_grads=True))
