"""One container, from `start` to `remove`, with the supervisor that guards it from outside.

Whatever happens (a failed start, cancellation, an exit without an event loop), `remove` leaves neither container nor
directory behind, and returns when they are gone. Of a process that is killed, `left_behind.sh` removes them.
"""

import asyncio
import logging
import os
import select
import shutil
import socket
import subprocess
import threading
import uuid
from dataclasses import dataclass
from pathlib import Path

from verifiers.v1.errors import SandboxError
from verifiers.v1.runtimes.base import parse_gpu

from rollout_sandbox.confined import Bind
from rollout_sandbox.confined.bubblewrap import HERE
from rollout_sandbox.confined.channel import Channel
from rollout_sandbox.confined.interpreter import base_python
from rollout_sandbox.podman import engine
from rollout_sandbox.toolbox.scoring import exempt

logger = logging.getLogger("verifiers.v1.rollout_sandbox.podman")

_ATTEMPTS = 4
_SUPERVISOR_TIMEOUT_S = 60.0
"""It takes 30 ms, or as long as a machine with many rollouts too many makes it wait."""
_REMOVE_TIMEOUT_S = 60.0
_SCORES_OF_ONE = tuple(f"/proc/1/{of}{name}" for of in ("", "task/1/") for name in ("oom_adj", "oom_score_adj"))


@dataclass(frozen=True)
class ContainerOptions:
    """Sets what one container is: of the seat's configuration, and of the environment."""

    image: str
    workdir: str
    cpu: float | None = None
    """Cores; None: no limit."""
    memory: float | None = None
    """GB; None: no limit."""
    gpu: str | None = None
    restricted: bool = False
    """Whether it loses its network when the agent starts."""
    binds: tuple[Bind, ...] = ()
    """Host files and directories that it sees, read-only."""
    run_options: tuple[str, ...] = ()
    """Further options of `podman run`."""


class Container:
    """A container that is started once and removed once."""

    def __init__(self, options: ContainerOptions) -> None:
        self.options = options
        self.name = f"vf-{uuid.uuid4().hex}"
        """podman's names are global: a random one can be removed without looking whose it is."""
        self.id = ""
        self.image_env: dict[str, str] = {}
        """The variables that the image sets."""
        self._directory: Path | None = None
        self.pid = 0
        """Of its process 1, on the host."""
        self._process_one: int | None = None
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        self._created = False
        self._removing = threading.Lock()

    async def start(self) -> None:
        """Start it, with its working directory in place; the message of an error says what to change."""
        self._directory = engine.make_directory(self.name)
        if self.options.restricted:
            self.hosts.write_text("127.0.0.1 localhost\n::1 localhost ip6-localhost\n")
            self.hosts.chmod(0o644)
        self._created = True
        self.id = (await self._run())[:12]
        self.pid = int((self._directory / "pid").read_text())
        try:
            self._process_one = os.pidfd_open(self.pid)
            await self._guard()
            settings = Path(f"/proc/{self.pid}/environ").read_bytes().split(b"\0")
            pairs = (os.fsdecode(setting).partition("=") for setting in settings if setting)
            self.image_env = {name: value for name, _, value in pairs}
        except (OSError, SandboxError) as error:
            raise SandboxError(f"the container of image {self.options.image!r} cannot be used: {error}") from error

    async def _run(self) -> str:
        assert self._directory is not None
        # The container's monitor stays where it is started, and leaves a file `oom` there when memory is short. Options
        # of the user's own may name paths from where this process is.
        place = None if self.options.run_options else self._directory
        for attempt in range(1, _ATTEMPTS + 1):
            answer = await engine.call(*run_arguments(self.options, self.name, self._directory), cwd=place)
            if answer.exit_code == 0:
                return answer.stdout.strip()
            if attempt == _ATTEMPTS or not engine.is_passing(answer.stderr):
                break
            await engine.call("rm", "--force", "--volumes", "--ignore", self.name)
            await asyncio.sleep(0.2 * attempt)
        raise SandboxError(engine.start_failure(self.options.image, answer.exit_code, answer.stderr))

    async def _guard(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        lost = f"container {self.name} or its supervisor is gone: killed from outside, or stopped"
        self._channel = Channel(ours, lambda: lost)
        with theirs:
            self._supervisor = _start_supervisor(theirs.fileno(), self.pid, self.options.workdir)
        try:
            async with asyncio.timeout(_SUPERVISOR_TIMEOUT_S):
                await self._channel.ready
        except TimeoutError:
            raise SandboxError(f"its supervisor did not start within {_SUPERVISOR_TIMEOUT_S:g} s") from None

    @property
    def channel(self) -> Channel:
        if self._channel is None:
            raise SandboxError(f"the container of image {self.options.image!r} is not started")
        return self._channel

    @property
    def hosts(self) -> Path:
        """The host's side of a restricted container's /etc/hosts."""
        assert self._directory is not None
        return self._directory / "hosts"

    @property
    def lives(self) -> bool:
        if self._process_one is None:
            return False
        poller = select.poll()
        poller.register(self._process_one, select.POLLIN)
        return not poller.poll(0)

    def require_alive(self, doing: str) -> None:
        """Return if the container is still there, else raise a `SandboxError` that says what was `doing`."""
        if not self.lives:
            gone = f"is gone while {doing}: removed or killed from outside, or out of memory"
            raise exempt(SandboxError(f"container {self.name} {'is not started' if self._channel is None else gone}"))

    def close_channel(self) -> None:
        """Fail what is pending and let the supervisor end; idempotent, on the event loop."""
        if self._channel is not None:
            self._channel.close()

    def remove(self) -> None:
        """Remove it with all that is in it, and wait for that; idempotent, from any thread, without an event loop."""
        with self._removing:
            if self._created:
                self._created = not self._podman_rm()
            if self._supervisor is not None:
                self._supervisor.kill()
                self._supervisor.wait()
                self._supervisor = None
            if self._process_one is not None:
                os.close(self._process_one)
                self._process_one = None
            if self._directory is not None:
                shutil.rmtree(self._directory, ignore_errors=True)

    def _podman_rm(self) -> bool:
        argv = ["podman", "rm", "--force", "--volumes", "--ignore", self.name]
        try:
            done = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_REMOVE_TIMEOUT_S,
                check=False,
                start_new_session=True,
            )
        except FileNotFoundError:  # then nothing was started either
            return True
        except subprocess.TimeoutExpired:
            said = f"it did not end in {_REMOVE_TIMEOUT_S:g} s"
        else:
            if done.returncode == 0:
                return True
            said = done.stderr.strip()[-500:]
        logger.error("container %s is left behind, remove it with `%s`: %s", self.name, " ".join(argv), said)
        return False


