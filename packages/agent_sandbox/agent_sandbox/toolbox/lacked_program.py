"""Whether a shell command lacked a program: its exit code says so, or what a shell wrote on the way.

A script that goes on after such a line, and writes a verdict, has judged less than it means to.
"""

import re

from agent_sandbox.toolbox.command import CommandResult

_CODES = {126: "which cannot be run", 127: "which was not found"}
_LINE = re.compile(
    r"^.*(?:"
    r"command not found"  # bash, zsh, also through `sudo`
    r"|: (?:\d+|line \d+): \S+: (?:not found|Permission denied)"  # dash, busybox; bash where it cannot be run
    r"|\b(?:ba|da|a|k|z)?sh: \S+: (?:not found|Permission denied)"  # of one line (`sh -c`)
    r"|\bmake(?:\[\d+\])?: .* Error 12[67]\b"
    r"|: bad interpreter: .*|: cannot execute.*"
    r"|\benv: (?:can't execute )?\S+: (?:No such file or directory|Permission denied)"
    r").*$",
    re.MULTILINE,
)


def lacked_program(result: CommandResult) -> str:
    """What says that a program was lacking; empty if nothing does. Only the end of a long output is known."""
    found = next((line for text in (result.stderr, result.stdout) if (line := _LINE.search(text))), None)
    code = "" if result.timed_out else _CODES.get(result.exit_code, "")
    told = [found[0].strip()[:200]] if found else []
    if code:
        told.insert(0, f"exit code {result.exit_code}, of a program {code}")
    return ": ".join(told)
