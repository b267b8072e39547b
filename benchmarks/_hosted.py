"""Rollouts of OpenCodeEnv and runs of the bare binary inside a benchmark's own process."""

import asyncio
import json
import os
import subprocess
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import verifiers.v1 as vf
from opencode_env.agents.opencode import OpenCodeHarnessConfig
from opencode_env.agents.opencode.builds import DEFAULT_VERSION, ensure_build, host_platform
from opencode_env.agents.opencode.config import PROVIDER, build_config, render_config
from opencode_env.agents.opencode.env import OpenCodeEnv, OpenCodeEnvConfig
from opencode_env.agents.opencode.state import program, segment_prompt, state_archive
from rollout_sandbox.toolbox.files import archive_arguments
from verifiers.v1 import SamplingConfig
from verifiers.v1.clients import ClientConfig, EvalClientConfig, ModelContext
from verifiers.v1.env import RunSlot
from verifiers.v1.episode import Episode
from verifiers.v1.runtimes import provision_runtime

AnyEpisode = Episode[Any, Any, Any]
PROMPT = "Write hello into /tmp/hello.txt, read it back, and say done."


@asynccontextmanager
async def hosted_env(base_url: str, runtime: vf.RuntimeConfig, rows: int) -> AsyncIterator["Hosted"]:
    """OpenCodeEnv over `rows` equal tasks, serving, in this process."""
    equal = [{"id": f"t{index}", "question": PROMPT, "answer": "done"} for index in range(rows)]
    async with hosted_rows(base_url, equal, {"agent": {"runtime": runtime.model_dump()}}) as hosted:
        yield hosted


@asynccontextmanager
async def hosted_rows(
    base_url: str, rows: Sequence[Mapping[str, Any]], fields: Mapping[str, Any], client: ClientConfig | None = None
) -> AsyncIterator["Hosted"]:
    """OpenCodeEnv over these rows of a dataset, serving, in this process; `fields` are its other `--env.*` options."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "tasks.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        taskset = {"id": "opencode-env", "dataset": str(path), **fields.get("taskset", {})}
        env = OpenCodeEnv(OpenCodeEnvConfig.model_validate({**fields, "taskset": taskset}))
        async with env.serving():
            yield Hosted(env, base_url, client)


class Hosted:
    """A serving environment; `slots` are its planned episodes, one per row.

    Args:
        env: serving already.
        base_url: of the model.
        client: another than the one of an evaluation.
    """

    def __init__(self, env: OpenCodeEnv, base_url: str, client: ClientConfig | None = None) -> None:
        self.env = env
        client = client or EvalClientConfig(base_url=base_url, api_key_var="OPENAI_API_KEY")
        self._context = ModelContext(model="scripted-model", client=client, sampling=SamplingConfig())
        self.slots: list[RunSlot] = [slot for task in env.taskset for slot in env.slots(task)]

    async def run(self, slots: Sequence[RunSlot], at_once: int) -> list[AnyEpisode]:
        """Play `slots`, `at_once` at a time.

        Raises:
            SystemExit: when one of them failed.
        """
        gate = asyncio.Semaphore(at_once)
        episodes = await asyncio.gather(*(self.env.run_slot(slot, self._context, gate) for slot in slots))
        for episode in episodes:
            if not episode.ok:
                raise SystemExit(f"a rollout failed: {episode.errors or episode.traces[0].errors}")
        return episodes

    async def play(self, row: int) -> AnyEpisode:
        """One more rollout of a row, whatever comes of it."""
        return await self.env.run_slot(RunSlot(self.slots[row].task), self._context)


def state_directory(path: Path, base_url: str, *, tuned: bool) -> None:
    """What a person would prepare by hand: the harness's files, or only a provider."""
    harness = OpenCodeHarnessConfig(id="opencode-env")
    config = build_config(harness, model="scripted-model", endpoint=base_url, secret="none", mcp_servers={})
    path.mkdir(parents=True)
    if tuned:
        archive = state_archive(render_config(config), "", {}, segment_prompt(PROMPT))
        subprocess.run(["tar", "-x", "-C", str(path)], input=archive, check=True)
        return
    plain = {key: config[key] for key in ("model", "provider")}
    plain["provider"][PROVIDER]["options"] = {"baseURL": base_url, "apiKey": "none"}
    target = path / "config" / "opencode"
    target.mkdir(parents=True)
    (target / "opencode.json").write_text(json.dumps(plain))
    (path / "prompt.txt").write_text(PROMPT)


