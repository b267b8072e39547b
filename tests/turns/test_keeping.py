"""What keeping does where it cannot be done or comes to its bounds: the rollout goes on, and no answer is lost."""

import asyncio
import errno
import gzip
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np
import pytest
from opencode_env.agents.opencode.config import OpenCodeHarnessConfig
from opencode_env.cli_agent.classification import EndedRun, _failed_before_tools, _not_started
from opencode_env.cli_agent.guard import GuardedHarness, guarded_task
from opencode_env.cli_agent.interception.callers import Caller
from opencode_env.cli_agent.interception.gateway import Call
from opencode_env.cli_agent.rollout import PlayedBefore, Rollout
from opencode_env.cli_agent.runaway import NOT_STARTED
from opencode_env.cli_agent.traces import AGENT_RECORD, mask
from opencode_env.kept_turns import keeping
from opencode_env.kept_turns.continued import Continued, SeededNode
from opencode_env.kept_turns.disk_limit import DiskUse
from opencode_env.kept_turns.keeping import (
    Kind,
    RolloutTurns,
    TurnsConfig,
    _claim,
    _kind,
    make_folder,
    request_digest,
    require_keepable,
)
from opencode_env.scripted_model import ChatRequest, Reply, ScriptPolicy
from opencode_env.taskset import OpenCodeTask, OpenCodeTaskConfig, OpenCodeTaskData
from opencode_env.user_simulation import SimulatedUsers
from opencode_runs.turns.kept import ANSWER_FILE, ENDED, FILES, LOCK, TRACE, RolloutFacts, TurnRow, kept_turns
from opencode_simulation.task import SimulationTask, SimulationTaskConfig, SimulationTaskData
from pydantic import ValidationError
from rollout_sandbox.confined import LocalSandboxConfig
from rollout_sandbox.confined.runtime import ConfinedRuntime, provision_confined
from rollout_sandbox.errors import ChildrenRun, NotKept
from rollout_sandbox.file_lock import try_lock
from rollout_sandbox.interface import KeptFiles, SandboxAbilities
from rollout_sandbox.toolbox.kept_files import FILE_BYTES, INDEX
from rollout_sandbox.toolbox.scoring import attach
from verifiers.v1 import AgentConfig, SamplingConfig
from verifiers.v1.dialects import ChatDialect
from verifiers.v1.errors import EnvError, HarnessError, TaskError
from verifiers.v1.runtimes import DockerConfig, PrimeConfig, SubprocessConfig
from verifiers.v1.serve.delta import pack
from verifiers.v1.types import AssistantMessage

from tests.support.light_opencode import light_opencode_in_place
from tests.support.replies import bash, faulty
from tests.support.rows import write_rows
from tests.turns.playing import config_of, play
from tests.turns.test_format import made, write_kept

ROW_DATA = {"id": "one", "question": "Go.", "verify": ["test -e one"]}
VERSIONS = {"agent": "1", "verifiers": "2"}
NAMES = {"task_key": "k", "task_hash": "h", "env": "opencode-env", "model": "m", "runtime": "confined", "settings": "s"}
FACTS = RolloutFacts.model_validate({**NAMES, "versions": VERSIONS, "sampling": {}})
KIND = Kind(FACTS, row={})
STATE: dict[str, Any] = {"nodes": [], "calls": [], "tools": [], "media": {}, "program_calls": []}
STATE |= {"forks": None, "leaf": None}


@pytest.fixture
def light(sandboxes: None) -> Iterator[None]:
    """The light program in the place of OpenCode, which sends a failed call once more."""
    with light_opencode_in_place(2):
        yield


def kept(folder: Path, turn: int, *, size: int = 0, trace: bytes | None = None) -> Path:
    """A kept turn of a rollout's folder."""
    place = write_kept(folder, turn, versions=dict(FACTS.versions))
    (place / FILES).mkdir()
    (place / FILES / "0").write_bytes(b"x" * size)
    (place / FILES / INDEX).write_bytes(gzip.compress(b'["/app/x", "f", 420, 0, %d, "", "0"]\n' % size))
    (place / TRACE).write_bytes(pack(STATE) if trace is None else trace)
    return place


