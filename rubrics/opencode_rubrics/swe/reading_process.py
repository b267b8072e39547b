"""The process that reads what an agent or its tests made: listings, files, logs, records; started by `reader`.

Invariant: it is ended past its CPU seconds, memory or output, and knows nothing that an agent wants: no key, no file.
It imports the standard library alone, and of ours what does the same.

A request is a line of JSON (`call`, `given`, and `blobs`: the length of each argument that is bytes) with those bytes
behind it; so is a reply, with `result`, `refused` (a `TreeError`) or `broken` (what the package of a parser lacks).
"""

import json
import resource
import subprocess
import sys
from collections.abc import Callable
from typing import Any, BinaryIO

from opencode_rubrics.swe.file_tree import (
    MAX_NAMES,
    MAX_PATHS,
    FileContent,
    TreeError,
    changed_paths,
    joined,
    module_folders,
    packed,
    packed_below,
    parents,
    read_listing,
    unfit,
    unpacked,
)
from opencode_rubrics.swe.split import PathSplitter, RowPaths, configures_tests, signs_of, split_paths
from opencode_rubrics.swe.suite_verdict import Suite, judge, passed_alone

CPU_SECONDS = 60
MEMORY_BYTES = 3 << 30
_SHOWN_PATHS, _SHOWN_CHARS = 100, 300
Result = dict[str, Any]


class ParserFailed(Exception):
    """A parser of another package cannot be asked."""


class ChangeReader:
    """One change, from two listings to what is put into an untouched sandbox."""

    def compare(self, before: bytes, after: bytes, row: RowPaths) -> Result:
        """Return what must be taken out: `names`, of them `new` ones; `refused` says why it is too much."""
        self._before, self._after = map(read_listing, (before, after))
        other, gone = changed_paths(self._before, self._after)
        splitter = PathSplitter(row, self._before, self._after)
        self._new, self._lost = split_paths(splitter, other), split_paths(splitter, gone)
        return self._asked(self._new["solution"])

    def _asked(self, paths: list[str]) -> Result:
        self._links = {
            path: FileContent(target=entry.target) for path in paths if (entry := self._after[path]).target is not None
        }
        self._wanted = [path for path in paths if path not in self._links]
        names, refused = joined(self._wanted, "\n"), ""
        if len(paths) > MAX_PATHS or len(names) > MAX_NAMES:
            refused = f"{len(paths)} files are more than {MAX_PATHS}, or their names too long"
        new = joined(path for path in self._new["solution"] if path not in self._before)
        return {"names": names, "new": new, "refused": refused}

    def leave(self, ignored: bytes) -> Result:
        """The same without what a repository ignores: build products may be large."""
        left = {name.removeprefix("./") for name in ignored.decode(errors="surrogateescape").split("\0")}
        solution = [path for path in self._new["solution"] if path in self._before or path not in left]
        self._new["environment"] += sorted({*self._new["solution"]} - {*solution})
        self._new["solution"] = solution
        return self._asked(solution)

    def files(self, archive: bytes) -> Result:
        """Return the names of what an untouched sandbox has in the place of what the agent's gave."""
        self._files = {**self._links, **unpacked(archive, self._after, {*self._wanted})}
        missing = [path for path in self._wanted if path not in self._files]
        if missing:
            raise TreeError(f"{len(missing)} files were listed and not given, or are too large: {missing[0]!r}, …")
        self._judged = [*self._files, *self._lost["solution"]]
        known = [path for path in self._judged if path in self._before and self._before[path].target is None]
        return {"originals": joined(known, "\n")}

    def change(self, originals: bytes) -> Result:
        """Return what is put into an untouched sandbox, and what is told of it."""
        known = {path for path in self._judged if path in self._before}
        old = unpacked(originals, self._before, known)
        old |= {
            path: FileContent(target=self._before[path].target)
            for path in known
            if self._before[path].target is not None
        }
        configuring = {path for path in self._judged if configures_tests(path, old.get(path), self._files.get(path))}
        files = {path: file for path, file in self._files.items() if path not in configuring}
        gone = [path for path in self._lost["solution"] if path not in configuring]
        # What is left of the untouched tree must not be in its way, and has it not.
        dropped = unfit(self._before, files, gone)
        files = {path: file for path, file in files.items() if path not in dropped}
        paths = [*files, *gone]
        tests = [*self._new["test"], *self._lost["test"], *sorted(configuring | dropped)]
        environment = [*self._new["environment"], *self._lost["environment"]]
        signs = signs_of(old, files)
        folders = module_folders(paths)
        return {
            "removed": joined([*gone, *files]),
            "writable": joined(dict.fromkeys(parent for path in paths for parent in parents(path))),
            "folders": joined(dict.fromkeys(parent for path in files for parent in parents(path))),
            "packed": packed(files) if files else b"",
            "modules": folders,
            "told": {
                "changed": _shown(files),
                "removed": _shown(gone),
                "dropped_tests": _shown(tests),
                "dropped_environment": _shown(environment),
                "meddling": _shown(signs),
                "patch_files": len(paths),
                "patch_bytes": sum(len(file.content) for file in files.values()),
                "dropped_test_files": len(tests),
                "dropped_environment_files": len(environment),
                "meddling_signs": len(signs),
            },
        }

    def judge(
        self, log: bytes, record: bytes, recording: bool, secret: str, exit_code: int, suite: Suite, foreign: Result,
        whole: bool,
    ) -> Result:  # fmt: skip
        """Return what a run is worth, for `whole` with the states of all tests."""
        text = log.decode(errors="replace")
        given = record if recording else None
        made = judge(suite, text, given, secret, exit_code, lambda part: read_foreign(foreign, part))
        return {**vars(made), "problem": made.problem[:1000], "states": made.states if whole else {}}

    def artifact(self, archive: bytes, name: str) -> Result:
        """Return what an agent's sandbox gave for what is at `name` in a directory, as it may be put into another."""
        return {"packed": packed_below(archive, name)}

    def passed_alone(self, gold: bytes, gold_secret: str, run: bytes, secret: str) -> Result:
        """Tests that passed with the gold patch and not in a run."""
        count, first = passed_alone((gold, gold_secret), (run, secret))
        return {"count": count, "first": first[:_SHOWN_CHARS]}