FRESH = """
export HOME=$1 XDG_CONFIG_HOME=$1/config PATH=$3:$PATH
cd "$2" && exec opencode run --format json <"$1/prompt.txt" >"$1/out" 2>&1
"""
"""`opencode run` as it comes: STATE WORKDIR PROGRAM_DIR as for the harness's launch.sh."""


def by_hand(count: int, base_url: str, *, tuned: bool, at_once: int = 2) -> None:
    """`count` runs of the bare binary through xargs."""
    build = ensure_build(DEFAULT_VERSION, host_platform())
    with tempfile.TemporaryDirectory() as scratch:
        for index in range(count):
            state_directory(Path(scratch) / f"state{index}", base_url, tuned=tuned)
            (Path(scratch) / f"work{index}").mkdir()
        command = f'sh -c "$SCRIPT" run {scratch}/state$0 {scratch}/work$0 {build.directory} 0 - ""'
        xargs(command, count, at_once, program("launch.sh") if tuned else FRESH)


async def by_runtime(count: int, base_url: str, config: vf.RuntimeConfig, at_once: int = 2) -> None:
    """`count` boxes of verifiers' own runtime with the bare binary in each: start, unpack, run, stop."""
    gate = asyncio.Semaphore(at_once)

    async def one() -> None:
        async with gate, provision_runtime(config) as box:
            with tempfile.TemporaryDirectory() as scratch:
                state_directory(Path(scratch) / "state", box.host_url(base_url), tuned=True)
                archive = subprocess.run(["tar", "-c", "-C", f"{scratch}/state", "."], capture_output=True, check=True)
            script = 'mkdir -p /tmp/opencode && printf "%s" "$@" | base64 -d | tar -xf - -C /tmp/opencode'
            await box.run(["sh", "-c", script, "unpack", *archive_arguments(archive.stdout)], {})
            argv = ["sh", "-c", program("launch.sh"), "run", "/tmp/opencode", "/app", "/opencode", "0", "-", ""]
            result = await box.run(argv, {})
            if result.exit_code != 0:
                raise SystemExit(f"the bare binary failed in verifiers' runtime: {result.stderr[-500:]}")

    await asyncio.gather(*(one() for _ in range(count)))


def by_hand_podman(count: int, base_url: str, image: str) -> None:
    """`count` containers by hand, two at a time: run, exec of the same command, rm; on the host's network."""
    with tempfile.TemporaryDirectory() as scratch:
        state_directory(Path(scratch) / "state", base_url, tuned=True)
        command = (
            "name=bench-$$-$0; podman run -d --network host --name $name --entrypoint sleep "
            f"-v {scratch}/state:/seed:ro {image} infinity >/dev/null && "
            'podman exec $name sh -c "mkdir -p /app && cp -r /seed /tmp/opencode" && '
            'podman exec $name sh -c "$SCRIPT" run /tmp/opencode /app /opencode 0 - ""; podman rm -f $name >/dev/null'
        )
        xargs(command, count, 2, program("launch.sh"))


def xargs(command: str, count: int, at_once: int, script: str) -> None:
    """Run a shell command for the numbers 0 … count-1 (`$0`), `at_once` at a time, with `$SCRIPT` set."""
    subprocess.run(
        ["xargs", f"-P{at_once}", "-n1", "sh", "-c", command],
        input="\n".join(map(str, range(count))),
        text=True,
        check=True,
        env={**os.environ, "SCRIPT": script},
    )
