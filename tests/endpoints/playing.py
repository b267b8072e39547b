"""Plays rows against the bare binary and against ours, both against one endpoint."""

import asyncio
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from opencode_env.agents.opencode.builds import DEFAULT_VERSION, ensure_build, host_platform

from tests.endpoints.behaviours import Row
from tests.endpoints.server import Endpoint
from tests.support.rows import write_rows
from tests.support.user_home import UserHome

AT_ONCE = 4
PROMPT = "behaviour {}: write made to made.txt"
SECONDS = 100.0
"""Of the bare binary: it sends a call that fails for good six times in 70 to 80 s, and some calls without end."""
_QUIET = {
    "BUN_JSC_numberOfGCMarkers": "1",
    "BUN_JSC_useConcurrentGC": "0",
    "BUN_JSC_useDFGJIT": "0",
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
    "OPENCODE_DISABLE_FFF": "1",
    "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
    "OPENCODE_EXPERIMENTAL_DISABLE_FILEWATCHER": "1",
}


@dataclass(frozen=True)
class Played:
    """What came of a row."""

    finished: bool
    """Whether the agent made the file, said its last word, and ended well."""
    says: str
    """Why not, in its own words."""
    requests: int
    scored: bool = False
    """Whether it counts as the policy's."""


async def play_bare(endpoint: Endpoint, rows: Sequence[Row], root: Path) -> dict[str, Played]:
    """`opencode run` by hand, with a provider and no other setting."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(row: Row) -> tuple[str, Played]:
        async with gate:
            return row.name, await _bare(endpoint, row, root / row.name)

    return dict(await asyncio.gather(*map(one, rows)))


async def _bare(endpoint: Endpoint, row: Row, root: Path) -> Played:
    config, work = root / "home/.config/opencode", root / "work"
    for directory in (config, work):
        directory.mkdir(parents=True)
    (root / "models.json").write_text("{}")
    # Without them it installs a package from a registry first.
    (config / "node_modules").mkdir()
    (config / "package-lock.json").write_text('{"packages":{"":{"dependencies":{"@opencode-ai/plugin":"1"}}}}')
    options = {"baseURL": endpoint.url("bare"), "apiKey": "none"}
    provider = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {"scripted-model": {}}}
    (config / "opencode.json").write_text(json.dumps({"model": "x/scripted-model", "provider": {"x": provider}}))
    build = ensure_build(DEFAULT_VERSION, host_platform())
    path = f"{build.directory}:{os.environ['PATH']}"
    places = {"HOME": str(root / "home"), "PATH": path, "OPENCODE_MODELS_PATH": str(root / "models.json")}
    argv = ["opencode", "run", "--format", "json", "--title", "rollout", PROMPT.format(row.name)]
    process = await asyncio.create_subprocess_exec(
        str(build.directory / argv[0]), *argv[1:], cwd=work, env=places | _QUIET,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        async with asyncio.timeout(SECONDS):
            out, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return Played(False, f"no end within {SECONDS:g} s", endpoint.requests["bare", row.name])
    said = out.decode(errors="replace")
    failed = re.findall(r'"type":"error".*?"message":"((?:[^"\\]|\\.)*)"', said)
    done = process.returncode == 0 and not failed and '"reason":"stop"' in said
    finished = done and (work / "made.txt").is_file()
    return Played(finished, failed[-1] if failed else said[-200:], endpoint.requests["bare", row.name])


async def play_ours(endpoint: Endpoint, rows: Sequence[Row], home: UserHome, *arguments: str) -> dict[str, Played]:
    """One `vf-eval` of all rows."""
    tasks = [
        {"id": row.name, "question": PROMPT.format(row.name), "verify": ["test -f made.txt"], "agent_timeout": 600}
        for row in rows
    ]
    dataset = write_rows(home.root / "rows.jsonl", tasks)
    options = ["opencode-env", "--env.taskset.dataset", str(dataset), "-c", str(AT_ONCE), *arguments]
    finished = await home.run("endpoints", endpoint.url("ours"), *options)
    assert len(finished.episodes) == len(rows), finished.log[-3000:]
    found = {}
    for row in rows:
        episode = finished.episode(row.name)
        traces = [trace for trace in episode.traces if trace.agent is None or trace.agent.name == "agent"]
        errors = [*episode.errors, *(error for trace in traces for error in trace.errors)]
        trace = traces[0] if traces else None
        stop = trace.stop_condition if trace else None
        whole = trace is not None and not errors and trace.reward == 1 and stop in (None, "agent_completed")
        says = f"{errors[-1].type}: {errors[-1].message}" if errors else f"{stop}"
        found[row.name] = Played(whole, says, endpoint.requests["ours", row.name], scored=not errors)
    return found