@pytest.mark.parametrize(
    ("runtime", "confined", "said"),
    [
        (SubprocessConfig(), False, "not of unconfined"),
        (DockerConfig(), True, "not of docker"),
        (PrimeConfig(), True, "not of prime"),
        (SimpleNamespace(type="modal"), True, "not of modal"),
        (SubprocessConfig(), True, "harness 'other' cannot go on from a kept turn"),
    ],
)
def test_what_could_not_be_restored_is_refused_by_name(runtime: Any, confined: bool, said: str, tmp_path: Path) -> None:
    harness = SimpleNamespace(config=SimpleNamespace(id="other"), CONTINUES_TURNS=said.startswith("not"))
    require_keepable(TurnsConfig(), runtime, harness, confined=confined)
    with pytest.raises(EnvError, match=said):
        require_keepable(TurnsConfig(keep=tmp_path), runtime, harness, confined=confined)


async def test_what_holds_state_outside_the_sandbox_is_an_obstacle_by_name(tmp_path: Path) -> None:
    trace: Any = SimpleNamespace(info={})
    rollout = Rollout()
    attach(rollout, trace)
    turns = RolloutTurns(replace(KIND, brought_back=frozenset({"lake"})), TurnsConfig(), DiskUse(tmp_path, None))
    nothing = ("harness", "ctx", "runtime", "endpoint", "secret", "mcp_urls", "data", "tool_interception_url")
    inner: Any = SimpleNamespace(trace=trace, **dict.fromkeys(nothing))

    async def opened(*_: Any, **options: Any) -> Any:
        return inner

    harness: Any = SimpleNamespace(fenced_session=opened, agent_errors="score")
    for servers, obstacle in (
        ({}, None),
        ({"lake": "http://a"}, None),
        ({"lake": "http://a", "notes": "http://b", "calendar": "http://c"}, "calendar, notes"),
    ):
        inner.mcp_urls = servers
        await GuardedHarness.session(harness, None, trace, None, "", "", servers, None)  # type: ignore[arg-type]
        said = obstacle and f"tool servers hold what is not a file of the sandbox: {obstacle}"
        assert turns._obstacle(trace) == said
    task: Any = SimpleNamespace(data=SimpleNamespace(user_simulation={"script": ["Go on."]}))

    async def conversed(*_: Any) -> None:
        """Nothing is run."""

    user: Any = SimpleNamespace(converse=conversed)
    await SimulatedUsers.run(user, task, agents=None, box=None, rollout=rollout, run=None)  # type: ignore[arg-type]
    assert turns._obstacle(trace) == "a simulated user holds what is not a file of the sandbox"


@pytest.mark.parametrize(
    ("kind", "data", "config"),
    [
        (OpenCodeTask, OpenCodeTaskData, OpenCodeTaskConfig),
        (SimulationTask, SimulationTaskData, SimulationTaskConfig),
    ],
)
def test_a_row_that_names_a_turn_is_not_played_from_its_beginning(kind: Any, data: Any, config: Any) -> None:
    turn = TurnRow(kept_turn="/kept/t1/0003", digest="d" * 64)
    guarded_task(kind(data(idx=0, prompt="Go."), config()))
    task = kind(data(idx=0, prompt="Go.", kept_turn=turn), config())
    guarded_task(task, continued=True)
    with pytest.raises(TaskError, match="goes on in the middle of a rollout, and this environment cannot"):
        guarded_task(task)


def test_a_row_whose_folder_is_not_seen_here_is_refused_with_the_path(tmp_path: Path) -> None:
    gone = tmp_path / "elsewhere" / "0003"
    with pytest.raises(TaskError, match=f'"{gone}" is not a kept turn: No such file'):
        Continued.named(TurnRow(kept_turn=str(gone), digest="d" * 64), {}, "confined")
    place = kept(tmp_path / "t", 3)
    with pytest.raises(TaskError, match="cannot be continued: it names no session"):
        Continued.of(made(3, session_id=None, place=place), {}, "confined")
    other = {"agent": "1", "verifiers": "3"}
    for row, versions, runtime, said in (
        (TurnRow(kept_turn=str(place), digest="e" * 64), FACTS.versions, "confined", "its request is another"),
        (TurnRow(kept_turn=str(place), digest="d" * 64), {"agent": "9"}, "confined", "under agent 1 and cannot"),
        (TurnRow(kept_turn=str(place), digest="d" * 64), FACTS.versions, "podman", "cannot be put into podman"),
        (TurnRow(kept_turn=str(place), digest="d" * 64), other, "confined", "under verifiers 2 and cannot"),
    ):
        with pytest.raises(TaskError, match=said):
            Continued.named(row, dict(versions), runtime)


