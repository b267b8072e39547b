"""Real Ray nodes on this machine, each as on a machine of its own: a network namespace, a home, and what it may use.

The head, which plays nothing, is in the network of this machine, as are drivers. Whatever a node starts is told by its
home, so that it ends by process ids, and so can be cut off, killed or started again alone.
"""

import os
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from rollout_sandbox.confined.limits import host_hierarchies

from examples.cluster.nodes import AT_ONCE, RAY, SLOW, STARTED, TRIES
from tests.support.user_home import UserHome, closed_port
from tests.support.waiting import wait_until

_MEMORY = "/sys/fs/cgroup/memory"
_VARIABLES = {
    **AT_ONCE,
    "RAY_memory_monitor_refresh_ms": "0",
    # No worker before one is asked for: each costs seconds of imports.
    "RAY_enable_worker_prestart": "0",
    "RAY_prestart_worker_first_driver": "0",
    # A node that is cut off is missed after seconds; Ray's own half minute is as good, and longer.
    "RAY_health_check_initial_delay_ms": "2000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "5000",
    "RAY_health_check_failure_threshold": "3",
}


def run(*argv: str) -> None:
    """Run a short program of root's.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    subprocess.run(argv, check=True, capture_output=True)


def _removed(group: Path) -> bool:
    try:
        for below in [*(each for each in group.iterdir() if each.is_dir()), group]:
            below.rmdir()
    except OSError:
        return False
    return True


class RayNode:
    """One node. `enter` is the command before those that shall run in its network; a node that plays has a resource of
    Ray's, `name`, which nobody else has."""

    def __init__(self, root: Path, address: str, arguments: Sequence[str], variables: Mapping[str, str]) -> None:
        self.home = UserHome(root)
        self.name, self.address = root.name, address
        self.enter: list[str] = []
        self.device = ""
        self.group: Path | None = None
        self._arguments, self.variables = arguments, dict(variables)
        self._sockets = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))  # paths of sockets are short
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        return (self.home.root / "ray.log").read_text(errors="replace")

    def begin(self) -> None:
        """Start it, without waiting."""
        argv = [*self.enter, str(RAY), "start", "--block", f"--node-ip-address={self.address}", "--disable-usage-stats"]
        argv += ["--object-store-memory=80000000", f"--temp-dir={self._sockets}", "--include-log-monitor=false"]
        variables = self.home.environment({**_VARIABLES, **self.variables})
        with (self.home.root / "ray.log").open("wb") as log:
            self._process = subprocess.Popen(
                [*argv, *self._arguments], stdout=log, stderr=log, env=variables, cwd=self.home.work
            )

    def ready(self) -> None:
        """Wait until it is part of the cluster; a busy machine does not start it in the time that Ray gives itself."""
        for _ in range(TRIES):
            process = self._process
            assert process is not None
            wait_until(lambda: STARTED in self.log or process.poll() is not None)  # noqa: B023 - at once
            if process.poll() is None:
                return
            if SLOW not in self.log:
                break
            self.end()
            self.begin()
        raise AssertionError(self.log)

    def pids(self, *words: str) -> list[int]:
        """What runs on this node with one of these words in its command."""
        return [pid for pid, command in self.home.processes().items() if any(word in command for word in words)]

    @property
    def workers(self) -> list[int]:
        return self.pids("ray::RayWorker")

    @property
    def playing(self) -> list[int]:
        """What its workers have started: agents, and what holds their sandboxes."""
        return self.pids("bwrap", "opencode", "rollout_sandbox")

    @property
    def listening(self) -> list[int]:
        """The TCP ports on which Ray's programs of this node listen."""
        sockets, ports = set[str](), set[int]()
        pids = self.home.processes()
        for pid in pids:
            with suppress(OSError):
                sockets.update(os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir())
        for pid in pids:
            for table in ("tcp", "tcp6"):
                with suppress(OSError):
                    for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
                        words = line.split()
                        if words[3] == "0A" and f"socket:[{words[9]}]" in sockets:
                            ports.add(int(words[1].rpartition(":")[2], 16))
        return sorted(ports)

    @property
    def worker_logs(self) -> list[str]:
        """What its workers have written since it began."""
        return [log.read_text(errors="replace") for log in self._sockets.glob("session_latest/logs/worker-*")]

    def kill(self, *words: str) -> None:
        """SIGKILL for what has one of these words in its command; of Ray's own programs, say."""
        for pid in self.pids(*words):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def cut_off(self) -> None:
        """Its network is gone, and whoever talked to it is told nothing."""
        run("ip", "link", "set", self.device, "down")

    def joined_again(self) -> None:
        """Its network is there again."""
        run("ip", "link", "set", self.device, "up")

    def end(self) -> None:
        """End what is left of it."""
        if self._process is not None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(20)
            wait_until(self._killed)
            self._process.wait()

    def _killed(self) -> bool:
        self.kill("")
        return not self.home.processes()

    def restart(self) -> None:
        """Begin anew after it has ended or been killed."""
        self.end()
        self.begin()
        self.ready()

    def remove(self) -> None:
        self.end()
        shutil.rmtree(self._sockets, ignore_errors=True)


