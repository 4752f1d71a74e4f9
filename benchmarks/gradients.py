"""Agreement of the meta-gradient engines with full unrolling and with ``higher``, and errors of approximate ones."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

import metaprior as mp
from benchmarks.common.benchmark import Benchmark, Context
from benchmarks.common.budget import one_thread
from benchmarks.common.peers import PeerGradient, higher_unroll, peer_versions
from benchmarks.common.result import BenchmarkResult, Row
from metaprior.metagrad.problem import Engine
from metaprior.network import stages_of
from metaprior.progress import track
from metaprior.weights import Parameters

STEPS = 4
K_SHOT, K_QUERY = 5, 6
FRAME = 8

EXACT: dict[str, Engine] = {
    "checkpointed": mp.metagrad.checkpointed,
    "mixed": mp.metagrad.mixed,
    "twice_reverse": mp.metagrad.twice_reverse,
    "on_disk": mp.metagrad.on_disk(),
    "keeping_all": mp.metagrad.keeping(STEPS),
}
APPROXIMATE: dict[str, Engine] = {
    "first_order": mp.metagrad.first_order,
    "truncated_1": mp.metagrad.truncated(1),
    "truncated_2": mp.metagrad.truncated(2),
    "finite_difference": mp.metagrad.finite_difference,
    "implicit": mp.metagrad.implicit,
}


AUTOCAST = "error_autocast"


def small_mlp(outputs: int) -> nn.Module:
    """Return a network 2-16-16-outputs with tanh."""
    return mp.MLP(2, [16, 16], outputs, activation="tanh")


def conv_with_groupnorm(outputs: int) -> nn.Module:
    """Return a network of frames (N, 2, H, W) -> (N, outputs): a chain of stages, the last one linear."""
    return nn.Sequential(
        nn.Conv2d(2, 6, 3, padding=1),
        nn.GroupNorm(2, 6),
        nn.SiLU(),
        nn.Conv2d(6, 4, 3, stride=2, padding=1),
        nn.GroupNorm(1, 4),
        nn.SiLU(),
        nn.Flatten(),
        nn.Linear(4 * (FRAME // 2) ** 2, outputs),
    )


def small_unet(outputs: int) -> nn.Module:
    """Return a network of frames (N, 2, H, W) -> (N, outputs, H, W) with skip connections."""
    return mp.UNet(2, outputs, width=4, levels=2)


def conv_transpose(outputs: int) -> nn.Module:
    """Return a network of frames (N, 2, H, W) -> (N, outputs, H, W) that halves and doubles the resolution."""
    return nn.Sequential(
        nn.Conv2d(2, 6, 4, stride=2, padding=1), nn.Softplus(), nn.ConvTranspose2d(6, outputs, 4, stride=2, padding=1)
    )


@dataclass(frozen=True)
class Case:
    """One problem: a network, a likelihood, an inner loop and an objective."""

    network: Callable[[int], nn.Module]
    likelihood: mp.Likelihood
    inner: mp.Descent
    objective: mp.QueryLoss | mp.AmortizedELBO
    targets: tuple[int, ...]
    """The shape of one observation's target."""
    outputs: int
    stochastic: str = ".*"
    inputs: tuple[int, ...] = (2, FRAME, FRAME)

    def describe(self) -> Row:
        """Return the first columns of the problem's row."""
        inner = self.inner
        special = [
            f"samples {inner.samples}/{self.objective.samples}",
            *[f"lr learned: {inner.learn_lr}"] * (inner.learn_lr != "no"),
            *[f"momentum {inner.momentum:g}"] * (inner.momentum > 0),
            *["trunk"] * (self.stochastic != ".*"),
        ]
        return {
            "network": self.network.__name__,
            "likelihood": type(self.likelihood).__name__,
            "objective": type(self.objective).__name__,
            "setting": ", ".join(special),
        }

    def build(self, dtype: torch.dtype, *, autocast: bool = False) -> tuple[mp.Problem, mp.WeightDistribution, mp.Task]:
        """Return the problem, theta and a random task in a given precision; the network may turn autocast on."""
        torch.manual_seed(0)
        module = self.network(self.outputs).to(dtype)
        if autocast:
            turn_autocast_on(module)
        network = mp.BayesianNetwork(module, self.stochastic)
        problem = mp.Problem(network, self.likelihood, self.inner, self.objective)
        task = problem.check(mp.Task(self._examples(K_SHOT, 1), self._examples(K_QUERY, 2)))
        return problem, problem.initial(task.support.y, relative_sigma=0.3), task

    def _examples(self, count: int, seed: int) -> mp.Examples:
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(count, *self.inputs, generator=generator, dtype=torch.float64)
        if self.likelihood.continuous:
            return mp.Examples(x, torch.randn(count, *self.targets, generator=generator, dtype=torch.float64))
        return mp.Examples(x, torch.randint(self.outputs, (count, *self.targets), generator=generator))


