"""How to join: the options, and which of the models and envs in the runs they mean."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from opencode_runs.difficulty.join.matching import MatchBy
from opencode_runs.difficulty.rate import Rating, Source
from opencode_runs.traces.errors import BadInputError, NothingUsableError


@dataclass(frozen=True)
class JoinOptions:
    model: str | None = None
    env: str | None = None
    per_model: bool = False
    by: MatchBy = "auto"
    id_key: str | None = None
    """Column whose value is the id of a row; None: the taskset's, else "id"."""
    taskset: dict[str, str] = field(default_factory=dict)
    """Column options of the taskset that go before those of the runs' saved configs."""
    threshold: float = 1.0
    seat: str | None = None
    replace_columns: bool = False
    force: bool = False
    names: int = 5
    """How many unmatched rows and tasks are named."""


def choose_sources(rating: Rating, options: JoinOptions) -> list[Source]:
    """The sources whose figures are written: one, or all that fit with `per_model`.

    Raises:
        BadInputError: several fit and `per_model` is not set, or the model or env named is not in the runs.
        NothingUsableError: there was no episode at all.
    """
    if not rating.sources:
        raise NothingUsableError("the runs hold no episode")
    known = sorted(rating.sources)
    fitting = [s for s in known if options.model in (None, s.model) and options.env in (None, s.env)]
    named = ", ".join(f'model "{s.model}" of env "{s.env}"' for s in known)
    if not fitting:
        raise BadInputError(f"the runs have nothing of the model or env named; they have: {named}")
    if len(fitting) > 1 and not options.per_model:
        raise BadInputError(
            f"the runs have several sources ({named}): choose with --model and --env, or write all with --per-model"
        )
    return fitting


def column_prefixes(sources: Sequence[Source], options: JoinOptions) -> list[str]:
    """The column prefix of each source: none, or with `per_model` its model (and env, if they differ)."""
    if not options.per_model:
        return [""] * len(sources)
    several_envs = len({source.env for source in sources}) > 1
    names = [f"{source.env}_{source.model}" if several_envs else source.model for source in sources]
    # Dots would read as nested columns.
    return [re.sub(r"[^0-9A-Za-z-]+", "_", name).strip("_") + "_" for name in names]
