"""Whether a row's verify commands put the agent's code into their own process, where it can decide the verdict.

A heuristic over the text of the commands: it is there to warn, once per dataset, and refuses nothing.
"""

import logging
import re
import sys
from collections.abc import Iterable

from agent_sandbox.toolbox.agent_code import COMMAND

logger = logging.getLogger("verifiers.v1.opencode_env.taskset")

_TEST_RUNNERS = re.compile(
    r"\b(?:pytest|py\.test|unittest|nosetests|doctest|tox|nox|jest|vitest|mocha|rspec|phpunit|ctest|gradlew?|mvn)\b"
    r"|\b(?:npm|pnpm|yarn|go|cargo|make|bun|deno|mix|swift|dotnet)\s+(?:run\s+)?(?:test|check|run)\b"
)
_PYTHON_CODE = re.compile(r"\bpython[\d.]*\s(?:[^\n;|&]*?\s)?-c\s+(['\"])(.*?)\1", re.DOTALL)
_IMPORTED = re.compile(r"(?:^|[;\n])\s*(?:from\s+([A-Za-z_]\w*)[\w.]*\s+import\b|import\s+([\w., ]+))")
_STARTS = r"(?:^|[;&|(\n]|\b(?:then|do|else|if|timeout \S+))\s*"
_RUNS_FILE = re.compile(
    rf"(?:{_STARTS}|\s)(?:python[\d.]*|sh|bash|node|ruby|perl|php)\s+(?:-\S+\s+)*(?:\./|/app/|\w)[\w./-]*\.\w+(?=$|[\s;&|)])"
    rf"|{_STARTS}(?:\./|/app/)[\w./-]+(?=$|[\s;&|)])"
)
_USED_BY_ITS_EXIT = re.compile(rf"(?:^|&&|\|\||;|\n|\bif|!)\s*{COMMAND}\b(?![^\n]*(?:--status|[|>]))")


def agent_code_in(command: str) -> str | None:
    """The part of a verify command by which code of the agent's seems to get into it; None if there is none."""
    if COMMAND in command:
        return None
    if found := _TEST_RUNNERS.search(command):
        return found.group()
    for _, code in _PYTHON_CODE.findall(command):
        for module, modules in _IMPORTED.findall(code):
            names = [module] if module else [name.split()[0].partition(".")[0] for name in modules.split(",") if name]
            if foreign := [name for name in names if name and name not in sys.stdlib_module_names]:
                return f"import {foreign[0]}"
    ran = _RUNS_FILE.search(command)
    return ran.group().strip() if ran else None


def judged_by_its_exit(command: str) -> bool:
    """Whether a verify command takes the exit code of `run-agent-code` for a verdict, which is always 0."""
    return bool(_USED_BY_ITS_EXIT.search(command))


def warn_of_agent_code(place: str, commands: Iterable[str]) -> bool:
    """Log a warning about the first command that agent code can decide; whether there was one."""
    for command in commands:
        if judged_by_its_exit(command):
            logger.warning(
                "%s: a verify command takes the exit code of %s for a verdict, but that is 0 whatever the agent's code "
                "did: compare what it printed, or what --status FILE says. Further rows are not looked at.",
                place,
                COMMAND,
            )
            return True
        part = agent_code_in(command)
        if part is not None:
            logger.warning(
                "%s: a verify command seems to run the agent's code itself (%r), which can then end it with exit code "
                "0, patch its checks or write its reward file: run that code with `%s -- COMMAND` and compare what it "
                "prints. Further rows are not looked at.",
                place,
                part,
                COMMAND,
            )
            return True
    return False
