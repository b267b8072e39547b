"""One software engineering task as every dataset's rows become it (the field `swe` of a task's data), and what
makes its work directory ready.

Invariant: when the agent starts, no object of the repository is there that the checked-out commit does not lead to, and
no path that the row hides. In the sandbox that judges, hidden paths stay.
"""

import base64
import hashlib
import re
import shlex
from typing import Self, cast

import verifiers.v1 as vf
from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator
from rollout_sandbox.toolbox.checked_run import run_checked
from rollout_sandbox.toolbox.files import unpack_archive

from opencode_rubrics.swe.programs import argv_of
from opencode_rubrics.swe.split import RowPaths
from opencode_rubrics.swe.suite_verdict import Suite

_DEFAULT_SECONDS = 1800.0
_PLACING_SECONDS = 600.0
_DIGEST = "sha256:"
"""What an archive begins with that stands on a trace by its digest alone."""
_RUNS_PYTEST = re.compile(r"\bpy\.?test\b")
_FILE_OF_PATCH = re.compile(r"^(?:\+\+\+|---) (?:[ab]/)?([^\t\n]+)|^rename (?:from|to) (.+)$", re.MULTILINE)


class SweProblem(BaseModel):
    """Tells how the sandbox of a task is made, what its suite is, and which tests decide."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    command: str = Field(min_length=1)
    """The shell command, or the whole script, that runs the suite in the work directory."""
    parser: str = "pytest"
    """What reads its log: one of `parsers.PARSERS`, or `swebench:NAME`, `swesmith:REPO`, `multi-swe:ORG/REPO` of the
    extras."""
    fail_to_pass: list[str] = []
    """Tests that must pass."""
    pass_to_pass: list[str] = []
    """Tests that must still pass."""
    exact: dict[str, str] = {}
    """The whole result that is expected, status by test; the suite then has no other tests."""
    skipped_is_kept: bool = False
    """Whether a test of `pass_to_pass` may be skipped."""
    fail_only: bool = False
    """Whether the log tells failures alone: what it does not tell has passed, if a runner says that tests ran."""
    base_commit: str | None = None
    """The commit that the agent begins with; None is what the image or the archive has checked out."""
    archive: str | None = None
    """A gzipped tar archive of the work directory in base64, for rows without an image."""
    bundle: str | None = None
    """A git bundle in base64, for rows without an image; its `base_commit` is checked out."""
    hidden: list[str] = []
    """Paths that are removed before the agent starts, and are there when its work is judged."""
    test_patch: str = ""
    """A patch of tests, applied before the suite runs."""
    command_applies_tests: bool = False
    """Whether the command applies `test_patch` itself."""
    test_files: dict[str, str] = {}
    """Texts by path, below the work directory unless absolute, put there before the suite runs."""
    test_copies: dict[str, str] = {}
    """Paths of the untouched sandbox by where, below the work directory, they are copied before the suite runs."""
    patch_file: str | None = None
    """Where the command expects the agent's change as a patch, and applies it itself."""
    gold_patch: str = ""
    """The right change."""
    timeout: float = Field(_DEFAULT_SECONDS, gt=0, allow_inf_nan=False)
    """Seconds of the suite."""
    options: dict[str, JsonValue] = {}
    """What the parser wants to know beyond its name."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not (self.fail_to_pass or self.pass_to_pass or self.exact):
            raise ValueError("neither fail_to_pass nor pass_to_pass nor exact names a test")
        if self.archive and self.bundle:
            raise ValueError("archive and bundle exclude each other")
        return self

    @property
    def shortened(self) -> bool:
        """Whether this is a trace's, which has what is packed by its digest alone."""
        return (self.archive or self.bundle or "").startswith(_DIGEST)

    def recorded(self) -> Self:
        """The problem as it stands on a trace: what is packed, by its digest."""
        packed = {name: text for name in ("archive", "bundle") if (text := getattr(self, name)) and not self.shortened}
        return self.model_copy(
            update={name: f"{_DIGEST}{hashlib.sha256(text.encode()).hexdigest()}" for name, text in packed.items()}
        )

    @property
    def own_test_paths(self) -> set[str]:
        """Paths below the work directory whose content the row says."""
        named = paths_of_patch(self.test_patch) | paths_of_patch(self.command) | set(self.test_copies)
        return named | {path for path in self.test_files if not path.startswith("/")}

    @property
    def row_paths(self) -> RowPaths:
        """Return what tells apart what an agent changed."""
        tests = {test.partition("::")[0] for test in (*self.fail_to_pass, *self.pass_to_pass)}
        named = sorted(self.own_test_paths | tests)
        return {"named": named, "gold": sorted(paths_of_patch(self.gold_patch)), "command": self.command}

    @property
    def runs_pytest(self) -> bool:
        """Whether its command names pytest, so that our record must be there."""
        return self.parser in ("pytest", "pytest-names") or bool(_RUNS_PYTEST.search(self.command))

    @property
    def suite(self) -> Suite:
        """Return what a run is held against."""
        fields = {"command", "parser", "fail_to_pass", "pass_to_pass", "exact", "skipped_is_kept", "fail_only"}
        return cast(Suite, {**self.model_dump(include=fields), "pytest": self.runs_pytest})


def paths_of_patch(patch: str) -> set[str]:
    found = {first or second for first, second in _FILE_OF_PATCH.findall(patch)}
    return {path.strip().strip('"') for path in found} - {"/dev/null", "dev/null"}


async def place_work(runtime: vf.Runtime, problem: SweProblem, workdir: str) -> None:
    """Put the files of a row without an image into its work directory; a `TaskError` if they cannot be put there, or
    the problem is a trace's, which has their digest alone."""
    if problem.shortened:
        raise vf.TaskError("a trace has its task's files by their digest alone: take the task from its dataset")
    if problem.archive is not None:
        await unpack_archive(runtime, base64.b64decode(problem.archive), workdir, error=vf.TaskError)
    if problem.bundle is not None:
        bundle = "/tmp/.bundle"
        await runtime.write(bundle, base64.b64decode(problem.bundle))
        argv = argv_of("clone_bundle", bundle, workdir, problem.base_commit or "")
        failure = "the row's bundle cannot be cloned"
        await run_checked(runtime, argv, failure, seconds=_PLACING_SECONDS, error=vf.TaskError)


async def hide_future(runtime: vf.Runtime, problem: SweProblem, workdir: str) -> None:
    """Check out the base commit, and remove what the agent must not see; a `TaskError` if it cannot be done."""
    if problem.hidden:
        removed = shlex.join(["rm", "-rf", "--", *problem.hidden])
        await run_checked(runtime, ["sh", "-c", removed], "hidden paths cannot be removed", error=vf.TaskError)
    argv = argv_of("hide_history", workdir, problem.base_commit or "")
    failure = f"the history of {workdir!r} cannot be hidden"
    advice = "exit code 91: the image lacks git; 92: .git is not a repository"
    await run_checked(runtime, argv, failure, seconds=_PLACING_SECONDS, error=vf.TaskError, advice=advice)
