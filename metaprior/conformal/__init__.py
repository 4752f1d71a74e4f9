r"""Conformal prediction: intervals and sets whose coverage is guaranteed whatever the forecast, on top of any forecast.

A **score** $s(x, y)$ says how badly a forecast missed. With the scores $s_1..s_n$ of held-out observations, a new
observation's region holds every y with $s(x, y) \le q$, where q is the $\lceil(n+1)\,\ell\rceil$-th smallest score
(infinite where that is more than n). If the n + 1 observations are exchangeable, and the forecasts were learned without
them, then

$$\ell \le P\big(y_{n+1} \in C(x_{n+1})\big) \le \ell + \frac{1}{n+1},$$

the second part if no two scores are equal. The probability is over held-out and new observations together: it is no
promise for one x, and none for data unlike the held-out ones.

    conformal.intervals(forecast, y) -> ConformalIntervals        real-valued targets, also by groups
    conformal.sets(forecast, labels) -> ConformalSets             classes, also by groups
    conformal.over_tasks(learner, tasks) -> ConformalByShots      new tasks, after 0, 1, 5, ... examples

Romano, Patterson & Candès 2019 (quantiles of forecasts); Romano, Sesia & Candès 2020 (sets); Lee, Barber & Willett 2023
(tasks); Angelopoulos & Bates 2023 (an introduction).
"""

from metaprior.conformal.saved import load, save
from metaprior.conformal.split import ConformalIntervals, ConformalSets, intervals, sets
from metaprior.conformal.tasks import ConformalByShots, over_tasks

__all__ = [
    "ConformalByShots",
    "ConformalIntervals",
    "ConformalSets",
    "intervals",
    "load",
    "over_tasks",
    "save",
    "sets",
]
