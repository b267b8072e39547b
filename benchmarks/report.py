"""What `opencode-report` costs: writing a page, and opening it.

  write_time_text, …_tokens   seconds to write the page ÷ plain `json.loads` over the same lines          (goal 2.0)
  write_peak_mb               peak memory while writing it, of all processes together, MB                 (goal 200)
  open_time                   time until the page of 2,000 rollouts answers a click ÷ an empty page of the same size in
                              the same browser                                                            (goal 3)

The traces are those of `_difficulty_rate.py`: episodes with long messages, and a quarter as much with tokens as a
training client leaves them. The page is written by as many processes as there are processors (four at most), so that
other work on the machine shows in its time: the load is printed, and so is the CPU time of all processes. Imports are
not counted. The goals are for the default size, which takes two minutes on two idle cores.

    uv run python benchmarks/report.py [--megabytes 1000] [--json]
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks._difficulty_rate import TOKEN_SHARE, _write_run
from tests.support.browser import Browser, chromium

GOALS = {"write_time_text": 2.0, "write_time_tokens": 2.0, "write_peak_mb": 200.0, "open_time": 3.0}
ROUNDS = 3


def main() -> None:
    """Make the runs, measure, print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--side", choices=("page", "loads"), help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        _side(options.side, options.file)
        return
    with tempfile.TemporaryDirectory(prefix="report-bench-") as folder:
        ratios, detail = _writing(Path(folder), options.megabytes)
        opened = _opening(Path(folder))
    ratios["open_time"] = round(opened["page"] / opened["empty"], 3)
    for name, value in ratios.items():
        print(f"{name}: {value:,.2f} (goal {GOALS[name]:g})")
    print(f"opening: {opened}; writing: {detail}")
    if options.json:
        print(json.dumps({"name": "report", "ratios": ratios, "goals": GOALS, "detail": {**detail, "opened": opened}}))


def _writing(folder: Path, megabytes: int) -> tuple[dict[str, float], dict[str, object]]:
    ratios: dict[str, float] = {}
    detail: dict[str, object] = {"load": [round(value, 1) for value in os.getloadavg()]}
    peak = 0.0
    for kind, size in (("text", megabytes), ("tokens", megabytes * TOKEN_SHARE)):
        file = folder / "traces.jsonl"
        lines = _write_run(file, int(size * 1e6), tokens=kind == "tokens")
        taken: dict[str, list[tuple[float, float]]] = {"page": [], "loads": []}
        for _ in range(ROUNDS):
            for side, seconds in taken.items():
                wall, cpu, used = _run_side(side, file)
                seconds.append((wall, cpu))
                peak = max(peak, used if side == "page" else 0.0)
        (page, page_cpu), (loads, loads_cpu) = (map(median, zip(*seconds, strict=True)) for seconds in taken.values())
        ratios[f"write_time_{kind}"] = round(page / loads, 3)
        detail[kind] = {
            "megabytes": round(file.stat().st_size / 1e6), "lines": lines, "page_s": round(page, 2),
            "loads_s": round(loads, 2), "page_cpu_s": round(page_cpu, 2), "cpu_ratio": round(page_cpu / loads_cpu, 2),
            "page_mb": round((folder / "page.html").stat().st_size / 1e6, 1),
        }  # fmt: skip
        file.unlink()
    return ratios | {"write_peak_mb": round(peak, 1)}, detail


def _run_side(side: str, file: Path) -> tuple[float, float, float]:
    """Seconds by the clock, of CPU, and the most memory that the process and those that it starts had together, MB."""
    command = [sys.executable, __file__, "--side", side, "--file", str(file)]
    peak = 0.0
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        while process.poll() is None:
            peak = max(peak, _memory(process.pid))
            time.sleep(0.05)
        assert process.stdout is not None
        wall, cpu = json.loads(process.stdout.read().splitlines()[-1])
    return wall, cpu, peak


def _memory(pid: int) -> float:
    """Megabytes of a process and its children; what they share counts once."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        found = re.search(r"^Pss: +(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    except OSError:
        return 0.0  # It has ended.
    return (int(found[1]) * 1024 / 1e6 if found else 0.0) + sum(map(_memory, map(int, children)))


def _side(side: str, file: Path) -> None:
    """Write the page of `file`, or only read it; print seconds by the clock and of CPU, imports not counted."""
    from opencode_runs.report.writing import write_page
    from opencode_runs.traces.reading import find_runs

    start, before = time.perf_counter(), sum(os.times()[:4])
    if side == "page":
        write_page(find_runs([file]), file.parent / "page.html", max_mb=25.0)
    else:
        with file.open("rb") as lines:
            for line in lines:
                json.loads(line)
    print(json.dumps([time.perf_counter() - start, sum(os.times()[:4]) - before]))


def _opening(folder: Path) -> dict[str, float]:
    """Seconds until a click is answered: the page of 2,000 rollouts, and one of its size that does nothing else."""
    from opencode_runs.report.writing import write_page
    from opencode_runs.traces.reading import find_runs

    from tests.report import made  # It imports the environment, which a measured side must not.

    run = made.write_run(folder / "run", made.many(2000, turns=8))
    page, empty = folder / "large.html", folder / "empty.html"
    write_page(find_runs([run]), page, max_mb=25.0)
    script = '<a href="#/rollouts">go</a><main id="main"></main><script>addEventListener("hashchange", () => {'
    script += 'document.getElementById("main").textContent = location.hash; })</script>'
    filling = "A" * (page.stat().st_size - len(script) - 100)
    empty.write_text(f'<!doctype html><meta charset="utf-8">{script}<script type="text/plain">{filling}</script>')
    answers = {page: "document.querySelector('tr.rollout')", empty: "document.getElementById('main')?.textContent"}
    found: dict[str, float] = {"megabytes": round(page.stat().st_size / 1e6, 1)}
    with chromium(folder / "profile") as browser:
        for place, answer in answers.items():
            name = "page" if place == page else "empty"
            found[name] = round(median(_until_answered(browser, place, answer) for _ in range(5)), 4)
    return found


def _until_answered(browser: Browser, page: Path, answer: str) -> float:
    browser.call("Page.navigate", url="about:blank")
    start = time.perf_counter()
    browser.call("Page.navigate", url=page.as_uri())
    # In the page: click as soon as there is something to click, and wait for what the click shows.
    browser.run(
        "new Promise((done) => { const look = () => { const link = document.querySelector('a[href=\"#/rollouts\"]');"
        f" if ({answer}) done(true); else {{ if (link && location.hash !== '#/rollouts') link.click();"
        " setTimeout(look, 1); } }; look(); })"
    )
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
