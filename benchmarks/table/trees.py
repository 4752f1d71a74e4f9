"""Boosted trees: quantiles by scikit-learn, and a normal distribution by NGBoost."""

from dataclasses import dataclass, replace

import numpy as np
from ngboost import NGBRegressor  # type: ignore[import-untyped]
from ngboost.distns import Normal  # type: ignore[import-untyped]
from sklearn.ensemble import HistGradientBoostingRegressor  # type: ignore[import-untyped]
from sklearn.tree import DecisionTreeRegressor  # type: ignore[import-untyped]

from benchmarks.table.peer import Peer, Rows, Trained
from benchmarks.table.predictive import FloatArray, Normals, QuantileTable, Rescalable, crps, pinball

LEVELS = (0.025, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.975)
BANDWIDTHS = tuple(np.geomspace(0.02, 0.5, 12).tolist())
MOST_TREES = 300


@dataclass(frozen=True)
class Boosting:
    """Learning rate and leaves of a tree; trees of each level and width of the density's kernels, off held-out rows."""

    lr: float
    leaves: int
    least_rows: int
    trees: tuple[int, ...] = (MOST_TREES,) * len(LEVELS)
    bandwidth: float = BANDWIDTHS[0]


class BoostedQuantiles(Peer):
    """One boosting of histogram trees for each of 13 levels; settings are chosen by CRPS. Plain columns: categories."""

    candidates = (Boosting(0.1, 16, 10), Boosting(0.1, 8, 5), Boosting(0.1, 31, 20), Boosting(0.05, 16, 5))

    def train(self, setting: Boosting, rows: Rows, held_out: Rows | None) -> Trained:
        """Train every level; with held-out rows, find each level's best number of trees, and the kernels' width."""
        models = [
            HistGradientBoostingRegressor(
                loss="quantile",
                quantile=level,
                learning_rate=setting.lr,
                max_leaf_nodes=setting.leaves,
                min_samples_leaf=setting.least_rows,
                max_iter=trees,
                early_stopping=False,
                categorical_features=list(self.plain) or None,
                random_state=self.seed,
            ).fit(*rows)
            for level, trees in zip(LEVELS, setting.trees, strict=True)
        ]
        if held_out is None:
            return Trained(
                lambda x: QuantileTable(LEVELS, np.stack([m.predict(x) for m in models]), setting.bandwidth), setting
            )
        staged = [np.stack(list(model.staged_predict(held_out.x))) for model in models]
        best = [int(_losses(values, level, held_out.y).argmin()) for values, level in zip(staged, LEVELS, strict=True)]
        values = np.stack([stages[number] for stages, number in zip(staged, best, strict=True)])
        losses = [super(type(self), self).loss(QuantileTable(LEVELS, values, b), held_out.y) for b in BANDWIDTHS]
        chosen = replace(setting, trees=tuple(n + 1 for n in best), bandwidth=BANDWIDTHS[int(np.argmin(losses))])
        return Trained(lambda _: QuantileTable(LEVELS, values, chosen.bandwidth), chosen)

    def loss(self, predictive: Rescalable, targets: FloatArray) -> float:
        """Return the mean CRPS: quantiles have no density of their own."""
        return float(crps(predictive, targets).mean())


def _losses(stages: FloatArray, level: float, targets: FloatArray) -> FloatArray:
    """Return the mean pinball loss of each stage's predictions (T, N)."""
    found: FloatArray = pinball(stages, np.full(len(stages), level), targets).mean(1)
    return found


@dataclass(frozen=True)
class NaturalBoosting:
    """Learning rate, depth of a tree and share of rows for each; the number of trees is read off the held-out rows."""

    lr: float
    depth: int
    share: float = 1.0
    trees: int = 1500


class NGBoost(Peer):
    """Natural gradient boosting of a normal distribution (Duan et al. 2020), stopped early."""

    candidates = (
        *(NaturalBoosting(0.05, 3), NaturalBoosting(0.05, 5), NaturalBoosting(0.05, 4, 0.5)),
        *(NaturalBoosting(0.05, 7, 0.5), NaturalBoosting(0.02, 3)),
    )
    patience = 50

    def train(self, setting: NaturalBoosting, rows: Rows, held_out: Rows | None) -> Trained:
        """Train; with held-out rows, as long as their density becomes better."""
        model = NGBRegressor(
            Dist=Normal,
            Base=DecisionTreeRegressor(max_depth=setting.depth, min_samples_leaf=5, random_state=self.seed),
            n_estimators=setting.trees,
            learning_rate=setting.lr,
            minibatch_frac=setting.share,
            verbose=False,
            random_state=self.seed,
        )
        if held_out is None:
            model.fit(*rows)
        else:
            model.fit(*rows, *held_out, early_stopping_rounds=self.patience)
            setting = replace(setting, trees=max(1, int(model.best_val_loss_itr or 0) + 1))

        def forecaster(x: FloatArray) -> Normals:
            found = model.pred_dist(x, max_iter=setting.trees)
            return Normals(np.asarray(found.loc)[None], np.asarray(found.scale)[None])

        return Trained(forecaster, setting)
