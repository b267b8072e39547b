"""The check of one task whose sandbox is set up and scored by commands, files or answers.

Invariant: each attempt has a sandbox of its own, as a rollout has; a failure of the infrastructure is an error of the
check and no finding. What an agent can read before it has done anything (files, git objects, variables) is read with
bounds, and what was not looked at is told; of an image the system's own programs are left out.
"""

import base64
import binascii
import bz2
import gzip
import io
import lzma
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import verifiers.v1 as vf
from opencode_rubrics import AnyTrace, JudgeError
from opencode_rubrics.verify_commands import commands_without_program
from rollout_sandbox.compat import abilities_of
from rollout_sandbox.programs import program_argv
from rollout_sandbox.toolbox.checked_run import run_for
from rollout_sandbox.toolbox.command import CommandResult
from rollout_sandbox.toolbox.scoring import ScoringTimeout

from opencode_env.check_tasks.box import Box, CheckEnv
from opencode_env.check_tasks.leaks import NAMES, Secret, change_of, found_in, holds, says_answer, secret_of
from opencode_env.check_tasks.report import Finding, Kind
from opencode_env.taskset import OpenCodeTask
from opencode_env.taskset.gold.solution import Gold, GoldError, apply_gold, gold_of, near_misses

MAX_UNPACKED_BYTES = 4 * 1024 * 1024
"""Of what one file holds, unpacked."""
_SPOKEN = re.compile(rb"[\t\n\r\x20-\x7e]{6,}")
_BASE64 = re.compile(rb"[A-Za-z0-9+/\s]{16,}={0,2}\s*")
_STREAMS: tuple[tuple[bytes, Callable[[], Any]], ...] = (
    (b"\x1f\x8b", lambda: zlib.decompressobj(31)),
    (b"\x78", zlib.decompressobj),
    (b"BZh", bz2.BZ2Decompressor),
    (b"\xfd7zXZ", lzma.LZMADecompressor),
)


def plain_text(content: bytes) -> str:
    """The content if it is UTF-8 text, else nothing."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return ""
    return "" if "\0" in text else text


def text_of(content: bytes) -> str:
    """All that is readable in the content, one part a line; empty if nothing is."""
    return "\n".join(_texts(content, depth=3))


def _texts(content: bytes, depth: int) -> Iterator[str]:
    inner, plain = list(_unpacked(content)) if depth else [], plain_text(content)
    for one in inner:
        yield from _texts(one, depth - 1)
    if inner and not plain:
        return
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        yield content.decode("utf-16", errors="replace")
    elif plain:
        yield plain
    elif spoken := _SPOKEN.findall(content):
        yield "\n".join(part.decode() for part in spoken)


def _unpacked(content: bytes) -> Iterator[bytes]:
    """What is packed in the content, at most `MAX_UNPACKED_BYTES` of it."""
    for magic, make in _STREAMS:
        if content.startswith(magic):
            try:
                data = make().decompress(content, MAX_UNPACKED_BYTES)
            except (zlib.error, OSError, lzma.LZMAError, EOFError):
                continue
            yield data
            return
    try:
        if content.startswith(b"PK"):
            yield from _members(content)
        elif content[257:262] == b"ustar":
            with tarfile.open(fileobj=io.BytesIO(content)) as archive:
                yield from (file.read() for one in archive if one.isreg() and (file := archive.extractfile(one)))
        elif _BASE64.fullmatch(content):
            yield base64.b64decode(b"".join(content.split()), validate=True)
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, binascii.Error, OSError, RuntimeError, ValueError):
        return


def _members(content: bytes) -> Iterator[bytes]:
    left = MAX_UNPACKED_BYTES
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for one in archive.infolist():
            with archive.open(one) as file:
                data = file.read(left)
            left -= len(data)
            yield data
            if left <= 0:
                return


MAX_FILE_BYTES = 512 * 1024
MAX_BYTES = 128 * 1024 * 1024
"""Of all files, and of the objects of one repository."""

_SECONDS = 300.0
_KERNEL = ("/proc", "/sys", "/dev")
_SYSTEM = (
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/usr/bin",
    "/usr/sbin",
    "/usr/lib",
    "/usr/include",
    "/usr/libexec",
)
_ADDED = ("/usr/lib/python3/dist-packages",)
"""Below one of those, and yet where a task's own project may be installed."""
_GENERATED = ("__pycache__", ".pytest_cache", ".mypy_cache", "node_modules")
_ARCHIVE, _OBJECTS = "/tmp/.readable.tar", "/tmp/.objects"
_OWNER = "opencode_env.check_tasks"


@dataclass
class Readable:
    """Texts by where they are, and what was not looked at."""

    texts: dict[str, str] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)


