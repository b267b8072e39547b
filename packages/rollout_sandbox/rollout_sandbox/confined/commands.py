"""Commands of one sandbox: started, collected, and ended with all that they started."""

import asyncio
import contextlib
import copy
import os
import sys
from collections.abc import AsyncIterator, Iterable, Mapping

from verifiers.v1.errors import SandboxError
from verifiers.v1.runtimes import ProgramResult
from verifiers.v1.utils.aio import run_shielded

from rollout_sandbox.confined.channel import Channel
from rollout_sandbox.confined.directory import HOME
from rollout_sandbox.confined.process import ConfinedProcess, PipeReader, pipes
from rollout_sandbox.confined.sandbox import Sandbox
from rollout_sandbox.toolbox.kept_files import NotKept

_END_TIMEOUT_S = 60.0
_SYSTEM_PATH = ("/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin")


def _base_environment(allow: Iterable[str]) -> dict[str, str]:
    """What every program sees before the task and the call add to it: nothing of the host's environment but language,
    time zone and what the user names."""
    path = list(_SYSTEM_PATH)
    if not any(os.access(f"{directory}/python3", os.X_OK) for directory in path):
        path.append(f"{sys.base_prefix}/bin")
    shell = "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"
    own = {"PATH": ":".join(path), "HOME": HOME, "USER": "agent", "LOGNAME": "agent", "SHELL": shell, "LANG": "C.UTF-8"}
    let_in = {"LANG", "LANGUAGE", "TZ", *allow}
    return own | {name: value for name, value in os.environ.items() if name in let_in or name.startswith("LC_")}


class Commands:
    """Starts programs through process 1; `env_allow` names host variables that they see."""

    def __init__(self, sandbox: Sandbox, env_allow: list[str]) -> None:
        self._sandbox = sandbox
        self._environment = _base_environment(env_allow)
        self._processes: list[ConfinedProcess] = []
        self._holding = asyncio.Lock()
        self._alone = False
        """Whether these are the commands of whoever holds the sandbox's other processes still."""

    def _request(self, argv: list[str], env: Mapping[str, str], log: str = "") -> list[str]:
        settings = [f"{name}={value}" for name, value in {**self._environment, **env}.items()]
        return ["spawn", "alone" if self._alone else "", log, str(len(argv)), *argv, *settings]

    async def _turn(self) -> Channel:
        """The channel to process 1, once nobody else holds this sandbox's processes."""
        channel = self._sandbox.channel
        if not self._alone:
            async with self._holding:
                pass
        return channel

    @contextlib.asynccontextmanager
    async def others_held(self, *, spare: bool = False) -> AsyncIterator["Commands"]:
        """Hold still whatever runs; only commands that are started through what this yields run meanwhile.

        Where that cannot be had for sure although the kernel could do it, what runs is ended instead, if not `spare`.

        Raises:
            NotKept: it could not be had, and what runs was spared.
        """
        async with self._holding:
            channel, group = self._sandbox.channel, self._sandbox.allowance.group
            try:
                running = int((await channel.request("hold")).text)
                if running and group is not None and group.can_freeze and not await asyncio.to_thread(group.freeze):
                    if spare:
                        raise NotKept("what ran in the sandbox could not be held still")
                    group.thaw()
                    await self.end("end_everything")
                alone = copy.copy(self)
                alone._alone = True
                yield alone
            finally:
                await run_shielded(self._release())

    async def _release(self) -> None:
        if self._sandbox.allowance.group is not None:
            self._sandbox.allowance.group.thaw()
        with contextlib.suppress(SandboxError):  # gone, which the next command says
            await self._sandbox.channel.request("release")

    async def run(self, argv: list[str], env: Mapping[str, str]) -> ProgramResult:
        """Run a command to its end; cancelling ends its whole tree before the cancellation goes on."""
        channel = await self._turn()
        (out, out_inside), (err, err_inside) = pipes(2)
        readers = PipeReader(out), PipeReader(err)
        try:
            command, exited = channel.submit(*self._request(argv, env), fds=(out_inside, err_inside))
            try:
                code = int((await exited).text)
            except asyncio.CancelledError:
                # Gone already, or ended as a whole just now: nothing of the command is left then.
                with contextlib.suppress(SandboxError):
                    await run_shielded(self.end("end", command))
                raise
            stdout, stderr = (reader.finish() for reader in readers)
            return ProgramResult(code, stdout, stderr)
        finally:
            for reader in readers:
                reader.close()

    async def open(self, argv: list[str], env: Mapping[str, str]) -> ConfinedProcess:
        """Start a process whose three streams stay open."""
        process = ConfinedProcess(await self._turn(), *self._request(argv, env))
        self._processes.append(process)
        return process

    async def background(self, argv: list[str], env: Mapping[str, str], log: str) -> None:
        """Start a process that nobody waits for, with its output in the file `log` inside."""
        (await self._turn()).submit(*self._request(argv, env, log))

    async def relieve(self, commands_too: bool) -> int:
        """Kill what the running commands have started, or them as well; returns how many processes that were.

        None while the others are held: they add nothing, and whoever runs alone is not to pay for what they left.
        """
        if self._holding.locked():
            return 0
        return int((await self._sandbox.channel.request("relieve", "all" if commands_too else "")).text)

    async def end(self, kind: str, *fields: str) -> None:
        """Have process 1 end processes; a sandbox that cannot is ended as a whole."""
        try:
            async with asyncio.timeout(_END_TIMEOUT_S):
                reply = await self._sandbox.channel.request(kind, *fields)
                self._sandbox.outlived |= reply.text == "outlived"
        except (SandboxError, TimeoutError) as error:
            self._sandbox.close_channel()
            await run_shielded(asyncio.to_thread(self._sandbox.kill))
            raise SandboxError(f"processes in sandbox {self._sandbox.name} could not be ended: {error}") from error

    def close(self) -> None:
        """Release the streams of live processes; idempotent, on the event loop."""
        for process in self._processes:
            process.close()