class RayNodes:
    """A head and nodes of one bridge. `variables` are those of all of Ray's programs, drivers included."""

    def __init__(self, root: Path, variables: Mapping[str, str]) -> None:
        self.root, self.variables = root, variables
        self.tag = secrets.token_hex(3)
        self.nodes: list[RayNode] = []
        number = int(self.tag, 16) % 512
        self._network = f"198.{18 + number // 256}.{number % 256}"  # for measurements of networks: nobody else's
        self.host = f"{self._network}.1"
        # The head is in the network of this machine, where others may have one.
        self.port = closed_port()
        self.address = f"{self.host}:{self.port}"
        self.head = RayNode(
            root / "head",
            self.host,
            [
                "--head",
                f"--port={self.port}",
                f"--dashboard-port={closed_port()}",
                "--num-cpus=0",
                "--no-monitor",
                "--include-dashboard=false",
            ],
            variables,
        )

    @contextmanager
    def running(self, number: int, memory: int | None) -> Iterator[None]:
        """The head, with so many nodes; all has ended afterwards, and the networks are gone."""
        with ExitStack() as stack:
            run("ip", "link", "add", f"ray{self.tag}", "type", "bridge")
            stack.callback(run, "ip", "link", "del", f"ray{self.tag}")
            run("ip", "addr", "add", f"{self.host}/24", "dev", f"ray{self.tag}")
            run("ip", "link", "set", f"ray{self.tag}", "up")
            stack.callback(self.head.remove)
            self.head.begin()
            for place in range(number):
                self.nodes.append(self._node(place, memory, stack))
            self.head.ready()
            for node in self.nodes:
                node.begin()
            for node in self.nodes:
                node.ready()
            yield

    def _node(self, place: int, memory: int | None, stack: ExitStack) -> RayNode:
        space, device = f"ray{self.tag}n{place}", f"ray{self.tag}v{place}"
        address = f"{self._network}.{place + 2}"
        run("ip", "netns", "add", space)
        stack.callback(run, "ip", "netns", "del", space)
        run("ip", "link", "add", device, "type", "veth", "peer", "name", "eth0", "netns", space)
        run("ip", "link", "set", device, "master", f"ray{self.tag}", "up")
        run("ip", "-n", space, "addr", "add", f"{address}/24", "dev", "eth0")
        run("ip", "-n", space, "link", "set", "eth0", "up")
        run("ip", "-n", space, "link", "set", "lo", "up")
        node = RayNode(
            self.root / f"node{place}",
            address,
            [f"--address={self.address}", "--num-cpus=1", f'--resources={{"node{place}": 9}}'],
            self.variables,
        )
        node.device, node.enter = device, ["nsenter", f"--net=/run/netns/{space}"]
        if memory is not None:
            group = host_hierarchies().by_controller["memory"] / space
            group.mkdir()
            stack.callback(wait_until, lambda: _removed(group))
            (group / "memory.limit_in_bytes").write_text(str(memory))
            # What looks for the machine's memory finds the group's.
            aside = node.home.temporary
            inside = f"echo $$ > {group}/cgroup.procs; mount --bind {group} {aside}; umount -l {_MEMORY}; "
            inside += f'mount --bind {aside} {_MEMORY}; umount {aside}; exec "$@"'
            node.group = group
            node.enter += ["unshare", "--mount", "sh", "-c", inside, "sh"]
        stack.callback(node.remove)
        return node

    @property
    def all(self) -> list[RayNode]:
        return [self.head, *self.nodes]

    @property
    def playing(self) -> list[int]:
        """Workers, agents and what holds sandboxes, on every node."""
        return [pid for node in self.nodes for pid in (*node.workers, *node.playing)]

    @property
    def sandboxes(self) -> list[Path]:
        return [sandbox for node in self.nodes for sandbox in node.home.sandboxes()]


@contextmanager
def ray_nodes(
    root: Path, number: int, *, memory: int | None = None, variables: Mapping[str, str] | None = None
) -> Iterator[RayNodes]:
    """A head and so many nodes, each with room for one worker, and with so much memory (bytes) if that is said.

    Skips where networks cannot be made, except in CI; and where groups of memory of the first version cannot.
    """
    if memory is not None and "memory" not in host_hierarchies().by_controller:
        pytest.skip("no memory controller of the first version here")
    try:
        run("ip", "netns", "add", probe := f"ray{secrets.token_hex(3)}")
        run("ip", "netns", "del", probe)
    except (OSError, subprocess.CalledProcessError) as error:
        if os.environ.get("CI"):
            pytest.fail(f"the tests of clusters must run in CI: {error}")
        pytest.skip(f"no network namespaces here: {error}")
    nodes = RayNodes(root, variables or {})
    with nodes.running(number, memory):
        yield nodes