def _start_supervisor(control_fd: int, pid: int, workdir: str) -> "subprocess.Popen[bytes]":
    start = f"import sys; sys.path.insert(0, {str(HERE)!r}); from supervisor.container_supervisor import main; "
    return subprocess.Popen(
        [base_python(), "-I", "-S", "-c", f"{start}main({control_fd}, {pid}, {workdir!r})"],
        env={},
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=[control_fd],
        start_new_session=True,
    )


def run_arguments(options: ContainerOptions, name: str, directory: Path) -> list[str]:
    """Arguments that start a container which waits for commands; `directory` is to hold its `pid`, and its `hosts`."""
    # SIGKILL, because a `sleep` that is process 1 ignores everything else and a removal would wait ten seconds for it.
    arguments = ["run", "--detach", "--name", name, "--network", "bridge", "--http-proxy=false"]
    arguments += ["--stop-signal", "KILL", "--stop-timeout", "0", "--pidfile", str(directory / "pid")]
    # So that root inside cannot choose process 1, and with it the container, to be ended for want of memory.
    arguments += ["--security-opt", f"mask={':'.join(_SCORES_OF_ONE)}"]
    if options.restricted:
        # podman would write its own file anew when the network goes.
        arguments += ["--no-hosts", "--volume", f"{directory / 'hosts'}:/etc/hosts:ro"]
    if options.cpu is not None:
        arguments += ["--cpus", f"{options.cpu:g}"]
    if options.memory is not None:
        arguments += ["--memory", f"{options.memory:g}g"]
    for index in range(parse_gpu(options.gpu)[1]):
        arguments += ["--device", f"nvidia.com/gpu={index}"]
    for bind in options.binds:
        arguments += ["--mount", _mount(bind)]
    return [*arguments, *options.run_options, "--entrypoint", "sleep", options.image, "infinity"]


def _mount(bind: Bind) -> str:
    """The value of `--mount`, which is one line of CSV."""
    fields = ("type=bind", f"source={bind.source}", f"target={bind.target}", "readonly", "relabel=shared")
    return ",".join('"' + field.replace('"', '""') + '"' if set(field) & set(',"') else field for field in fields)