def test_turns_or_seconds_say_when_a_turn_is_due() -> None:
    turns, seconds = TurnsConfig.model_validate({"every": 5}), TurnsConfig(every="30s")
    assert [turns.due(*since) for since in ((4, 99.0), (5, 0.0))] == [False, True]
    assert [seconds.due(*since) for since in ((99, 29.9), (1, 30.0))] == [False, True]
    for wrong in ("0", "-1", "30m", "s", "1.5"):
        with pytest.raises(ValidationError, match="is not a number of turns"):
            TurnsConfig(every=wrong)


def test_the_oldest_turns_go_but_for_the_last_of_each_running_rollout(tmp_path: Path) -> None:
    disk = DiskUse(tmp_path, 3 * ((1 << 20) + 6 * FILE_BYTES) + (1 << 18))
    running, ended = tmp_path / "r", tmp_path / "e"
    disk.running |= {running, ended}
    for folder, turn in ((running, 1), (ended, 1), (running, 2)):
        disk.added(kept(folder, turn, size=1 << 20), restorable=turn == 1)
    assert len(list(kept_turns(tmp_path))) == 3
    disk.running.discard(ended)
    for turn in (3, 4):
        disk.added(kept(running, turn, size=1 << 20), restorable=False)
    # The first of the running one is the last that can be restored; nothing of the ended one is needed.
    assert [turn.place for turn in kept_turns(tmp_path)] == [running / f"000{turn}" for turn in (1, 3, 4)]
    assert disk.used < disk.most_bytes
    for turn in range(5, 9):  # the folder may be taken away meanwhile
        (place := kept(running, turn, size=1 << 20)).rename(tmp_path / f"away{turn}")
        disk.added(place, restorable=True)


def test_empty_files_count_as_much_as_a_file_system_has_for_them(tmp_path: Path) -> None:
    disk = DiskUse(tmp_path, 100 * FILE_BYTES)
    for turn in (1, 2):
        place = kept(tmp_path / "t", turn)
        for number in range(1, 60):
            (place / FILES / str(number)).touch()
        disk.added(place, restorable=True)
    assert [turn.turn for turn in kept_turns(tmp_path)] == [2]
    assert 60 * FILE_BYTES < disk.used < 70 * FILE_BYTES


def test_a_turn_that_is_not_whole_is_not_taken_up(tmp_path: Path) -> None:
    rollout, late = tmp_path / "t1", 2.0**33
    wrong = [b"", b"\xff", b"\x90", *(pack({**STATE, key: 7}) for key in STATE if key not in ("forks", "leaf"))]
    wrong.append(pack({**STATE, "nodes": [{"message": 3}]}))
    said = {"message": {"role": "assistant", "content": "x"}}
    wrong += [pack({**STATE, "nodes": [{**said, "parent": parent}]}) for parent in (0, 1, -1)]
    wrong.append(pack({key: value for key, value in STATE.items() if key != "leaf"}))
    for turn, trace in enumerate((None, None, *wrong), 1):
        kept(rollout, turn, trace=trace)
    lock = try_lock(rollout / LOCK)
    assert _claim(tmp_path, KIND, late) is None  # somebody plays it
    assert lock is not None
    os.close(lock)
    found = _claim(tmp_path, KIND, late)
    assert found is not None
    assert (found[0].turn.turn, found[0].resumed, found[1]) == (2, True, rollout)
    assert _claim(tmp_path, KIND, late) is None
    os.close(found[2])
    for turn in (1, 2):
        (rollout / f"{turn:04d}" / TRACE).write_bytes(b"\xff")
    for _ in range(2):  # and its lock is given back
        assert _claim(tmp_path, KIND, late) is None
    lock = try_lock(rollout / LOCK)
    assert lock is not None
    os.close(lock)


def test_what_has_ended_was_cancelled_here_or_is_of_other_settings_is_not_gone_on_with(tmp_path: Path) -> None:
    kept(tmp_path / "t1", 1)
    lock, ended = tmp_path / "t1" / LOCK, tmp_path / "t1" / ENDED
    lock.touch()
    os.utime(lock, (1.0, 1.0))
    for facts in ({"settings": "other"}, {"task_hash": "other"}):
        assert _claim(tmp_path, replace(KIND, facts=FACTS.model_copy(update=facts)), 2.0) is None
    ended.touch()
    assert _claim(tmp_path, KIND, 2.0) is None
    ended.unlink()
    found = _claim(tmp_path, KIND, 2.0)
    assert found is not None
    os.close(found[2])
    assert _claim(tmp_path, KIND, 2.0) is None, "this process began it anew, and gave it up"


