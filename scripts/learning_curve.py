"""Draws learning curves as `make learn` prints them, for docs/how-to/learn.md: reward over training rollouts, as SVG.

make learn | tee contextual.log
python scripts/learning_curve.py contextual.log [another.log …] -o docs/images/learning-curve.svg
"""

import argparse
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path

STEP = re.compile(r"^ *\d+ +(?P<rollouts>\d+) +(?P<reward>\d\.\d+) +\d+/\d+ ", re.MULTILINE)
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 720, 320, 56, 20, 24, 48
COLORS = ("#0969da", "#bc4c00", "#1a7f37", "#8250df")
CHANCE = 0.25
"""Of each curriculum with four keys."""


def points(log: str) -> list[tuple[int, float]]:
    """Training rollouts and mean reward of each step that a log has."""
    return [(int(found["rollouts"]), float(found["reward"])) for found in STEP.finditer(log)]


def drawing(curves: dict[str, Sequence[tuple[int, float]]]) -> str:
    """The curves by name, as SVG.

    Raises:
        ValueError: a curve has no point.
    """
    if empty := [name for name, curve in curves.items() if not curve]:
        raise ValueError(f"no step of `make learn` in {', '.join(empty)}")
    most = max(rollouts for curve in curves.values() for rollouts, _ in curve)

    def at(rollouts: float, reward: float) -> str:
        x = LEFT + (WIDTH - LEFT - RIGHT) * rollouts / most
        y = HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * reward
        return f"{x:.1f},{y:.1f}"

    def text(place: str, said: str, extra: str = "") -> str:
        x, y = place.split(",")
        return f'<text x="{x}" y="{y}" {extra}>{escape(said)}</text>'

    parts = [f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    for reward in (0, 0.25, 0.5, 0.75, 1):
        parts.append(f'<path d="M{at(0, reward)} L{at(most, reward)}" stroke="#d0d7de"/>')
        parts.append(text(at(0, reward), f"{reward:g}", 'dx="-8" dy="4" text-anchor="end"'))
    parts.append(f'<path d="M{at(0, CHANCE)} L{at(most, CHANCE)}" stroke="#57606a" stroke-dasharray="4 4"/>')
    parts.append(text(at(most, CHANCE), "chance", 'dy="-6" text-anchor="end"'))
    below = sorted({0, most // 4, most // 2, 3 * most // 4, most})
    parts += [text(at(rollouts, 0), f"{rollouts:,}", 'dy="18" text-anchor="middle"') for rollouts in below]
    parts.append(text(at(most / 2, 0), "training rollouts", 'dy="38" text-anchor="middle"'))
    for number, (name, curve) in enumerate(curves.items()):
        color = COLORS[number % len(COLORS)]
        line = " ".join(at(*point) for point in curve)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="2"/>')
        parts += [f'<circle cx="{x}" cy="{y}" r="3" fill="{color}"/>' for x, y in (p.split(",") for p in line.split())]
        parts.append(text(f"{LEFT + 16},{TOP + 16 + 18 * number}", name, f'fill="{color}"'))
    said = "; ".join(f"{name}: {curve[0][1]:g} to {curve[-1][1]:g}" for name, curve in curves.items())
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" font-family="sans-serif" '
        f'font-size="13" fill="#1f2328"><title>Mean reward over training rollouts, {escape(said)}</title>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Read the logs, write the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "logs", nargs="+", type=Path, metavar="LOG", help="what `make learn` printed; its name is shown"
    )
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="SVG")
    options = parser.parse_args(argv)
    options.output.write_text(drawing({log.stem: points(log.read_text()) for log in options.logs}), encoding="utf-8")


if __name__ == "__main__":
    main()
