"""What a suite's script does to install its repository, and when: before the change is there, if that is the same.

Invariant: an installation runs `setup.py` and its like, and so whatever a change put into them, before any test. Where
the installed package is the work directory itself (an editable one) and a change is of Python modules alone, in
directories that were there, it is installed as it was, and the change has no part in it. Else it is installed with the
change, and that is told.
"""

import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import verifiers.v1 as vf
from rollout_sandbox.compat import lift_network
from rollout_sandbox.toolbox.checked_run import run_for
from rollout_sandbox.toolbox.command import run_command

from opencode_rubrics.swe.problem import SweProblem

_PIP = r"\s*(?:python[\d.]*\s+-m\s+)?pip[\d.]*\s+install\b"
_HERE = r"\s(?:-e|--editable)[\s=]+['\"]?\.(?:\[[\w, -]*\])?['\"]?(?:\s|$)"
_EDITABLE = re.compile(
    rf"{_PIP}(?=.*{_HERE})[^;&|<>$`()]*|\s*python[\d.]*\s+setup\.py\s+(?:develop|build_ext\s+(?:--inplace|-i))\s*"
)
_INSTALLS = re.compile(
    r"\bpip[\d.]*\s+install\b[^\n;&|]*['\"\s]\.{1,2}(?:/|\[|['\"\s]|$)|\bsetup\.py\s+\w"
    r"|\b(?:npm|yarn|pnpm|composer|bundle)\s+(?:i|ci|install)\b"
    r"|\b(?:make|poetry|pdm|flit|maturin|hatch|meson|mvn|gradle|gradlew)\s",
    re.MULTILINE,
)
_HEREDOC = re.compile(r"<<-?\s*(['\"]?)(\w+)\1[^\n]*\n.*?^\s*\2$", re.MULTILINE | re.DOTALL)
_COMPOUND = re.compile(r"\s*(?:if|for|while|until|case|select|function|\{|\(|\w+\s*\(\))|.*(?:\\|&&|\|)\s*$")
_SECONDS = 60.0
_ALL_THERE = 'cd -- "$1" && shift && for folder; do [ -d "$folder" ] || exit 1; done'


@dataclass(frozen=True)
class Installed:
    """What is left of a task when its package has been installed, or has not been yet."""

    problem: SweProblem
    with_change: bool
    """Whether its command installs or builds the package with the change in it."""
    failure: str = ""
    """Why it could not be installed; empty if it could, or was not to be yet."""


def parted(command: str) -> tuple[str, str] | None:
    """A script up to its last editable installation, and the script without any; None where it is not so simple."""
    lines = command.split("\n")
    until = next((number for number, line in enumerate(lines) if "<<" in line or _COMPOUND.match(line)), len(lines))
    found = [number for number, line in enumerate(lines[:until]) if _EDITABLE.fullmatch(line)]
    if not found:
        return None
    rest = "\n".join(line for number, line in enumerate(lines) if number not in found)
    return "\n".join(lines[: found[-1] + 1]) + "\n", rest


def installs(command: str) -> bool:
    """Whether a script installs or builds what is in its work directory."""
    return _INSTALLS.search(_HEREDOC.sub("\n", command)) is not None


async def install(
    box: vf.Runtime, problem: SweProblem, workdir: str, folders: Sequence[str] | None, *, changed: bool
) -> Installed:
    """Install the package of an untouched sandbox, if a change has no part in that: one of Python modules alone, in
    these `folders`; None is another change."""
    parts, failure = parted(problem.command), ""
    if parts is not None and folders is not None and await _all_there(box, workdir, folders):
        await lift_network(box)
        script = f"/tmp/.{uuid.uuid4().hex}"
        await box.write(script, parts[0].encode())
        shell = "$(command -v bash || command -v sh)"
        ended = await run_command(box, f'"{shell}" {script}; rm -f {script}', workdir=workdir, timeout=problem.timeout)
        failure = f"its package was not installed within {problem.timeout:g} s" if ended.timed_out else ""
        problem = problem.model_copy(update={"command": parts[1]})
    return Installed(problem, changed and installs(problem.command), failure)


async def _all_there(box: vf.Runtime, workdir: str, folders: Sequence[str]) -> bool:
    argv = ["sh", "-c", _ALL_THERE, "all-there", workdir, *folders]
    return (await run_for(box, argv, _SECONDS, "directories cannot be looked for")).exit_code == 0
