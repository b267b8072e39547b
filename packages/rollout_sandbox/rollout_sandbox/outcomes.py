"""One way in which a rollout can end, as a row that its error class bears where that is defined."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType

GROUP = "rollout_sandbox.outcomes"
"""Entry points by which a distribution names its modules with errors that bear a row."""


@dataclass(eq=False)
class Outcome:
    """A row of the table of outcomes; a text that holds `|` would break the documents' table.

    What the policy did is a stop, is scored and is not tried again. What the infrastructure did is an error, is not
    scored and is tried again, unless an agent can bring it about at will: else the best of several tries would count.
    """

    when: str
    """What happened."""
    advice: str
    """What to do."""
    stop: str = ""
    """The trace's stop condition, by which it is recognised too."""
    errors: tuple[str, ...] = ()
    """Types of the error on the trace, or on the episode; none is a rollout that is scored. An error class whose
    attribute the row is adds its own."""
    again: bool = True
    """Whether `--env.retries.max-retries` (0 by default) holds for an error that no rule of `--env.retries` names."""
    metric: str = ""
    """The metric that is 1 then."""
    begins: str = ""
    """With what the error's message begins, where another row has errors of the same type."""
    endpoint: bool = False
    """Whether a model call that failed with such an error tells of the endpoint, or of the path to it."""
    also: str = ""
    """What else there is to see."""
    name: str = ""
    """What a trace calls it: the first class or attribute that it was given to."""

    def __set_name__(self, owner: type, name: str) -> None:
        if issubclass(owner, Exception):
            self.errors, name = (*self.errors, owner.__name__), owner.__name__
        self.name = self.name or name

    @property
    def scored(self) -> bool:
        """Whether the rollout gets a score."""
        return not self.errors


def outcomes_in(module: ModuleType) -> Iterator[Outcome]:
    """The rows that the error classes of a module bear, in order."""
    for kind in vars(module).values():
        if isinstance(kind, type) and kind.__module__ == module.__name__:
            row = vars(kind).get("outcome")
            if isinstance(row, Outcome):
                yield row


@cache
def installed_outcomes() -> tuple[Outcome, ...]:
    """The rows of all installed distributions, each once.

    Raises:
        RuntimeError: there is none, not even of this distribution: it was installed before it named any; or one names
            a module that is gone.
    """
    points = sorted(entry_points(group=GROUP), key=lambda point: point.name)
    if not points:
        raise RuntimeError(f"no installed distribution has entry points {GROUP!r}: install rollout-sandbox again")
    return tuple(dict.fromkeys(row for point in points for row in outcomes_in(_loaded(point))))


def _loaded(point: EntryPoint) -> ModuleType:
    try:
        module: ModuleType = point.load()
    except ModuleNotFoundError as error:
        owner = point.dist.name if point.dist is not None else "its distribution"
        raise RuntimeError(f"{point.value}, of {GROUP!r}, is not there: install {owner} again ({error})") from error
    return module
