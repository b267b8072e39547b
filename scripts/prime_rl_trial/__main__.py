"""The trial: each part prints what it found; exit code 1 if anything is not as the README says.

`python -m scripts.prime_rl_trial PART… --work DIRECTORY`, in an environment that has prime-rl.
"""

import argparse
import asyncio
import shutil
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from scripts.prime_rl_trial import configurations, evaluating, stepping
from scripts.prime_rl_trial.report import Report


async def files(report: Report, work: Path) -> None:
    """`configs/rl` and `configs/eval` under prime-rl's classes."""
    for path in sorted((configurations.ROOT / "configs" / "rl").glob("*.toml")):
        said = await asyncio.to_thread(configurations.dry_run, path, work)
        report.holds(f"rl @ configs/rl/{path.name} --dry-run", said is None, said or "accepted as it is")
    for name, said in configurations.refused_evals():
        report.holds(f"configs/eval/{name}.toml as sources of evals", said is None, said or "accepted")


PARTS: dict[str, Callable[[Report, Path], Coroutine[Any, Any, None]]] = {
    "files": files,
    "step": stepping.one_step,
    "recursion": stepping.recursion,
    "sections": stepping.sections,
    "turns": stepping.turns,
    "faults": stepping.faults,
    "stale": stepping.stale,
    "evals": evaluating.evals,
    "cluster": stepping.cluster,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="prime_rl_trial", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)} (default: all)")
    parser.add_argument("--work", type=Path, required=True, help="directory for everything that is written")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    report = Report()
    for part in options.parts or PARTS:
        work = options.work / part
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        asyncio.run(PARTS[part](report, work))
    return report.close()


if __name__ == "__main__":
    sys.exit(main())