def turn_autocast_on(module: nn.Module) -> None:
    """Let a network, and each of its stages, compute in bfloat16 where autocast does, and return float32."""
    for part in {module, *stages_of(module)}:
        plain = part.forward

        def forward(*inputs: Any, plain: Callable[..., Any] = plain) -> Any:
            with torch.autocast("cpu", torch.bfloat16):
                outputs = plain(*inputs)
            return tree_map(Tensor.float, outputs)

        part.forward = forward


def _loop(lr: float, **options: object) -> mp.Descent:
    return mp.Descent(steps=STEPS, lr=lr, damped=False, **options)  # type: ignore[arg-type]


def _elbo(samples: int = 1) -> mp.AmortizedELBO:
    return mp.AmortizedELBO(num_tasks=20, samples=samples)


CASES: Sequence[Case] = (
    Case(small_mlp, mp.Gaussian(), _loop(0.01), mp.QueryLoss(), (1,), 1, inputs=(2,)),
    Case(
        small_mlp, mp.HeteroscedasticGaussian(), _loop(3e-3, samples=3, learn_lr="one"), _elbo(3), (1,), 2, inputs=(2,)
    ),
    Case(small_mlp, mp.Categorical(), _loop(3e-3, momentum=0.9), mp.QueryLoss(3), (), 3, inputs=(2,)),
    Case(conv_with_groupnorm, mp.Categorical(), _loop(3e-3, samples=3, learn_lr="per_tensor"), _elbo(), (), 3),
    Case(conv_with_groupnorm, mp.Gaussian(), _loop(3e-3, adapt="likelihood.*"), mp.QueryLoss(), (1,), 1, r"7\..*"),
    Case(small_unet, mp.Gaussian(), _loop(1e-3), mp.QueryLoss(), (2, FRAME, FRAME), 2),
    Case(small_unet, mp.HeteroscedasticGaussian(), _loop(1e-5, momentum=0.5), _elbo(3), (1, FRAME, FRAME), 2),
    Case(
        small_unet,
        mp.Gaussian(per_channel=True),
        _loop(1e-3, samples=3, learn_lr="one", adapt="likelihood.*"),
        _elbo(),
        (2, FRAME, FRAME),
        2,
        r"(decoder2|output)\..*",
    ),
    Case(
        conv_transpose,
        mp.Gaussian(),
        _loop(1e-3, samples=3, learn_lr="per_tensor"),
        mp.QueryLoss(3),
        (1, FRAME, FRAME),
        1,
    ),
    Case(conv_transpose, mp.Categorical(), _loop(1e-3), _elbo(), (FRAME, FRAME), 3),
)


@dataclass(frozen=True)
class Settings:
    """How many of the problems are compared."""

    problems: int = len(CASES)


def relative_difference(gradient: Parameters, reference: Parameters) -> float:
    """Return |g - reference| / |reference|, the largest of three: means, rhos, and everything else together."""
    ours, theirs = _parts(gradient, list(reference.named())), _parts(reference, list(reference.named()))
    return max(float((a - b).norm() / b.norm()) for a, b in zip(ours, theirs, strict=True))


def _parts(gradient: Parameters, names: Sequence[str]) -> list[Tensor]:
    mu, rho, *rest = (gradient.named()[name].flatten() for name in names)
    return [mu, rho, *([torch.cat(rest)] if rest else [])]