def test_nothing_of_a_masked_node_trains() -> None:
    names = ("logprobs", "advantages", "reference_logprobs", "trainer_logprobs", "entropies")
    numbers, said = {name: [0.5] for name in names}, AssistantMessage(content="x")
    others: dict[str, Any] = {"loss_weights": {"ce": [0.5]}, "routed_experts": np.ones((1, 2, 2), np.uint8)}
    node = SeededNode(message=said, sampled=True, token_ids=[1], mask=[True], **numbers, **others)
    written = node.model_dump()
    assert (node.mask, node.logprobs) == ([True], [0.5])
    mask(node)
    for masked in (written, node.model_dump()):
        assert masked["mask"] == [False]
        assert not any(len(masked[name] or ()) for name in (*numbers, "loss_weights"))
        assert masked["routed_experts"], "the tokens behind it were sampled in that state of the model"


def full(*_: Any, **options: Any) -> NoReturn:
    """What a full disk says."""
    raise OSError(errno.ENOSPC, "No space left on device")


class Box(SandboxAbilities):
    """A sandbox without files; notes what it was told was kept before."""

    can_keep_files = True

    def __init__(self) -> None:
        self.before: list[Path | None] = []
        self.full = False

    async def keep_files(self, folder: Path, before: Path | None, most: int) -> tuple[KeptFiles, float]:
        self.before.append(before)
        if self.full:
            full()
        return KeptFiles(), 0.0

    async def put_files(self, folder: Path) -> None:
        """Nothing is continued here."""


async def test_a_turn_is_kept_whole_of_the_agents_own_calls_alone_and_only_where_nothing_else_is_asked(
    tmp_path: Path,
) -> None:
    box, turns = Box(), RolloutTurns(KIND, TurnsConfig(), DiskUse(tmp_path, None))
    trace: Any = SimpleNamespace(nodes=[], calls=[], tools=[], mm_token_type_id_map={}, info={}, id="t1", num_turns=0)
    trace.timing, trace.record_metrics = SimpleNamespace(agent=SimpleNamespace(start=0.0)), trace.info.update
    gateway: Any = SimpleNamespace(
        fixed_prompts=SimpleNamespace(first="ses_1"), echoes=SimpleNamespace(side_agents=()), histories={}, side=None
    )
    gateway.main, gateway.open, gateway.summaries = SimpleNamespace(trace=trace), 1, SimpleNamespace(used={})
    await turns.provide(box)  # type: ignore[arg-type]
    turns.begun(trace, None)

    async def asked(turn: int, *, own: bool = True, text: str = "Go.") -> bool:
        """Whether the answer of such a call is noted."""
        trace.num_turns = turn - 1
        caller, body = Caller(own=own), {"messages": [text]}
        call = Call(None, ChatDialect(), gateway, caller, "ses_1", body=body)  # type: ignore[arg-type]
        turns.keep_turn(call)
        call.events = [text.encode()]
        for awaited in call.before_answer:
            await awaited()
        note = tmp_path / "t1" / f"{turn:04d}" / ANSWER_FILE
        noted = note.exists()
        note.unlink(missing_ok=True)
        return noted

    try:
        assert not await asked(1, own=False)
        place = tmp_path / "t1" / "0001"
        assert [await asked(1), await asked(1), await asked(1, text="Stop.")] == [True, True, False]
        box.full = True
        await asked(2)
        box.full = False
        await asked(3)
        gateway.open = 2
        await asked(4)
    finally:
        await turns.agent_ended()
        turns.close()
    assert box.before == [None, place / FILES, None]
    beside = "another call of the rollout was under way"
    assert [(turn.turn, turn.unrestorable) for turn in kept_turns(tmp_path)] == [(1, None), (3, None), (4, beside)]


def test_requests_are_the_same_by_what_they_ask_and_not_by_their_model() -> None:
    asked = {"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function"}]}
    same, *others = ({**asked, name: "other"} for name in asked)
    assert request_digest(same) == request_digest(asked)
    assert request_digest(asked) not in map(request_digest, others)