def _shown(paths: Any) -> list[str]:
    return [path[:_SHOWN_CHARS] for path in list(paths)[:_SHOWN_PATHS]]


def read_foreign(foreign: Result, log: str) -> dict[str, str]:
    """Return what another package's parser reads, in its own Python; nothing if the log ends or stops that."""
    asked = json.dumps({**foreign["asked"], "log": log}).encode(errors="replace") + b"\n"
    argv, environment = foreign["argv"], foreign["environment"]
    try:
        done = subprocess.run(argv, input=asked, capture_output=True, timeout=180.0, env=environment, check=False)
        answer = json.loads(done.stdout) if done.returncode == 0 else {"states": {}}
    except (subprocess.TimeoutExpired, ValueError):
        return {}
    if "error" in answer:
        raise ParserFailed(answer["error"])
    states: dict[str, str] = answer["states"]
    return states


def _asked(requests: BinaryIO) -> tuple[str, Result] | None:
    line = requests.readline()
    if not line:
        return None
    head = json.loads(line)
    return head["call"], {**head["given"], **{name: requests.read(size) for name, size in head["blobs"].items()}}


def pack(head: Result, content: Result) -> bytes:
    """A request or reply: its `head`, and what is passed by name."""
    blobs = {name: value for name, value in content.items() if isinstance(value, bytes)}
    plain = {name: value for name, value in content.items() if name not in blobs}
    line = json.dumps({**head, "given": plain, "blobs": {name: len(value) for name, value in blobs.items()}})
    return b"".join([line.encode(), b"\n", *blobs.values()])


def main(cpu_seconds: int) -> None:
    for kind, most in (
        (resource.RLIMIT_CPU, cpu_seconds),
        (resource.RLIMIT_AS, MEMORY_BYTES),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(kind)[1]
        resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
    reading, out = ChangeReader(), sys.stdout.buffer
    while (asked := _asked(sys.stdin.buffer)) is not None:
        call: Callable[..., Result] = getattr(reading, asked[0])
        try:
            reply = pack({}, call(**asked[1]))
        except TreeError as error:
            reply = pack({"refused": str(error)[:1000]}, {})
        except ParserFailed as error:
            reply = pack({"broken": str(error)[:1000]}, {})
        out.write(reply)
        out.flush()
