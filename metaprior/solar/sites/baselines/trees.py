"""Boosted trees on one plant alone: what a few days, or a whole record, teach without any other plant."""

import numpy as np

from metaprior.solar.sites.baselines.history import History, Rehearsal
from metaprior.solar.sites.baselines.points import blend, climatology, envelope_at_targets, smart_persistence
from metaprior.solar.sites.sun_position import Floats

NEWEST = 3
"""Recent intervals that the trees read."""

MOST_TREES = 200


class BoostedTrees:
    """Trees that correct the blend of smart persistence and climatology from the errors that it made on this plant.

    The trees start from ``blend`` and so are never asked to learn what a day looks like; they read it, both its
    parts, the envelope, the newest power, the time of day, the lead time and, if known, the clear sky. There are as
    many trees as days to learn from: on simulated plants more of them lose against the blend.
    """

    def __init__(self, *, days: float, seed: int = 0) -> None:
        # Importing scikit-learn takes a second, which other baselines and commands should not have to wait for.
        from sklearn.ensemble import HistGradientBoostingRegressor  # type: ignore[import-untyped]

        self.trees = HistGradientBoostingRegressor(
            max_iter=int(np.clip(days, 5, MOST_TREES)),
            learning_rate=0.05,
            max_leaf_nodes=8 if days < MOST_TREES else 15,
            min_samples_leaf=100,
            early_stopping=False,
            random_state=seed,
        )
        self.fitted = False

    def fit(self, history: History, targets: Floats) -> "BoostedTrees":
        """Learn from forecasts whose targets (N, L) are known; targets that are NaN and dark ones are left out."""
        wanted = np.isfinite(targets) & ((targets > 0) | (envelope_at_targets(history) > 0))
        self.fitted = bool(wanted.sum() > 2 * self.trees.min_samples_leaf)
        if self.fitted:
            self.trees.fit(_features(history)[wanted], (targets - blend(history))[wanted])
        return self

    def __call__(self, history: History) -> Floats:
        """Return point forecasts (N, L); those of the blend if too little was known to learn from."""
        point = blend(history)
        if not self.fitted:
            return point
        features = _features(history)
        correction = self.trees.predict(features.reshape(-1, features.shape[-1])).reshape(point.shape)
        dark = (envelope_at_targets(history) <= 0) & (point <= 0)
        return np.where(dark, point, point + correction)


def boosted_trees(history: History, rehearsal: Rehearsal | None) -> tuple[Floats, Floats | None]:
    """Return forecasts of trees that learned from the rehearsal, and those of the rehearsal from the other half of it.

    Below two days there is nothing to rehearse, and the forecast is the blend.
    """
    if rehearsal is None:
        return blend(history), None
    days, targets = history.day_count, rehearsal.targets
    odd = np.arange(len(targets)) * days // len(targets) % 2 == 1
    crossed = np.empty_like(targets)
    for half in (odd, ~odd):
        others = BoostedTrees(days=days / 2).fit(rehearsal.history.rows(~half), targets[~half])
        crossed[half] = others(rehearsal.history.rows(half))
    return BoostedTrees(days=days).fit(rehearsal.history, targets)(history), crossed


def _features(history: History) -> Floats:
    """Return what the trees read, (N, L, features)."""
    shape = history.target_slot.shape
    lead = np.broadcast_to(np.arange(shape[1]), shape)
    newest = [np.broadcast_to(history.recent[:, -k, None], shape) for k in range(1, NEWEST + 1)]
    columns = [blend(history), smart_persistence(history), climatology(history), envelope_at_targets(history)]
    columns += [lead.astype(np.float64), history.target_slot.astype(np.float64), *newest]
    if history.target_clear is not None:
        columns.append(history.target_clear)
    return np.stack(columns, axis=-1)