async def readable_in(runtime: vf.Runtime) -> Readable:
    """All that can be read in the sandbox by the user of `runtime`."""
    found = Readable()
    places = ["/"] if abilities_of(runtime).trusted_python else ["/", *_ADDED]
    packed = await _packed(runtime, places, await _left_out(runtime), found)
    found.texts |= {name: text for name, text in texts_of(packed, text_of).items() if "/objects/" not in name}
    names = _names(packed)
    found.texts[NAMES] = "\n".join(map(words_of, sorted(names)))
    for directory in [name.removesuffix("/HEAD") for name in sorted(names) if name.endswith("/HEAD")]:
        if directory and f"{directory}/config" in names:
            found.texts |= await _objects(runtime, directory, found)
    listed = (await runtime.run(["env"], {})).stdout.splitlines()
    pairs = (line.partition("=") for line in listed if "=" in line)
    found.texts |= {f"the variable {name}": value for name, _, value in pairs}
    return found


async def work_in(runtime: vf.Runtime, workdir: str) -> dict[str, str]:
    """The texts below the work directory, by path; those of tools' own caches are left out."""
    texts = texts_of(await _packed(runtime, [workdir], [], Readable()))
    return {name: text for name, text in texts.items() if not {".git", *_GENERATED} & set(name.split("/"))}