def _finite(result: mp.metagrad.MetaGradient | PeerGradient | mp.NonFinite) -> Parameters:
    """Return the gradient; a problem of this benchmark that diverges is a mistake in its settings."""
    if isinstance(result, mp.NonFinite):
        raise ValueError(str(result))
    return result.grads


def differences(case: Case, engines: Mapping[str, Callable[..., Any]], dtype: torch.dtype) -> dict[str, float]:
    """Return the difference of each engine's gradient from that of ``unrolled`` in the same precision."""
    problem, theta, task = case.build(dtype)
    noise = mp.Noise(7)
    reference = _finite(mp.metagrad.unrolled(problem, theta, task, noise))
    return {
        name: relative_difference(_finite(engine(problem, theta, task, noise)), reference)
        for name, engine in engines.items()
    }


def autocast_difference(case: Case) -> float:
    """Return the difference that autocast to bfloat16 makes to the gradient of ``unrolled`` in float32."""
    plain, lower = (
        _finite(mp.metagrad.unrolled(*case.build(torch.float32, autocast=autocast), mp.Noise(7)))
        for autocast in (False, True)
    )
    return relative_difference(lower, plain)


def disk_equals_memory(case: Case, dtype: torch.dtype) -> bool:
    """Return whether a path on disk gives bitwise the gradient of one in memory."""
    problem, theta, task = case.build(dtype)
    disk, memory = (_finite(EXACT[name](problem, theta, task, mp.Noise(7))) for name in ("on_disk", "twice_reverse"))
    return all(map(torch.equal, disk.tensors(), memory.tensors()))


def compare(case: Case) -> Row:
    """Return the row of one problem."""
    return {
        **case.describe(),
        **differences(case, {**EXACT, "higher": higher_unroll}, torch.float64),
        **{f"{name}_float32": value for name, value in differences(case, EXACT, torch.float32).items()},
        **{f"error_{name}": value for name, value in differences(case, APPROXIMATE, torch.float64).items()},
        AUTOCAST: autocast_difference(case),
        "disk_equals_memory": all(disk_equals_memory(case, dtype) for dtype in (torch.float64, torch.float32)),
    }


def measure(context: Context[Settings]) -> BenchmarkResult:
    """Compare all engines on the problems."""
    peers = peer_versions()
    with one_thread():
        cases = track(CASES[: context.settings.problems], "gradients", unit="problems", show=True)
        rows = [compare(case) for case in cases]
    headline = {
        "max_difference_float64": max(row[name] for row in rows for name in EXACT),
        "max_difference_higher": max(row["higher"] for row in rows),
        "max_difference_float32": max(row[f"{name}_float32"] for row in rows for name in EXACT),
        **{f"error_{name}": statistics.median(row[f"error_{name}"] for row in rows) for name in APPROXIMATE},
        AUTOCAST: statistics.median(row[AUTOCAST] for row in rows),
        "disk_equals_memory": statistics.mean(row["disk_equals_memory"] for row in rows),
    }
    settings = {"inner_steps": STEPS, "k_shot": K_SHOT, "k_query": K_QUERY, "peers": peers}
    notes = [
        "every number: relative difference from full unrolling (`unrolled`) in the same precision and with the same "
        "noise; the largest of three, for means, rhos and plain parameters",
        "checkpointed, mixed, twice_reverse, on_disk, keeping_all: exact engines, float64, then float32; "
        "disk_equals_memory: whether on_disk is bitwise twice_reverse, in both; "
        "higher: another library's unrolling, float64, learned step sizes by its override of lr",
        f"error_...: approximate engines, float64, {STEPS} inner steps; headline: the median over the problems. "
        "implicit assumes that the adapted weights are a minimum, which they are not after so few steps",
        f"{AUTOCAST}: torch.autocast to bfloat16 inside the network, against float32 without; engines refuse it around "
        "them",
        "samples a/b: weight samples inside / outside; trunk: the first stages are meta-learned and not adapted",
    ]
    return BenchmarkResult(headline, rows, notes, settings)


BENCHMARK = Benchmark(
    "gradients",
    "every engine against full unrolling, and against `higher`",
    measure,
    full=Settings(),
    quick=Settings(problems=6),
    quick_note="the first problems only",
    extras=("bench",),
)
