"""Estimators with scikit-learn's interface. Needs scikit-learn: ``pip install 'metaprior[sklearn]'``."""

from metaprior.sklearn.adapted import AdaptedClassifier, AdaptedRegressor
from metaprior.sklearn.meta import MetaClassifier, MetaRegressor

__all__ = ["AdaptedClassifier", "AdaptedRegressor", "MetaClassifier", "MetaRegressor"]