async def _packed(runtime: vf.Runtime, places: list[str], left_out: list[str], found: Readable) -> bytes:
    pruned = [word for path in left_out for word in ("-path", path, "-prune", "-o")]
    argv = program_argv("pack_files.sh", _ARCHIVE, str(MAX_FILE_BYTES // 1024), *places, *pruned, owner=_OWNER)
    return await _made(runtime, argv, _ARCHIVE, "files: the sandbox lacks tar or find", found)


async def _made(runtime: vf.Runtime, argv: list[str], path: str, lacking: str, found: Readable) -> bytes:
    """The content of the file that a program makes and says the size of."""
    result = await run_for(runtime, argv, _SECONDS, f"{path} cannot be made")
    said, what = result.stdout.strip(), lacking.partition(":")[0]
    if not said.isdigit():
        found.unread.append(lacking if result.exit_code == 90 else f"{what}: {result.stderr[-200:]}")
        return b""
    if int(said) > MAX_BYTES:
        found.unread.append(f"{what}: {int(said) >> 20} MiB are too much")
        return b""
    try:
        return await runtime.read(path, MAX_BYTES)
    finally:
        await runtime.run(["rm", "-f", path], {})


async def _left_out(runtime: vf.Runtime) -> list[str]:
    """What is not the task's: the kernel's, and what this machine shows, or the system's programs of an image."""
    if abilities_of(runtime).trusted_python is None:
        return [*_KERNEL, *_SYSTEM]
    mounts = (await runtime.run(["cat", "/proc/self/mountinfo"], {})).stdout.splitlines()
    fields = [line.split() for line in mounts]
    shown = [words[4] for words in fields if len(words) > 5 and "ro" in words[5].split(",") and words[4] != "/"]
    return sorted({*_KERNEL, *shown})


def texts_of(packed: bytes, read: Callable[[bytes], str] = plain_text) -> dict[str, str]:
    """The texts that `read` finds in the files of a tar archive, by absolute path."""
    if not packed:
        return {}
    found = {}
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isreg() else None
            if content is not None and (text := read(content.read())):
                found[f"/{member.name.lstrip('./')}" if not member.name.startswith("/") else member.name] = text
    return found


def _names(packed: bytes) -> set[str]:
    if not packed:
        return set()
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        return {"/" + name.lstrip("/") for name in archive.getnames()}


def words_of(path: str) -> str:
    """A path as a sentence: /app/answer_4711.txt says that the answer is 4711."""
    return re.sub(r"(?i)(answer|solution|expected|secret)(?: is)? (?=\S)", r"\1: ", re.sub(r"[/_\s-]+", " ", path))


async def _objects(runtime: vf.Runtime, directory: str, found: Readable) -> Mapping[str, str]:
    """All objects of a repository, those too that no branch leads to."""
    argv = program_argv("dump_objects.sh", directory, _OBJECTS, owner=_OWNER)
    content = await _made(runtime, argv, _OBJECTS, f"git objects of {directory}: the sandbox lacks git", found)
    texts, start = {}, 0
    while (end := content.find(b"\n", start)) > 0:
        name, kind, size = content[start:end].decode().split()
        body = content[end + 1 : end + 1 + int(size)]
        start = end + 1 + int(size) + 1
        if kind != "tree" and int(size) <= MAX_FILE_BYTES and (text := text_of(body)):
            texts[f"git {kind} {name[:10]} of {directory}"] = text
    return texts


LEAST_AGENT_SECONDS = 10.0
"""An agent needs one to three seconds to its first model call, and has done nothing then."""


@dataclass(frozen=True)
class Limits:
    """Seconds; None: no limit."""

    agent: float | None
    """That the task gives the agent."""
    seat: float | None
    """That the seat gives it, which goes before."""
    scoring: float | None
    longest: float
    """That the task's own commands may take to score it."""
    setup: float | None
    longest_setup: float
    episode: float | None


def misfits(limits: Limits) -> Iterator[str]:
    """What does not fit, before anything has run."""
    agent = limits.agent if limits.seat is None else limits.seat
    if agent is not None and agent < LEAST_AGENT_SECONDS:
        yield f"the agent has {agent:g} s, which is over before it has done anything"
    if limits.agent is not None and limits.seat is not None and limits.seat < limits.agent:
        yield f"the task gives the agent {limits.agent:g} s, and --env.agent.timeout.rollout {limits.seat:g} s"
    if limits.scoring is not None and limits.longest > limits.scoring:
        yield f"scoring has {limits.scoring:g} s, and the task's commands may take {limits.longest:g} s"
    if limits.setup is not None and limits.longest_setup > limits.setup:
        yield f"setup has {limits.setup:g} s, and the task's commands may take {limits.longest_setup:g} s"
    parts = (agent or 0) + (limits.scoring or limits.longest)
    if limits.episode is not None and limits.episode < parts:
        yield f"an episode has {limits.episode:g} s, and agent and scoring may take {parts:g} s"


def tight(seconds: float, limit: float | None, what: str) -> Iterator[str]:
    """That a sound solution needed nearly all of a limit."""
    if limit is not None and seconds > 0.8 * limit:
        yield f"{what} took {seconds:.1f} s of its {limit:g} s with the gold solution"


_CLOSE = 1e-6
_LEAST_HIDDEN = 60
"""Characters of a command of one line: a shorter one runs tests and holds none."""
_INFRASTRUCTURE = (vf.SandboxError, vf.ProviderError, vf.TunnelError, vf.InterceptionError, JudgeError)


class TaskCheck:
    """One task's attempts, and what they show."""

    def __init__(
        self, env: CheckEnv, task: OpenCodeTask, repeats: int, column: str | None, folder: Path | None
    ) -> None:
        self._env, self._task, self._repeats = env, task, repeats
        rubric = task.rubric_config
        self._answer_path: str | None = getattr(rubric, "answer_path", None)
        self._column, self._folder, self._type = column, folder, rubric.type
        self.findings: list[Finding] = []
        self._lacking: list[str] = []
        self.untouched: list[float] = []
        self.gold: list[float] = []

    def _note(self, kind: Kind, told: str) -> None:
        finding = Finding(kind=kind, told=told)
        if finding not in self.findings:
            self.findings.append(finding)

    async def run(self) -> None:
        """Do all of it.

        Raises:
            RolloutError: the infrastructure failed.
        """
        for told in misfits(self._limits()):
            self._note("limits", told)
        try:
            gold = gold_of(self._task.data, self._type, self._answer_path, self._column, self._folder)
        except GoldError as error:
            self._note("no-gold", str(error))
            return
        try:
            readable = await self._untouched()
            changes = await self._golden(gold) if gold is not None else []
            if gold is None:
                self._note("no-gold", "there is no gold solution to try: name its column with --gold")
                for told in self._lacking:
                    self._note("broken", told)
            elif not self.findings:
                await self._missed(gold)
            self._search(readable, gold, changes)
        except _INFRASTRUCTURE:
            raise
        except ScoringTimeout as error:
            self._note("limits", str(error))
        except vf.RolloutError as error:
            self._note("broken", f"{type(error).__name__}: {str(error)[-600:]}")

    def _limits(self) -> Limits:
        data, seat, config = self._task.data, self._env.config.agent.timeout, self._task.config
        return Limits(
            agent=data.timeout.agent,
            seat=seat.rollout,
            scoring=seat.scoring if seat.scoring is not None else data.timeout.scoring,
            longest=self._task.rubric.longest(data),
            setup=seat.setup if seat.setup is not None else data.timeout.setup,
            longest_setup=len(data.setup) * (data.setup_timeout or config.setup_timeout),
            episode=self._env.config.timeout.episode,
        )

    async def _untouched(self) -> Readable:
        readable = Readable()
        firsts, agains = [], []
        for number in range(self._repeats):
            async with self._env.box(self._task) as box:
                if number == 0:
                    readable = await readable_in(box.agents)
                scored = await box.score()
                self._lacking = commands_without_program(scored)
                firsts.append(scored.reward)
                agains.append((await box.score(self._reordered())).reward)
        self.untouched = [*firsts, *agains]
        if max(firsts) > _CLOSE:
            self._note("untouched-passes", f"untouched sandboxes score {_listed(firsts)}, and not 0")
        self._steady(firsts, agains, "untouched")
        return readable

    async def _golden(self, gold: Gold) -> list[Secret]:
        firsts, agains, changes = [], [], []
        for number in range(self._repeats):
            async with self._env.box(self._task, gold.directory) as box:
                before = await work_in(box.agents, box.workdir) if number == 0 else {}
                try:
                    await self._apply(gold, box)
                except GoldError as error:
                    self._note("gold-fails", str(error))
                    return []
                if number == 0:
                    changes = list(_changes(before, await work_in(box.agents, box.workdir)))
                scored = await box.score()
                self._note_time(scored)
                firsts.append(scored.reward)
                agains.append((await box.score(self._reordered())).reward)
        self.gold = [*firsts, *agains]
        if max(firsts) < 1 - _CLOSE:
            failed = [result for record in scored.info.get("verify", []) if not (result := CommandResult(**record)).ok]
            why = "".join(f"; {result.command[:100]!r}: {result.ending()}" for result in failed[:1])
            self._note("gold-fails", f"the gold solution scores {_listed(firsts)}, and not 1{why}")
        self._steady(firsts, agains, "with the gold solution")
        return changes

    def _note_time(self, scored: AnyTrace) -> None:
        """Look at how long the task's own commands took of their limits."""
        data = self._task.data
        limit = data.verify_timeout or getattr(self._task.rubric_config, "command_timeout", None)
        runs = [(record["duration"], limit, "a verify command") for record in scored.info.get("verify", [])]
        if data.tests is not None and "duration" in (record := scored.info.get("tests", {})):
            runs.append((record["duration"], data.tests.timeout, "the tests"))
        for seconds, most, what in runs:
            for told in tight(seconds, most, what):
                self._note("limits", told)

    def _steady(self, firsts: list[float], agains: list[float], what: str) -> None:
        if len(set(firsts)) > 1 or len(set(agains)) > 1:
            self._note("flaky", f"{what}, equal sandboxes score {_listed(firsts)}, and once more {_listed(agains)}")
        elif firsts[0] != agains[0]:
            order = "in another order" if len(self._task.data.verify) > 1 else "a second time"
            self._note("order-dependent", f"{what}, a sandbox scores {firsts[0]:g}, and scored {order} {agains[0]:g}")

    async def _missed(self, gold: Gold) -> None:
        for name, miss in near_misses(gold):
            async with self._env.box(self._task) as box:
                try:
                    await self._apply(miss, box)
                except GoldError:
                    continue  # what cannot be applied is not a solution
                reward = (await box.score()).reward
            if reward > (_CLOSE if miss.answer is not None else 1 - _CLOSE):
                self._note("near-miss-passes", f"{name} scores {reward:g}")

    async def _apply(self, gold: Gold, box: Box) -> None:
        await apply_gold(gold, box.agents, box.trace, box.workdir, self._answer_path, box.agent_seconds)

    def _reordered(self) -> OpenCodeTask:
        """The task with its verify commands the other way round."""
        return self._task.with_data(verify=list(reversed(self._task.data.verify)))

    def _search(self, readable: Readable, gold: Gold | None, changes: list[Secret]) -> None:
        prompt = self._task.data.prompt_text
        golden = [secret_of(name, text) for name, text in (gold.texts if gold else {}).items()]
        secrets = [*changes, *self._hidden(), *golden]
        answer = self._task.data.answer
        for told in found_in(readable.texts, secrets, answer, prompt):
            self._note("leak", told)
        for secret in secrets:
            if holds(prompt, secret):
                self._note("leak", f"{secret.name} is in the prompt")
        if answer is not None and says_answer(prompt, answer):
            self._note("leak", "the answer is in the prompt")
        for told in readable.unread:
            self._note("not-looked-at", told)

    def _hidden(self) -> Iterator[Secret]:
        """The tests that the agent must not see."""
        for number, command in enumerate(self._task.data.verify, 1):
            if len(command) >= _LEAST_HIDDEN or len(command.splitlines()) > 2:
                yield secret_of(f"verify command {number}", command)
        if (code := self._task.data.code_tests) is not None:
            spoken = "\n".join(f"{test.input}\n{test.output}" for test in code.tests)
            yield secret_of("what its tests expect", spoken)
        if (problem := self._task.data.swe) is not None and problem.test_patch:
            yield secret_of("the patch of tests", problem.test_patch)
        tests = self._task.data.tests
        if tests is not None and tests.archive is not None:
            for name, text in texts_of(gzip.decompress(base64.b64decode(tests.archive))).items():
                yield secret_of(f"the hidden test {name.lstrip('/')}", text, together=True)


def _changes(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[Secret]:
    gone = {text for name, text in before.items() if after.get(name) != text}
    for name, text in after.items():
        if before.get(name) != text and text not in gone:
            yield change_of(f"the gold solution's {name}", before.get(name), text)


def _listed(rewards: list[float]) -> str:
    return ", ".join(f"{reward:g}" for reward in rewards)