def test_a_turn_whose_files_a_power_cut_has_taken_is_passed_over_and_refused_by_name(tmp_path: Path) -> None:
    places = [kept(tmp_path / "t1", turn, size=10) for turn in (1, 2, 3, 4)]
    (places[2] / FILES / "0").write_bytes(b"")
    (places[3] / FILES / INDEX).unlink()
    (tmp_path / "t1" / LOCK).touch()
    found = _claim(tmp_path, KIND, 2.0**33)
    assert found is not None
    assert found[0].turn.turn == 2
    os.close(found[2])
    for place in places[2:]:
        with pytest.raises(TaskError, match=f"{place} cannot be continued: kept files are not whole"):
            Continued.named(TurnRow(kept_turn=str(place), digest="d" * 64), dict(FACTS.versions), "confined")


def test_a_folder_into_which_others_may_write_is_refused_with_what_to_do(tmp_path: Path) -> None:
    make_folder(tmp_path / "made" / "deep")
    assert (tmp_path / "made" / "deep").stat().st_mode & 0o777 == 0o700
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(EnvError, match=r"--env.turns.keep: .* name a folder that can be made"):
            make_folder(folder)
    tmp_path.chmod(0o770)
    with pytest.raises(EnvError, match=r"others may write into .* \(chmod go-w\)"):
        make_folder(tmp_path)
    tmp_path.chmod(0o755)
    make_folder(tmp_path)


def test_what_fails_before_the_first_answer_of_a_continued_rollout_is_not_its_policys_doing(tmp_path: Path) -> None:
    """Its own first answer is meant: those before the kept turn were another sandbox's."""
    said: Any = SimpleNamespace(sampled=True, message=SimpleNamespace(tool_calls=["call"]))
    trace: Any = SimpleNamespace(nodes=[said], info={AGENT_RECORD: {NOT_STARTED: True}}, tools=[])
    rollout = Rollout()
    attach(rollout, trace)
    rollout.before = PlayedBefore(tmp_path, "ses_1", 0.0, nodes=1, calls=0, resumed=False)
    run = EndedRun(rollout, trace, problem=HarnessError("it has ended"))
    assert "time was over before its first model call" in str(_not_started(run))
    assert _failed_before_tools(run) is run.problem
    trace.nodes.append(said)
    assert _not_started(run) is None
    assert _failed_before_tools(run) is None


def test_the_end_of_a_rollout_is_noted_on_a_full_disk_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept(tmp_path / "t1", 1)
    lock = try_lock(tmp_path / "t1" / LOCK)
    turns = RolloutTurns(KIND, TurnsConfig(), DiskUse(tmp_path, None), claimed=(tmp_path / "t1", lock))

    monkeypatch.setattr(Path, "touch", full)
    turns.ended()
    turns.close()
    assert not (tmp_path / "t1" / ENDED).exists()
    assert _claim(tmp_path, KIND, 2.0**33) is None


AGENT = "sh -c '{ : >/app/began; until [ -e /app/go ]; do :; done; } & wait; exec sleep 600'; true"
"""A program in the place of the agent's, with a child that ends when a file is there."""


class Told(SandboxAbilities):
    """A sandbox in which the child ends when it was asked so often."""

    can_keep_files = True

    def __init__(self, box: ConfinedRuntime, asked: int) -> None:
        self._box = box
        self._left = asked

    async def keep_files(self, folder: Path, before: Path | None, most: int) -> tuple[KeptFiles, float]:
        try:
            return await self._box.keep_files(folder, before, most)
        except ChildrenRun:
            self._left -= 1
            if self._left == 0:
                await self._box.run(["touch", "/app/go"], {})
            raise

    async def put_files(self, folder: Path) -> None:
        """Nothing is continued here."""


