"""What the program of a `local_program` sees of this machine, and what of it cannot run there."""

import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rollout_sandbox.confined.interpreter import interpreter_roots

_SETTINGS = (
    "alternatives",
    "ca-certificates",
    "ca-certificates.conf",
    "fonts",
    "group",
    "hosts",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "mime.types",
    "nsswitch.conf",
    "passwd",
    "pki",
    "resolv.conf",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
)
"""What programs want of /etc: names, addresses and certificates, and no secrets."""
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64")
_FIRST_LINE = 512


def search_path(variables: Mapping[str, str]) -> str:
    """Return where a program with these variables is looked for."""
    return variables.get("PATH", os.environ.get("PATH", os.defpath))


def seen_paths(command: Sequence[str], search: str, reads: Sequence[str]) -> list[str]:
    """Paths of this machine that the program sees beside /usr: its tools may show them to the agent."""
    program, *rest = command or [""]
    found = shutil.which(program, path=search)
    named = [*([found, os.path.realpath(found)] if found else []), *filter(os.path.isabs, rest)]
    seen = ["/usr"]
    paths = filter(os.path.exists, [*interpreter_roots(), sys.prefix, *named, *reads])
    for path in sorted(map(os.path.normpath, paths)):  # a directory before what is in it
        if not any(Path(path).is_relative_to(shown) for shown in seen):
            seen.append(path)
    return [*(f"/etc/{name}" for name in _SETTINGS), *seen[1:]]


def cannot_run(command: Sequence[str], search: str, reads: Sequence[str], template: Path | None) -> Iterator[str]:
    """Yield why the program of a command could not be started, if so; of `template` its own directory is a copy."""
    program = command[0]
    found = shutil.which(program, path=search)
    if "/" in program and not os.path.isabs(program):
        # It starts in a directory of its own.
        if template is None or not os.access(template / program, os.X_OK) or (template / program).is_dir():
            yield f"{program!r} is not in its own directory, the copy of template_data_path_host: write its whole path"
        return
    if found is None:
        there = os.path.isabs(program) and os.path.exists(program)
        why = "is there, but cannot be executed" if there else "is not a program that can be found"
        yield f"{program!r} {why}" + ("" if os.path.isabs(program) else f" on the PATH {search!r}")
        return
    yield from _interpreter(found, search, seen_paths(command, search, reads))


def _interpreter(script: str, search: str, seen: Sequence[str]) -> Iterator[str]:
    """Yield why a script's first line cannot be followed."""
    words = _first_line(script)
    if not words:
        return
    asked, *options = words
    if os.path.basename(asked) == "env":
        asked = next((word for word in options if not word.startswith("-") and "=" not in word), asked)
    interpreter = shutil.which(asked, path=search)
    if interpreter is None:
        yield f"the first line of {script} asks for {asked}, which is not a program here"
        return
    for path in dict.fromkeys((interpreter, os.path.realpath(interpreter))):
        if not any(Path(path).is_relative_to(shown) for shown in (*_SYSTEM, *seen)):
            home = os.path.dirname(path)
            home = os.path.dirname(home) if os.path.basename(home) == "bin" else path
            yield f"the first line of {script} asks for {path}, which it does not see: name {home} in reads"


def _first_line(script: str) -> list[str]:
    try:
        with open(script, "rb") as file:
            first = file.read(_FIRST_LINE).partition(b"\n")[0]
    except OSError:
        return []
    return first[2:].decode(errors="replace").split() if first.startswith(b"#!") else []
