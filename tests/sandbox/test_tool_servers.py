"""A tool server beside the agent: reached and useful, but nothing that the agent can look into."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
import verifiers.v1 as vf
from opencode_env.cli_agent.interception_servers import role_interception
from rollout_sandbox.confined import Bind, ConfinedRuntime
from rollout_sandbox.conformance.subject import host_pids_of
from verifiers.v1.clients import ModelContext
from verifiers.v1.interception import InterceptionServerConfig
from verifiers.v1.session import RolloutSession

from tests.rubrics.conftest import trace_of
from tests.support.waiting import until

from .conftest import confined

pytestmark = pytest.mark.usefixtures("sandboxes")

TOOLS = Path(__file__).parent / "tools"
SECRET = "the-secret-of-the-state"
SPY = (
    "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n'; "
    "grep -rs the-secret /tmp /app /home /run /logs /dev/shm | head"
)

CALL = (
    "import sys, urllib.request as u\n"
    "print(u.urlopen(f'http://127.0.0.1:{sys.argv[1]}', sys.argv[2].encode()).read().decode(), end='')"
)


async def serve(box: ConfinedRuntime) -> int:
    """Start a tool server as verifiers does; returns the port at which the agent reaches it."""
    env = {"PYTHONPATH": "/tools", "VF_STATE_SECRET": SECRET, "MCP_PORT_FILE": "/tmp/port"}
    await box.run_background([sys.executable, "-m", "sandbox_shell_tools"], env, "tool.log")
    return int(await box.read("/tmp/port"))


def servers() -> list[int]:
    """The tool servers of this machine."""
    return host_pids_of("-m\0sandbox_shell_tools")


@asynccontextmanager
async def shell_tools() -> AsyncIterator[tuple[ConfinedRuntime, int]]:
    """A sandbox with a tool server that runs shell commands, and its port."""
    async with confined(Bind(TOOLS, "/tools"), python_env=True) as box:
        yield box, await serve(box)


async def call(box: ConfinedRuntime, port: int, command: str) -> str:
    """Have the tool server run a command, as a program of the agent's asks for it."""
    called = await box.run(["python3", "-I", "-c", CALL, str(port), command], {})
    assert called.exit_code == 0, called.stderr
    return called.stdout


async def test_the_agent_reaches_a_tool_server_and_finds_nothing_of_its_process() -> None:
    async with shell_tools() as (box, port):
        assert await call(box, port, "echo $VF_STATE_SECRET") == f"2 {SECRET}\n"
        spied = (await box.run(["sh", "-c", SPY], {})).stdout
        assert "sh" in spied
        assert SECRET not in spied
        assert "sandbox_shell_tools" not in spied
        assert servers()
        await box.write("/app/shared", b"seen")
        (server,) = box.backend._tool_servers
        assert await server.bind().read("/app/shared") == b"seen"
    await until(lambda: not servers())


async def test_a_tool_server_imports_nothing_that_the_agent_left() -> None:
    async with shell_tools() as (box, port):
        for folder in ("/app", "/tmp", "/home/agent", "/home/agent/.local/lib/python3.11/site-packages"):
            for name in ("statistics", "numbers", "sitecustomize", "usercustomize"):
                planted = "import os; open('/app/leaked', 'w').write(str(os.environ)); mean = len"
                await box.write(f"{folder}/{name}.py", planted.encode())
        assert await call(box, port, "cat /app/leaked; echo done") == "2 done\n"


async def test_what_a_tool_server_is_made_to_do_reaches_the_work_and_no_reward() -> None:
    touch = "for d in /logs/verifier /run /dev/shm; do mkdir -p $d; echo 1 >$d/reward.txt; done; "
    async with shell_tools() as (box, port):
        await box.run(["mkdir", "-p", "/logs/verifier"], {})
        await call(box, port, f"{touch}echo work >/app/work")
        assert (await box.run(["cat", "/app/work"], {})).stdout == "work\n"
        assert (await box.run(["sh", "-c", "cat /logs/verifier/* /run/reward.txt /dev/shm/*"], {})).stdout == ""


async def test_a_tool_server_that_does_not_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollout_sandbox.confined.runtime._PORT_TIMEOUT_S", 3.0)
    async with confined(python_env=True) as box:
        with pytest.raises(vf.SandboxError, match=r"did not say its port: (?s:.*)No module named"):
            await serve(box)


async def test_the_task_is_served_until_the_agent_runs() -> None:
    trace = trace_of(vf.TaskData(idx=0, prompt="the answer is 42"))
    context = ModelContext(model="m", client=vf.EvalClientConfig(base_url="http://127.0.0.1:9/v1"), sampling=None)  # type: ignore[arg-type]
    async with (
        role_interception(InterceptionServerConfig()) as server,
        server.acquire(RolloutSession(ctx=context, trace=trace)) as (base, _, secret),
        httpx.AsyncClient(headers={"Authorization": f"Bearer {secret}"}) as client,
    ):
        before = await client.get(f"{base}/task")
        trace.timing.agent.start = 1.0
        after = await client.get(f"{base}/task")
        state = await client.get(f"{base}/state")
    assert (before.status_code, "42" in before.text) == (200, True)
    assert (after.status_code, "42" in after.text) == (403, False)
    assert state.status_code == 200


async def test_nothing_is_made_on_the_host_where_an_agent_has_replaced_the_way_to_a_link(tmp_path: Path) -> None:
    """bubblewrap before 0.12 makes directories also behind such a link (CVE-2026-87766)."""
    tmp_path.chmod(0o777)
    shown = Bind(TOOLS, "/tools", links=(("/tmp/made/of/link", "sandbox_shell_tools.py"),))
    async with confined(shown, python_env=True) as box:
        planted = await box.run(["sh", "-c", f"rm -r /tmp/made && ln -s /oldroot{tmp_path} /tmp/made"], {})
        assert planted.exit_code == 0, planted
        await serve(box)
    assert list(tmp_path.iterdir()) == []
