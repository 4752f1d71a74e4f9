"""scikit-learn's own checks of what an estimator must do, on small configurations."""

from typing import Any

from sklearn.utils.estimator_checks import parametrize_with_checks

from metaprior.sklearn import BayesClassifier, BayesRegressor

SMALL = {"hidden": (8,), "members": 2, "steps": 100, "samples": 20}
ALONE = {**SMALL, "members": 1, "steps": 150, "lr": 0.03}


@parametrize_with_checks(
    [BayesRegressor(**SMALL), BayesClassifier(**SMALL), BayesRegressor(**ALONE), BayesClassifier(**ALONE)]
)
def test_estimators_pass_the_checks_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)
