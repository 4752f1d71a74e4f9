"""Settings, apart from the comparison, whose imports need the extra ``table``."""

from dataclasses import dataclass

from benchmarks.common.data import UCI_FOLDERS

UCI_PART, GROUPED_PART = "uci", "grouped"
GROUPED_TABLES = ("linear", "waves", "fertility")
PARTS = (UCI_PART, GROUPED_PART, *UCI_FOLDERS, *GROUPED_TABLES)


@dataclass(frozen=True)
class Settings:
    """Parts are "uci" (seven tables), "grouped" (three), or tables by name.

    Settings and variants of this package were chosen on splits 0 to 3, so other ones are reported.
    """

    parts: tuple[str, ...] = (UCI_PART, GROUPED_PART)
    splits: tuple[int, ...] = (15, 16, 17)
    seconds: float = 20.0
    """CPU seconds of every method for each table: choosing its settings and training with them."""
    draws: int = 5
    """Draws of every grouped table: of its groups and of its rows."""

    def __post_init__(self) -> None:
        if unknown := set(self.parts) - set(PARTS):
            raise ValueError(f"parts must be among {', '.join(PARTS)}, got {', '.join(sorted(unknown))}")

    @property
    def uci_tables(self) -> list[str]:
        """The UCI tables that are asked for."""
        return [name for name in UCI_FOLDERS if {name, UCI_PART} & set(self.parts)]

    @property
    def grouped_tables(self) -> list[str]:
        """The grouped tables that are asked for."""
        return [name for name in GROUPED_TABLES if {name, GROUPED_PART} & set(self.parts)]
