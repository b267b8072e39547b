"""The picture of a learning curve shows what `make learn` printed."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from examples.learn.curve import Step
from scripts.learning_curve import drawing, main, points

STEPS = [
    Step(number, 24 * number, reward, mixed=2, groups=4, tokens=744, mismatch=1e-6, entropy=0.7, errors=0, forks=0,
         seconds={"play": 30.0, "learn": 0.1})
    for number, reward in enumerate((0.08, 0.42, 0.83), start=1)
]  # fmt: skip


def test_each_printed_step_is_a_point_of_the_curve(tmp_path: Path) -> None:
    log = tmp_path / "contextual & seed 0.log"
    lines = ["cloned the format in 8 s", *[step.line() for step in STEPS], "playing 32 fresh rollouts"]
    log.write_text("\n".join(lines))
    assert points(log.read_text()) == [(24, 0.08), (48, 0.42), (72, 0.83)]
    main([str(log), "-o", str(tmp_path / "curve.svg")])
    picture = ElementTree.fromstring((tmp_path / "curve.svg").read_text())
    (line,) = picture.iter("{http://www.w3.org/2000/svg}polyline")
    heights = [float(point.split(",")[1]) for point in line.attrib["points"].split()]
    assert len(heights) == 3
    assert heights == sorted(heights, reverse=True)
    assert "contextual & seed 0" in (picture.findtext("{http://www.w3.org/2000/svg}title") or "")


def test_a_log_without_steps_is_refused() -> None:
    with pytest.raises(ValueError, match="no step of `make learn` in empty"):
        drawing({"empty": []})


def test_the_page_has_the_picture_and_says_its_ends() -> None:
    root = Path(__file__).parents[2]
    title = re.search("<title>(.*)</title>", (root / "docs/images/learning-curve.svg").read_text())
    first, last = re.findall(r"[01]\.\d\d", title[1] if title else "")
    page = (root / "docs/how-to/learn.md").read_text()
    assert f"{first} in the first step, {last} in the eighth" in page
