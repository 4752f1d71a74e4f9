"""What is found while an archive is opened: problems that stop it, bad frames, and what was understood."""

from typing import Literal, NoReturn

from metaprior.solar.maps.archives.archive import first_lines

OnBad = Literal["raise", "skip"]
SKIP = (
    'on_bad="skip" leaves such frames out and lists them (metaprior train: --set tasks.on_bad=skip, metaprior predict: '
    "--on-bad skip)"
)


class Notes:
    """Collects what opening finds, so that all of it is said at once.

    Attributes:
        problems: What could not be understood, each with the argument that settles it.
        bad: Bad frames, by name: with ``on_bad="raise"`` they are a problem, with "skip" they are left out.
        findings: What was understood, a line each.
    """

    def __init__(self, on_bad: OnBad = "raise") -> None:
        self.problems: list[str] = []
        self.bad: list[str] = []
        self.findings: list[str] = []
        if on_bad not in ("raise", "skip"):
            self.problem(f'on_bad must be "raise" or "skip", got {on_bad!r}')
        self.on_bad = on_bad

    def problem(self, text: str) -> None:
        """Record something that stops opening; other problems are still looked for."""
        self.problems.append(text)

    def bad_frame(self, name: str, problem: str) -> None:
        """Record a frame that cannot be used."""
        self.bad.append(f"{name}: {problem}")

    def finding(self, text: str) -> None:
        """Record what was understood."""
        self.findings.append(text)

    def stop(self, source: str, problem: str) -> NoReturn:
        """Raise ValueError with this problem, without which nothing else can be found out, and all others."""
        self.problem(problem)
        self.raise_problems(source)
        raise AssertionError  # raise_problems has raised

    def raise_problems(self, source: str) -> None:
        """Raise ValueError if there are problems; bad frames that were found so far are named beside them."""
        if self.problems:
            self._raise(source, [*self.problems, *self._bad_frames()])

    def raise_bad(self, source: str) -> None:
        """Raise ValueError if there are bad frames and they are not to be left out."""
        self._raise(source, self._bad_frames())

    @property
    def skipped(self) -> list[str]:
        """Bad frames that are left out."""
        return self.bad if self.on_bad == "skip" else []

    def _bad_frames(self) -> list[str]:
        if self.on_bad == "skip" or not self.bad:
            return []
        if len(self.bad) == 1:
            return [f"{self.bad[0]}. Repair or remove it; {SKIP}"]
        return [f"{len(self.bad)} frames cannot be used:{first_lines(self.bad)}\nRepair or remove them; {SKIP}"]

    def _raise(self, source: str, problems: list[str]) -> None:
        if len(problems) == 1:
            raise ValueError(problems[0])
        if problems:
            lines = "".join(f"\n- {problem.removeprefix(f'{source}: ')}" for problem in problems)
            raise ValueError(f"{source}: {len(problems)} problems:{lines}")
