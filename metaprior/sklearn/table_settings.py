"""What is chosen about a fit to one table before there are data."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from sklearn.utils import check_random_state  # type: ignore[import-untyped]

from metaprior.sklearn.checked import boolean, integer, positive, share

if TYPE_CHECKING:
    from metaprior.sklearn.bayes import BayesClassifier, BayesRegressor

LEAST_ROWS_OF_A_PART = 10
"""Fewer rows in each part than this, and no member leaves any out."""
BOLD, CAUTIOUS = (0.2, 1.0), (0.5, 0.3)
"""Temperatures of the posterior and standard deviations of the prior: of an ensemble that learns details, and of one
that doubts them."""
DEFAULT_STEPS, DEFAULT_PASSES = 3000, 20
AUTO = "auto"


@dataclass(frozen=True)
class TableSettings:
    """The checked arguments of an estimator that decide how its ensembles learn."""

    members: int
    calibrate: bool
    temperature: float | None
    """Of the posterior; None is that of each recipe."""
    prior_std: float | None
    """Of the prior; None is that of each recipe."""
    steps: int | None
    batch_size: int
    lr: float
    validation: float | None
    """Share of the rows that is held out; None: none is."""
    patience: int
    samples: int
    seed: int

    @classmethod
    def of(cls, estimator: "BayesRegressor | BayesClassifier") -> Self:
        """Return the settings of an estimator; raise for those that cannot work."""
        members, steps = integer("members", estimator.members), estimator.steps
        fraction = share("validation_fraction", estimator.validation_fraction)
        return cls(
            members,
            boolean("calibrate", estimator.calibrate),
            _number_or_none("temperature", estimator.temperature),
            _number_or_none("prior_std", estimator.prior_std),
            None if steps is None else integer("steps", steps),
            integer("batch_size", estimator.batch_size),
            positive("lr", estimator.lr),
            fraction if boolean("early_stopping", estimator.early_stopping) else None,
            integer("patience", estimator.patience),
            integer("samples", estimator.samples, least=2),
            int(check_random_state(estimator.random_state).randint(2**31 - 1)),
        )

    def check_rows(self, rows: int) -> None:
        """Raise where so many rows cannot be divided into those to learn from and those that are held out."""
        if self.validation is not None and not 0 < round(self.validation * rows) < rows:
            raise ValueError(
                f"validation_fraction must leave rows on both sides, got {self.validation} of {rows} rows. Try "
                "early_stopping=False"
            )

    def calibrated(self, rows: float) -> bool:
        """Return whether members leave rows out, given how many (different) rows there are."""
        learned = rows if self.validation is None else rows * (1 - self.validation)
        return self.calibrate and self.members > 1 and learned >= LEAST_ROWS_OF_A_PART * self.members

    def recipes(self, calibrated: bool) -> list[tuple[float, float]]:
        """Return temperature and prior of every ensemble, without repetition; one of them where nothing is left out."""
        given = [
            (self.temperature or temperature, self.prior_std or std)
            for temperature, std in ([BOLD, CAUTIOUS] if calibrated else [CAUTIOUS])
        ]
        return list(dict.fromkeys(given))

    def steps_of(self, rows: int) -> int:
        """Return the gradient steps of an ensemble."""
        passes = DEFAULT_PASSES * -(-rows // self.batch_size)
        return max(DEFAULT_STEPS, passes) if self.steps is None else self.steps


def _number_or_none(name: str, value: float | str) -> float | None:
    """Return a positive number, and None for "auto"."""
    return None if isinstance(value, str) and value == AUTO else positive(name, value, "'auto' or ")
