"""Estimators with scikit-learn's interface, for one table and for tables whose rows belong to groups.

They need the extra: ``pip install 'metaprior[sklearn]'``.
"""

try:
    import sklearn  # type: ignore[import-untyped]  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "metaprior.sklearn needs scikit-learn. Try: pip install 'metaprior[sklearn]'", name=error.name
    ) from error

from metaprior.sklearn.adapted import AdaptedClassifier, AdaptedRegressor
from metaprior.sklearn.bayes import BayesClassifier, BayesRegressor
from metaprior.sklearn.meta import MetaClassifier, MetaRegressor

__all__ = [
    "AdaptedClassifier",
    "AdaptedRegressor",
    "BayesClassifier",
    "BayesRegressor",
    "MetaClassifier",
    "MetaRegressor",
]
