"""The histogram as a PNG, if matplotlib is installed (the extra `opencode-env[plot]`)."""

from importlib import import_module
from pathlib import Path

from opencode_env.difficulty.bands import ShowFigures, Thresholds
from opencode_env.difficulty.errors import BadInputError
from opencode_env.difficulty.outputs import replacing


def write_png(figures: ShowFigures, thresholds: Thresholds, path: Path) -> None:
    """Draw the histogram of `figures` with the medium band shaded.

    Raises:
        BadInputError: matplotlib is not installed, or the file cannot be written.
    """
    try:
        figure = import_module("matplotlib.figure").Figure(figsize=(8, 4.5), layout="constrained")
    except ImportError:
        raise BadInputError("--png needs matplotlib: install opencode-env[plot]") from None
    axes = figure.add_subplot()
    axes.axvspan(thresholds.low, thresholds.high, alpha=0.15, label="medium band")
    axes.stairs(figures.counts, figures.edges, fill=True, edgecolor="white", label="tasks")
    axes.set_xlabel(figures.column)
    axes.set_ylabel("tasks")
    axes.set_title(f"{figures.rated:,} of {figures.rows:,} rows rated")
    axes.legend()
    with replacing([path]) as (temporary,):
        figure.savefig(temporary, format="png")
