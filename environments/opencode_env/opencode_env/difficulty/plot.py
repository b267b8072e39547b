"""The histogram as a PNG, if matplotlib is installed (the extra `opencode-env[plot]`)."""

from importlib import import_module
from pathlib import Path

from opencode_env.difficulty.atomic import replacing
from opencode_env.difficulty.bands import ShowFigures, Thresholds
from opencode_env.difficulty.errors import BadInputError


def write_png(figures: ShowFigures, thresholds: Thresholds, path: Path) -> None:
    """Draw the histogram of `figures` with the medium band shaded.

    Raises:
        BadInputError: matplotlib is not installed, or the file cannot be written.
    """
    try:
        backend = import_module("matplotlib.backends.backend_agg")
        figure_module = import_module("matplotlib.figure")
    except ImportError:
        raise BadInputError("--png needs matplotlib: install opencode-env[plot]") from None
    figure = figure_module.Figure(figsize=(8, 4.5), layout="constrained")
    canvas = backend.FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    widths = [high - low for low, high in zip(figures.edges, figures.edges[1:], strict=False)]
    axes.axvspan(thresholds.low, thresholds.high, alpha=0.15, label="medium band")
    axes.bar(figures.edges[:-1], figures.counts, width=widths, align="edge", edgecolor="white", label="tasks")
    axes.set_xlabel(figures.column)
    axes.set_ylabel("tasks")
    axes.set_title(f"{figures.rated:,} of {figures.rows:,} rows rated")
    axes.legend()
    with replacing([path]) as (temporary,):
        canvas.print_png(str(temporary))