@pytest.mark.usefixtures("sandboxes")
async def test_a_turn_waits_for_children_of_the_agents_program_that_end_and_names_those_that_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = RolloutTurns(KIND, TurnsConfig(), DiskUse(tmp_path, None))
    async with provision_confined(LocalSandboxConfig()) as box:
        await box.run_background(["sh", "-c", AGENT], {}, "/tmp/log")
        while (await box.run(["test", "-e", "/app/began"], {})).exit_code != 0:
            pass
        monkeypatch.setattr(keeping, "CHILDREN_SECONDS", 0.2)
        manifest = await turns._with_files(made(1), Told(box, 0), tmp_path / "never")
        assert manifest.unrestorable == "processes ran beside the agent's program: sh"
        assert not (tmp_path / "never").exists()
        monkeypatch.setattr(keeping, "CHILDREN_SECONDS", 600.0)
        manifest = await turns._with_files(made(1), Told(box, 3), tmp_path / "ended")
        assert manifest.unrestorable is None
        assert (tmp_path / "ended" / INDEX).exists()
        # One that is not a child of the agent's program is waited for by nobody.
        await box.run(["sh", "-c", "(setsid tail -f /dev/null >/dev/null 2>&1 &); until pgrep tail; do :; done"], {})
        manifest = await turns._with_files(made(1), Told(box, 0), tmp_path / "beside")
        assert manifest.unrestorable == "processes ran beside the agent's program: tail"


async def test_no_copy_takes_so_long_that_the_agents_program_gives_up_its_call(tmp_path: Path) -> None:
    """Who gives up has broken its own run, which is scored: a slow disk would be a reward of 0."""

    async def never(*_: Any) -> Any:
        await asyncio.Event().wait()

    box: Any = SimpleNamespace(keep_files=never)
    turns = RolloutTurns(replace(KIND, patience=0.2), TurnsConfig(), DiskUse(tmp_path, None))
    with pytest.raises(NotKept, match=r"not copied within 0\.1 s"):
        await turns._with_files(made(1), box, tmp_path / "files")
    harness = SimpleNamespace(config=OpenCodeHarnessConfig(provider_timeout=7.0))
    agent: Any = SimpleNamespace(harness=harness, ctx=SimpleNamespace(model="m", sampling=SamplingConfig()))
    task: Any = SimpleNamespace(key="k", hash="h", data=OpenCodeTaskData(prompt="Go."))
    kind = _kind(task, agent, "opencode-env", "confined", ())
    assert kind.patience == 7.0
    sub = AgentConfig(max_turns=3)
    assert _kind(task, agent, "opencode-env", "confined", (sub,)).facts.settings != kind.facts.settings


@pytest.mark.opencode
async def test_a_failed_send_is_sent_again_and_its_answer_noted_and_a_refused_call_is_not_kept(
    light: None, tmp_path: Path
) -> None:
    script, asked = ScriptPolicy.of(bash("echo 1 >one"), bash("true"), Reply(text="Done.")), list[int]()

    def policy(request: ChatRequest) -> Reply:
        asked.append(request.turn)
        return faulty("status", status=503) if len(asked) == 1 else script(request)

    rows = write_rows(tmp_path / "rows.jsonl", [ROW_DATA])
    played = await play(config_of(rows, tmp_path / "kept", agent={"max_turns": 2}), policy)
    (trace,) = played.traces
    assert (trace.reward, trace.stop_condition, trace.num_turns) == (1.0, "max_turns", 2)
    found = list(kept_turns(tmp_path / "kept"))
    assert [(turn.turn, (turn.place / "answer.msgpack").exists()) for turn in found] == [(1, True), (2, True)]
    assert len(asked) == 3
    assert "not_kept" not in trace.info["turns"]


@pytest.mark.opencode
@pytest.mark.parametrize("how", ["full disk", "slow disk", "no folder", "no state"])
async def test_what_cannot_be_kept_costs_neither_answer_nor_reward(
    how: str, light: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: Any) -> Any:
        if how == "slow disk":
            await asyncio.sleep(600)
        full()

    if how in ("full disk", "slow disk"):
        monkeypatch.setattr(ConfinedRuntime, "keep_files", fail)
        monkeypatch.setattr(keeping, "MOST_SECONDS", 0.1)
    else:
        monkeypatch.setattr(keeping, "try_lock" if how == "no folder" else "rollout_state", full)
    rows = write_rows(tmp_path / "rows.jsonl", [ROW_DATA])
    script = ScriptPolicy.of(bash("echo 1 >one"), Reply(text="Done."))
    (trace,) = (await play(config_of(rows, tmp_path / "kept"), script)).traces
    assert (trace.ok, trace.reward, trace.num_turns) == (True, 1.0, 2)
    assert ("copied within 0.1 s" if how == "slow disk" else "No space left") in trace.info["turns"]["not_kept"]
    assert list(kept_turns(tmp_path / "kept")) == []
    assert [path.name for path in (tmp_path / "kept" / trace.id).iterdir() if path.name.startswith(".")] == []
