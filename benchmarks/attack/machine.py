"""Attacks on what the sandboxes of a machine share: CPU, processes, memory, disk, descriptors on the way."""

import array
import os
import socket
import time

from benchmarks.attack.children import Tell, child_process, end_children, in_children
from benchmarks.attack.tally import Tally

BUSY = 2
"""Processes of the honest busy rollout: one per core of the smallest machine."""
PROCESSES = 600
MEMORY = 3 << 30
DISK = 2 << 30
FLOOD = 2 << 30
DESCRIPTORS = 6000
"""Of each of four processes."""

_MB = 1 << 20


def _spin() -> None:
    while True:
        sum(range(10_000))


def busy(tally: Tally) -> None:
    """No attack: as a build does, every core computes."""
    children = [child_process(_spin) for _ in range(BUSY)]
    tally.held(len(children))
    try:
        while True:
            tally.tries += 1
            time.sleep(0.1)
    finally:
        end_children(children)


def processes(tally: Tally) -> None:
    """As many processes as it gets, each in a session of its own, and then all of them compute."""
    starting, start = os.pipe()

    def compute() -> None:
        os.close(start)
        os.read(starting, 1)
        _spin()

    children: list[int] = []
    try:
        while len(children) < PROCESSES and tally.refused < 20:
            tally.tries += 1
            try:
                children.append(child_process(compute))
            except OSError as error:
                tally.refuse(error)
                time.sleep(0.01)
            tally.held(len(children))
        os.close(start)
        while True:
            time.sleep(0.1)
            tally.held(len(children))
    finally:
        end_children(children)


def memory(tally: Tally) -> None:
    """A process that fills memory, 64 MiB at a time, up to the bound; when it is killed, another one."""
    page = b"x" * 4096

    def eat() -> None:
        held: list[bytearray] = []
        while len(held) * 64 * _MB < MEMORY:
            held.append(bytearray(page * (64 * _MB // len(page))))
        while True:
            time.sleep(1)

    eater = 0
    try:
        while True:
            if not eater:
                tally.tries += 1
                eater = child_process(eat)
            tally.held(_resident(eater))
            pid, status = os.waitpid(eater, os.WNOHANG)
            if pid:
                eater = 0
                tally.refuse(f"killed by signal {os.WTERMSIG(status)}")
            time.sleep(0.02)
    finally:
        end_children([eater] if eater else [])


def _resident(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def disk(tally: Tally) -> None:
    """Files in every directory that can be written, then the same ones again."""
    block = os.urandom(_MB) * 8
    places = ["/app", "/tmp", "/dev/shm", os.path.expanduser("~"), "/run", "/logs"]
    count = DISK // (len(places) * len(block))
    while True:
        written = 0
        for number in range(count):
            for place in places:
                tally.tries += 1
                try:
                    with open(f"{place}/attack-{number}", "wb", buffering=0) as file:
                        written += file.write(block)
                except OSError as error:
                    tally.refuse(error)
                    time.sleep(0.005)
                tally.held(written)


def descriptors(tally: Tally) -> None:
    """Descriptors on the way: sent over sockets and never received, by four processes."""

    def send(tell: Tell) -> None:
        own = os.open("/dev/null", os.O_RDONLY)
        batch = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [own] * 250))]
        pairs = []
        sent = 0
        while True:
            try:
                pairs.append(socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))
                for _ in range(5):
                    if sent < DESCRIPTORS:
                        pairs[-1][0].sendmsg([b"x"], batch, socket.MSG_DONTWAIT)
                        sent += 250
                tell(sent, "")
            except OSError as error:
                tell(sent, error)
            time.sleep(0.01)

    in_children(tally, 4, send)


def logs(tally: Tally) -> None:
    """A flood of OpenCode's logs."""
    state = os.environ["OPENCODE_ENV_STATE"]
    block = (b"x" * 1000 + b"\n") * 1000
    written = 0
    while True:
        for name in ("events.jsonl", "stderr.log"):
            tally.tries += 1
            try:
                with open(f"{state}/{name}", "ab", buffering=0) as file:
                    written += file.write(block)
            except OSError as error:
                tally.refuse(error)
                time.sleep(0.005)
            tally.held(written)
        if written > FLOOD:
            time.sleep(0.1)
