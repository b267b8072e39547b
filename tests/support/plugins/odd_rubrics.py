"""Rubrics and a task of somebody else's, which read what the agent said as carelessly as they can."""

import argparse
import ast
import json
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import verifiers.v1 as vf
from opencode_rubrics import AnyTrace, Rubric, RubricConfig, cleanup

__all__ = ["OddTaskset"]


class Panic(BaseException):
    """As libraries in Rust raise where they panic."""


class Speechless(Exception):
    """Cannot be shown."""

    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


class Unequal(Exception):
    """Cannot be compared."""

    def __eq__(self, other: object) -> bool:
        raise TypeError("no comparison")

    __hash__ = None  # type: ignore[assignment]


def _raise(error: BaseException) -> Any:
    raise error


def _ends(said: str) -> float:
    if said not in "01":
        os._exit(1)
    return 1.0


def _in_a_pool(said: str) -> float:
    with ProcessPoolExecutor(1) as pool:
        return pool.submit(_ends, said).result()


def _odd(what: Callable[[str], Any]) -> Callable[[str], Any]:
    return lambda said: 1.0 if said in "01" else what(said)


READS: Mapping[str, Callable[[str], Any]] = {
    "literal": lambda said: float(ast.literal_eval(said) in (0, 1)),
    "code": lambda said: float(bool(compile(said, "x", "eval"))),
    "key": lambda said: {0: 1.0, 1: 1.0}[int(said, 16)],
    "allocates": lambda said: float(len(bytes(int(said)))) and 1.0,
    "pool": _in_a_pool,
    "panic": _odd(lambda said: _raise(Panic(said))),
    "panics": _odd(lambda said: _raise(BaseExceptionGroup("all", [Panic(said), ValueError()]))),
    "speechless": _odd(lambda said: _raise(Speechless())),
    "unequal": _odd(lambda said: _raise(Unequal())),
    "rollout error": _odd(lambda said: _raise(vf.SandboxError(said))),
    "provider": _odd(lambda said: _raise(vf.ProviderError(said))),
    "argparse": lambda said: float(len(vars(argparse.ArgumentParser().parse_args(said.split()[1:])))) or 1.0,
    "number": lambda said: json.loads(said),
    "numbers": lambda said: {"odd": 1.0, "more": json.loads(said)},
    "names": lambda said: {json.loads(said): 1.0} if said not in "01" else {"odd": 1.0},
}
"""By name; each gives 1 for the reply `1`."""


class OddConfig(RubricConfig):
    """What is done with the reply."""

    how: str = "number"
    where: str = "reward"


class Odd(Rubric[OddConfig]):
    """Reads in a reward, in a metric, or in a hook."""

    def _read(self, where: str, trace: AnyTrace) -> Any:
        return READS[self.config.how](trace.last_reply) if where == self.config.where else 1.0

    @vf.reward
    async def odd(self, trace: AnyTrace) -> Any:
        return self._read("reward", trace)

    @vf.metric
    async def measured(self, trace: AnyTrace) -> Any:
        return self._read("metric", trace)

    @cleanup()
    async def tidy(self, trace: AnyTrace) -> None:
        self._read("hook", trace)


class Prepared(Odd):
    """The same, with a preparation."""

    async def prepare(self, task: vf.TaskData, sandbox: str | None) -> Mapping[str, object]:
        return {"nothing": None}


class OddData(vf.TaskData):
    """How a task reads, and where."""

    how: str = ""
    where: str = "reward"


class OddTask(vf.Task[OddData]):
    """Without any rubric."""

    def _read(self, where: str, trace: AnyTrace) -> Any:
        return READS[self.data.how](trace.last_reply) if where == self.data.where else 1.0

    async def finalize(self, trace: AnyTrace, runtime: vf.Runtime) -> None:
        self._read("finalize", trace)
        if self.data.where == "file":
            await runtime.read("/app/answer.txt")

    @vf.reward
    async def odd(self, trace: AnyTrace) -> Any:
        return self._read("reward", trace)

    @vf.metric
    async def measured(self, trace: AnyTrace) -> Any:
        return self._read("metric", trace)


class OddTaskset(vf.Taskset[OddTask, vf.TasksetConfig]):
    """The rows in the file that `ODD_ROWS` names."""

    def load(self) -> Iterator[Any]:
        with open(os.environ["ODD_ROWS"]) as file:
            for index, line in enumerate(file):
                yield OddTask(OddData(idx=index, **json.loads(line)), self.config.task)
