"""Settings of every benchmark for tests: as small as possible."""

from dataclasses import replace
from typing import Any

import pytest

import metaprior as mp
from benchmarks import (
    gradients,
    mnist,
    omniglot,
    permuted,
    prediction,
    reading,
    robustness,
    sinusoid,
    speed,
    uci,
    warmstart,
)
from benchmarks.adaptation import comparison as adaptation
from benchmarks.adaptation import maps
from benchmarks.adaptation import omniglot as characters
from benchmarks.hierarchy import collapsed
from benchmarks.hierarchy import comparison as hierarchy
from benchmarks.memory import comparison as memory
from benchmarks.scaling import comparison as scaling
from benchmarks.sites.settings import Settings as SitesSettings
from benchmarks.solar.settings import Settings as SolarSettings
from benchmarks.table.settings import Settings as TableSettings
from benchmarks.wheel import comparison as wheel
from benchmarks.worlds.settings import Settings as WorldsSettings

LESSONS = (replace(wheel.RANGE, seconds=0.3, trainings=2), replace(wheel.PAPER, seconds=0.3))
DIGITS = replace(
    permuted.QUICK,
    train_images=40,
    images=30,
    test_images=20,
    test_samples=2,
    width=8,
    first_steps=2,
    plain_epochs=1,
    epochs=1,
    local_steps=1,
    adapt_steps=2,
    alone_epochs=1,
    amortised_seconds=0.01,
    amortised_images=10,
    inner_steps=1,
)
CHARACTERS = characters.Settings(
    seconds=0.5, width=4, ways=6, train_query=2, validation_tasks=2, test_tasks=3, test_query=3
)
PLACES = maps.Settings(seconds=0.6, width=2, levels=2, patch=16, k_query=2, pooled_batch=4, meta_batch=2, test_tasks=2)
HIERARCHY = hierarchy.Settings(
    observations=(3, 6),
    tasks=(1, 2),
    test_tasks=2,
    held_out=5,
    hidden=(4,),
    alone=hierarchy.Descent(1, 3, 0.5),
    together=hierarchy.Descent(2, 2, 0.25),
    adapt_steps=2,
    amortised_seconds=0.1,
    inner_steps=1,
    amortised_steps=2,
    meta_batch=2,
    samples=3,
    memory_tasks=(2, 4),
    memory_hidden=3,
    few_tasks=collapsed.Settings(
        sizes=((1, 3), (2, 3), (3, 3), (3, 6)),
        data_seeds=2,
        test_tasks=2,
        hidden=(3,),
        hmc=mp.HMC(2, 1, 1, 2),
        anchored=mp.Anchored(2, 2),
        variational=mp.Variational(2, 2, 2),
    ),
)
TINY: dict[str, Any] = {
    "adaptation": adaptation.Settings(
        parts=tuple(part for part in adaptation.PARTS if part not in ("linear", "blobs")),  # they add no headline
        seconds=0.05,
        frame_seconds=0.05,
        trainings=1,
        shots=(0, 5),
        train_query=2,
        validation_tasks=2,
        test_tasks=2,
        test_query=3,
        samples=2,
        tuned_steps=(1,),
        hierarchy=HIERARCHY,
        omniglot=CHARACTERS,
        maps=PLACES,
    ),
    "gradients": gradients.Settings(problems=2),
    "hierarchy": HIERARCHY,
    "memory": memory.Settings(full=True),
    "mnist": mnist.Settings(epochs=1, train_images=20, test_samples=2),
    "omniglot": omniglot.Settings(
        seconds=0.1,
        width=8,
        inner_steps=2,
        outer_samples=2,
        meta_batch=2,
        train_query=2,
        test_tasks=3,
        test_query=4,
        test_samples=5,
    ),
    "permuted": permuted.Settings(DIGITS, DIGITS),
    "prediction": prediction.Settings(
        rows=200, samples=10, repeats=1, columns=10, epochs=2, kept=(3,), draws=2, reference_samples=20
    ),
    "reading": reading.Settings(steps=2, rounds=2, width=2, patch=16, days=14, size=20),
    "robustness": robustness.Settings(
        sinusoid_steps=2,
        unet_warm_start=1,
        unet_steps=2,
        meta_batch=2,
        inner_steps=1,
        outer_samples=2,
        frame=8,
        width=2,
        test_tasks=2,
        test_samples=2,
        sweep=(1e-2, 1.0),
    ),
    "scaling": scaling.Settings(),
    "sinusoid": sinusoid.Settings(
        seconds=0.3,
        inner_steps=2,
        meta_batch=2,
        test_tasks=3,
        test_query=20,
        test_samples=5,
        shots=(0, 5),
        steps=(1, 10),
        alone_tasks=2,
        alone_steps=5,
    ),
    "worlds": WorldsSettings(
        origins=2,
        cadences=(15,),
        worlds=1,
        size=32,
        adapted_origins=1,
        learned=3,
        steps=1,
        afternoons=1,
        afternoon_frames=20,
        continued_seconds=0.2,
        continued_rates=(1e-3,),
        continued_tasks=1,
        continued_patch=8,
    ),
    "sites": SitesSettings(
        trainings=1,
        training_plants=6,
        steps=10,
        days=(0, 3, 7),
        weeks=1,
        simulated_plants=1,
        simulated_days=20,
        simulated_weeks=1,
        base_days=(0, 3),
        base_weeks=1,
        tunings=((1, 1e-4), (2, 1e-4)),
        validation_plants=1,
        validation_weeks=1,
    ),
    "solar": SolarSettings(
        seconds=0.4,
        simulated_seconds=0.4,
        meta_share=0.5,
        width=2,
        levels=2,
        patch=16,
        k_shot=2,
        k_query=3,
        presets=("head", "head, all adapted"),
        abml_steps=(1,),
        members=2,
        tunings=((0, 0.0), (1, 1e-4)),
        validation_tasks=1,
        test_tasks=2,
        samples=2,
        simulated_days=9,
        simulated_size=40,
        continuations=4,
    ),
    "speed": speed.Settings(
        width=2,
        frame=16,
        k_shot=2,
        k_query=2,
        unet_rounds=1,
        large_width=2,
        large_frame=16,
        large_rounds=1,
        mlp_tasks=3,
        mlp_rounds=1,
    ),
    "table": TableSettings(parts=("yacht", "linear"), splits=(0,), seconds=0.0, draws=1),
    "uci": uci.Settings(steps=3, splits=2, test_samples=3),
    "warmstart": warmstart.Settings(
        sinusoid_seconds=0.2,
        blobs_seconds=0.3,
        frame=8,
        width=2,
        tuned_noise_lr=(1e-4,),
        tuned_steps=(1,),
        abml_steps=(5,),
        abml_factors=(1.0,),
        abml_noise_factors=(1.0, 2.0),
        validation_tasks=2,
        test_tasks=3,
        test_samples=2,
    ),
    "wheel": wheel.Settings(lessons=LESSONS, meta_batch=2, hidden=8, contexts=12, trials=2, steps=2),
}


def short_table_peers(patch: pytest.MonkeyPatch, steps: int) -> None:
    """Make the methods of the tables' benchmark train with a few steps and trees."""
    from benchmarks.table import laplace_peers, networks, ours, trees

    descent, levels = networks.Descent(steps), len(trees.LEVELS)
    patch.setattr(networks.DeepEnsemble, "candidates", (descent,))
    patch.setattr(networks.MCDropout, "candidates", (networks.DropoutSetting(descent, 0.3),))
    patch.setattr(laplace_peers.LastLayerLaplace, "candidates", (descent,))
    patch.setattr(ours.BackpropBenchmark, "steps", steps)
    patch.setattr(trees.BoostedQuantiles, "candidates", (trees.Boosting(0.2, 8, 5, (steps // 15,) * levels, 0.1),))
    patch.setattr(trees.NGBoost, "candidates", (trees.NaturalBoosting(0.1, 3, trees=steps // 6),))
