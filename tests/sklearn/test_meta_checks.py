"""scikit-learn's own checks of what an estimator must do, on the smallest configuration."""

from typing import Any

from sklearn.utils.estimator_checks import parametrize_with_checks

from metaprior.sklearn import MetaClassifier, MetaRegressor

SMALL = {"hidden": (4,), "draws": 3, "steps": 45}
POINT = {"hidden": (4,), "prior": "point", "steps": 45}


@parametrize_with_checks(
    [MetaRegressor(**SMALL), MetaClassifier(**SMALL), MetaRegressor(**POINT), MetaClassifier(**POINT)]
)
def test_estimators_pass_the_checks_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)
