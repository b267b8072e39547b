"""How to join: the options, and which of the models and envs in the runs they mean."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from opencode_env.difficulty.errors import BadInputError, NothingUsableError
from opencode_env.difficulty.matching import MatchBy
from opencode_env.difficulty.rate import Rating, Source
from opencode_env.difficulty.rated import model_prefix


@dataclass(frozen=True)
class JoinOptions:
    """How to join."""

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
    fitting = sorted(
        source
        for source in rating.sources
        if options.model in (None, source.model) and options.env in (None, source.env)
    )
    known = ", ".join(f'model "{s.model}" of env "{s.env}"' for s in sorted(rating.sources))
    if not fitting:
        raise BadInputError(f"the runs have nothing of the model or env named; they have: {known}")
    if len(fitting) > 1 and not options.per_model:
        raise BadInputError(
            f"the runs have several sources ({known}): choose with --model and --env, or write all with --per-model"
        )
    return fitting


def column_prefixes(sources: Sequence[Source], options: JoinOptions) -> list[str]:
    """The column prefix of each source: none, or with `per_model` its model (and env, if they differ)."""
    return [_prefix(source, sources) if options.per_model else "" for source in sources]


def _prefix(source: Source, sources: Sequence[Source]) -> str:
    several_envs = len({other.env for other in sources}) > 1
    return model_prefix(f"{source.env}_{source.model}" if several_envs else source.model)
