"""One run of `vf-eval` in this process: its endpoint and cap, and what its user is told on standard error.

An endpoint is probed before any sandbox. Only what no rollout could get over ends a run early, or the cap that its user
has set. verifiers keeps its log off the terminal while it shows its dashboard, and without one ends with every trace as
JSON. So our warnings are shown before the first rollout and once more at the end, where a table says what came of the
run and one line how an interrupted one goes on. A trainer, an environment server, a replay and the scripted model see
nothing of all that.
"""

import asyncio
import errno
import logging
import operator
import os
import re
import shlex
import sys
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence, Set
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Literal, Self

import httpx
from opencode_rubrics.verify_commands import commands_without_program
from opencode_runs.console_command import Prices, in_one_line, prices_of, say
from opencode_runs.traces.record import tokens_used
from pydantic import BeforeValidator, Field, FiniteFloat, model_validator
from pydantic_config import BaseConfig
from rollout_sandbox.told import task_name, without_credentials
from verifiers.v1.cli.output import attempt_log_file, saved_config_path
from verifiers.v1.clients import BaseClientConfig, EvalClientConfig
from verifiers.v1.configs.client import resolve_api_key
from verifiers.v1.episode import Episode
from verifiers.v1.errors import EnvError
from verifiers.v1.trace import Error, ModelCall
from verifiers.v1.utils.trace_store import TRACES_FILE

from opencode_env.cli_agent.interception.endpoint import EndpointHttp
from opencode_env.cli_agent.interception.gateway import CHAT, GATEWAY_RECORD, UNUSABLE
from opencode_env.cli_agent.interception.window import ask_models, model_cards
from opencode_env.cli_agent.seats import DEFAULT_ROLLOUT_SECONDS
from opencode_env.cli_agent.traces import AGENT_RECORD
from opencode_env.compat import places_of
from opencode_env.errors import CapReachedError, RunEndedError, UnusableEndpointError

logger = logging.getLogger("verifiers.v1.opencode_env")

Probe = Literal["models", "call", "none"]
"""How an endpoint is asked before a run: for its list of models, where it has none for one token, or not at all."""

PAGE = 'page "Troubleshooting" of the documents of opencode-envs'
"""Where a message sends to, for whoever has the packages alone too."""
NODE_PLACE = re.compile(r"\bworker on node (\S+)")
"""Where an error says which node of a cluster was lost."""
_PATIENCE, SILENT = 10.0, 2.0
"""Seconds that a refused connection is tried again for, as an endpoint may be starting, and of them without a word."""
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


class CapConfig(BaseConfig):
    """Sets what the model calls of all seats of one `vf-eval` may cost, failed and repeated rollouts included; at the
    cap the run ends early. It is not part of the saved configuration, so that `--resume` can have another."""

    tokens: int | None = Field(None, ge=1)
    """Tokens that are read, from a cache too, or sampled. At the cap rollouts under way are cancelled, and missing."""
    cost: FiniteFloat | None = Field(None, gt=0)
    """Dollars, by `prices`."""
    prices: Annotated[Prices | None, BeforeValidator(lambda given: given and prices_of(given))] = None
    """`IN,CACHED,OUT`, dollars for a million tokens read anew, read from a cache, and sampled; with them the table at a
    run's end has costs."""

    @model_validator(mode="after")
    def _no_cost_without_prices(self) -> Self:
        if self.cost is not None and self.prices is None:
            raise ValueError("a cap of cost needs prices: --env.cap.prices IN,CACHED,OUT")
        return self

    def dollars(self, used: Sequence[int]) -> float | None:
        """Return what tokens cost; None without prices."""
        return None if self.prices is None else sum(map(operator.mul, self.prices, used)) / 1e6

    def is_reached(self, used: Sequence[int]) -> bool:
        """Whether so many tokens are what may be spent."""
        dollars = self.dollars(used)
        return (self.tokens is not None and sum(used) >= self.tokens) or (
            self.cost is not None and dollars is not None and dollars >= self.cost
        )

    def options(self) -> str:
        """Return what names this cap on a command line; empty without one."""
        prices = self.prices and ",".join(f"{price:g}" for price in self.prices)
        given = {"tokens": self.tokens, "cost": self.cost, "prices": prices}
        return "".join(f" --env.cap.{name} {value}" for name, value in given.items() if value)


def require_proxies() -> None:
    """Refuse proxies of the environment with which no HTTP client can be made.

    Raises:
        EnvError: it names the variables.
    """
    try:
        httpx.Client().close()
    except Exception as error:  # noqa: BLE001 - a URL, an unknown scheme, a missing package: each in its own type
        names = (*_PROXIES, *map(str.lower, _PROXIES))
        given = " ".join(f"{name}={os.environ[name]}" for name in names if os.environ.get(name))
        told = without_credentials(f"no HTTP client can be made with {given}: {error}")
        advice = "an http:// proxy; NO_PROXY takes names and addresses, no IPv6 networks"
        raise EnvError(f"{told}. Change or unset a variable ({advice})") from None  # which may quote a password


class Evaluation:
    """One run of `vf-eval` in this process.

    Args:
        probe: how its endpoints are asked before anything starts.
        end_after: rollouts that fail alike before their first answer, after which it ends; None never ends it.
        cap: what its calls may cost; None for no cap.
    """

    def __init__(self, probe: Probe, end_after: int | None, cap: CapConfig | None = None) -> None:
        self._how = probe
        self._end_after = end_after
        self._cap = cap or CapConfig()
        self._used = (0, 0, 0)
        self._playing: set[asyncio.Task[Any]] = set()
        self._unwound = asyncio.Event()
        """Set when the cap is reached and nothing is played any more."""
        self._probes: dict[tuple[str, str, str], asyncio.Future[None]] = {}
        self._tasks: set[object] = set()
        self._alike: defaultdict[tuple[int | None, str], list[object]] = defaultdict(list)
        self._failed: Counter[tuple[int | None, str]] = Counter()
        self._reasons: dict[tuple[int | None, str], str] = {}
        self._ended = 0

    def planned(self, task: Any) -> None:
        """A task of the run."""
        self._tasks.add(task.key)

    def spend(self, call: ModelCall) -> None:
        """Count a call; the one that reaches the cap cancels the rollouts under way."""
        before, (used,) = self._used, [tokens_used([call.usage])]
        self._used = (before[0] + used[0], before[1] + used[1], before[2] + used[2])
        if self._cap.is_reached(self._used) and not self._cap.is_reached(before):
            for task in self._playing:
                task.cancel()

    @asynccontextmanager
    async def playing(self) -> AsyncIterator[None]:
        """A rollout is played until the end of the block.

        Raises:
            CapReachedError: it was cancelled, for the cap is reached.
        """
        task = asyncio.current_task()
        assert task is not None
        self._playing.add(task)
        if self._cap.is_reached(self._used):
            task.cancel()
        try:
            yield
        except asyncio.CancelledError:
            if not self._cap.is_reached(self._used):
                raise
            self._leave(task)
            await self._unwound.wait()  # the first error of a run cancels the others again, amid their cleanup
            raise CapReachedError(self._overspent()) from None
        finally:
            self._leave(task)

    def _leave(self, task: asyncio.Task[Any]) -> None:
        self._playing.discard(task)
        if not self._playing and self._cap.is_reached(self._used):
            self._unwound.set()

    def _overspent(self) -> str:
        dollars = self._cap.dollars(self._used)
        cost = "" if dollars is None else f" (${dollars:,.4f})"
        return (
            f"the run ends early: its calls took {sum(self._used):,} tokens{cost}, the cap is{self._cap.options()}; "
            "--resume goes on: name a cap with it, a higher one if this played none; it counts anew"
        )

    async def require_endpoint(self, config: BaseClientConfig, model: str) -> None:
        """Probe an endpoint, each URL, model and key once.

        Raises:
            UnusableEndpointError: it cannot be used.
        """
        if not isinstance(config, EvalClientConfig) or self._how == "none":
            return
        key = (config.base_url, model, resolve_api_key(config))
        if key not in self._probes:
            self._probes[key] = asyncio.ensure_future(_probe(config, model, self._how))
        await asyncio.shield(self._probes[key])

    def ended(self, episode: Episode[Any, Any, Any]) -> None:
        """Take up an episode that was written down.

        Raises:
            UnusableEndpointError: it was the last of many that the endpoint failed alike.
        """
        self._ended += 1
        if episode.ok:
            return
        errors = [error for trace in episode.traces for error in trace.errors] or list(episode.errors)
        if not errors:
            return
        error = errors[-1]
        status = error.status_code
        noted = any(trace.info.get(GATEWAY_RECORD, {}).get(UNUSABLE) for trace in episode.traces)
        unusable = noted and error.type == "ProviderError"
        words = UNUSABLE if unusable else error.message  # which quotes what came
        kind = status, re.sub(r"\w*\d\w*", "#", words)  # numbers differ between prompts, and requests have ids
        self._failed[kind] += 1
        self._reasons.setdefault(kind, _reason(error))
        answered = any(node.sampled for trace in episode.traces for node in trace.nodes)
        if answered or status is None or (status >= 500 and not unusable) or status in (408, 429):
            return
        alike = self._alike[kind]
        alike.append(episode.task.key)
        if self._end_after is not None and len(alike) >= self._end_after and self._is_everywhere(set(alike)):
            raise UnusableEndpointError(
                f"the run ends early: {len(alike)} rollouts on {len(set(alike))} tasks failed alike before their first "
                f"answer: {_reason(error)} (--env.end-after-failures says after how many). "
                "--resume goes on with the same options; where another option is the mend, start a new run"
            )

    def _is_everywhere(self, tasks: Set[object]) -> bool:
        return len(tasks) >= 3 or tasks >= self._tasks

    def close(self) -> None:
        """Say on standard error how many rollouts failed, and why most of them."""
        if not self._failed:
            return
        (kind, count), failed = self._failed.most_common(1)[0], self._failed.total()
        most = f" ({count} of them)" if count < failed else ""
        say(f"{failed} of {self._ended} failed: {self._reasons[kind]}{most}; {PAGE}", sys.stderr)


def _reason(error: Error) -> str:
    """An error on one line; behind the endpoint's words, cut where they are long, stands what to do."""
    words, _, advice = error.message.partition("\n")
    shown = words if len(words) <= 300 else f"{words[:300]}…"
    return without_credentials(" ".join(f"{error.type}: {shown} {advice[:500]}".split()))


async def _probe(config: EvalClientConfig, model: str, how: Probe) -> None:
    """Ask an endpoint for its models, or for one token."""
    shown = without_credentials(config.base_url)
    try:
        response = await _patiently(config)
    except httpx.HTTPError as error:
        where = f"the endpoint {shown}"
        cause = _causes(error)
        if _is_refused(error):
            told = f"{where} refuses connections, {_PATIENCE:g} s long: {error}. Is the server up, and the port right?"
            raise UnusableEndpointError(told) from error
        if "gaierror" in cause:
            raise UnusableEndpointError(f"{where} cannot be reached, its name is unknown: {error}") from error
        if "ssl" in cause or "certificate" in cause:
            raise UnusableEndpointError(f"{where} cannot be reached over TLS: {error}") from error
        logger.warning("%s did not answer when it was asked for its models: %r", where, error)
        return
    cards = model_cards(response)
    if any(str(card.get("owned_by", "")).startswith("opencode-env scripted model") for card in cards):
        return
    if not os.environ.get(config.api_key_var) and resolve_api_key(config) == "EMPTY":
        logger.warning(
            "%s gets no key: %s is not set (--client.api-key-var names the variable that holds one)",
            shown,
            config.api_key_var,
        )
    _require_key(config, response, "/models")
    names = [str(card.get("id")) for card in cards]
    if response.status_code < 400 and names and model not in names:
        logger.warning("%s lists no model %s, but %s", shown, model, ", ".join(names[:5]))
    elif response.status_code >= 500 or response.status_code == 429:
        logger.warning("%s", _told(config, response, "/models"))
    if how == "call" and not (response.status_code < 400 and names):
        await _ask_token(config, model)


async def _patiently(config: BaseClientConfig) -> httpx.Response:
    began, told = time.monotonic(), False
    while True:
        try:
            return await ask_models(config)
        except httpx.ConnectError as error:
            waited = time.monotonic() - began
            if not _is_refused(error) or waited >= _PATIENCE:
                raise
        if waited >= SILENT and not told:
            told = True
            where = without_credentials(config.base_url)
            say(f"the endpoint {where} refuses connections; it is asked again for {_PATIENCE:g} s", sys.stderr)
        await asyncio.sleep(0.5)


def _is_refused(error: httpx.HTTPError) -> bool:
    return isinstance(error, httpx.ConnectError) and f"errno {errno.ECONNREFUSED}]" in _causes(error)


def _causes(error: BaseException | None) -> str:
    """The types and words of an error and of what it came from."""
    found = []
    while error is not None:
        found.append(f"{type(error).__name__}: {error}")
        error = error.__cause__ or error.__context__
    return " ".join(found).lower()


async def _ask_token(config: EvalClientConfig, model: str) -> None:
    client = EndpointHttp(config)
    body = {"model": model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
    headers = {**client.headers, "authorization": f"Bearer {client.api_key}"}
    try:
        response = await client.client.post(f"{client.base_url.rstrip('/')}{CHAT}", json=body, headers=headers)
    except httpx.HTTPError as error:
        where = without_credentials(config.base_url)
        logger.warning("the endpoint %s did not answer when it was asked for one token: %r", where, error)
        return
    finally:
        await client.close()
    _require_key(config, response, CHAT)
    if response.status_code >= 400:
        logger.warning("%s", _told(config, response, CHAT))


def _require_key(config: BaseClientConfig, response: httpx.Response, path: str) -> None:
    if response.status_code in (401, 403):
        unset = "" if os.environ.get(config.api_key_var) else ", which is not set"
        advice = f"the key is that of {config.api_key_var}{unset} (--client.api-key-var; --env.probe none does not ask)"
        raise UnusableEndpointError(f"{_told(config, response, path)}; {advice}")


def _told(config: BaseClientConfig, response: httpx.Response, path: str) -> str:
    words = " ".join(response.text.split())[:500]
    if (key := resolve_api_key(config)) != "EMPTY":
        words = words.replace(key, "[key]")
    return without_credentials(f"the endpoint {config.base_url} answered {response.status_code} to {path}: {words}")


AGENT_BYTES = 350 << 20
"""Memory of one agent with its sandbox."""
ROLLOUTS_A_CORE = 8
"""So many agents keep a core busy: each starts for one to three seconds, and then waits for its model."""
_LIBRARY = "verifiers.v1"
_MOST_TASKS, _MOST_WARNINGS, _MOST_CHARS = 20, 10, 1000


@dataclass(frozen=True)
class _Row:
    """Holds what is told of one rollout that has ended."""

    place: int
    """Of its task in the taskset."""
    task: str
    reward: float | None
    """None: an error."""
    tokens: tuple[int, int, int]
    """Of all its calls: read anew, read from a cache, sampled."""
    seconds: float
    """From the start of its sandbox until that is removed; 0 where it did not start."""
    node: str = ""
    """Of a cluster, that played it; empty without one."""


class EvaluationReport(logging.Handler):
    """Watches one run of `vf-eval`; does nothing in any other process."""

    def __init__(self, *, local: bool, limited: bool, cap: CapConfig | None = None) -> None:
        """`local`: agents run in sandboxes on this machine; `limited`: the seat has a time limit of its own."""
        super().__init__(logging.INFO)
        self.active = Path(sys.argv[0]).name == "vf-eval" or sys.argv[0].endswith("verifiers/v1/cli/eval/main.py")
        self.run_directory: Path | None = None
        self._local, self._limited, self._cap = local, limited, cap or CapConfig()
        self._planned, self._began = 0, 0.0
        self._rows: list[_Row] = []
        self._kept: dict[str, _Row] = {}
        """What an earlier start of the run has finished, by episode."""
        self._warnings: Counter[str] = Counter()
        if self.active:
            logging.getLogger(_LIBRARY).addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep our warnings until rollouts begin, and later those of the whole run; learn where its files are."""
        if record.msg == "results: %s" and isinstance(record.args, tuple):
            self.run_directory = Path(str(record.args[0]))
        elif record.levelno < logging.WARNING or record.name.startswith(f"{_LIBRARY}.cli"):
            return
        elif not self._began or getattr(record, "of_the_run", False):
            self.warn(record.getMessage(), shown=logging.lastResort is not None)

    def warn(self, told: str, *, shown: bool = True) -> None:
        """Tell it at the end, and at once if nothing else shows it."""
        told = in_one_line(told)[:_MOST_CHARS]
        self._warnings[told] += 1
        if not shown and self._warnings[told] == 1:
            say(f"warning: {told}", sys.stderr)

    def plan(self, count: int) -> None:
        """So many more rollouts are to be run."""
        self._planned += count if self.active else 0

    def begin(self, places: asyncio.Semaphore | None) -> None:
        """A rollout waits for one of these places; with the first, say what the machine bears."""
        if not self.active or self._began:
            return
        self._began = time.monotonic()
        told = (
            [] if self._limited else [f"each rollout has {DEFAULT_ROLLOUT_SECONDS:,.0f} s where its task names no time"]
        )
        at_once = min(self._planned, self._planned if places is None else places_of(places))
        if self._local and (problem := beyond_the_machine(at_once)):
            told.append(problem)
        for line in told:
            say(line, sys.stderr)

    def progress(self) -> str:
        """Return how far the run is with a rollout that ends, for its line in the log."""
        if not self._began:
            return ""
        kept, done, minutes = len(self._kept), len(self._rows) + 1, (time.monotonic() - self._began) / 60
        left, rate = minutes / done * max(self._planned - done, 0), done / max(minutes, 1e-3)
        return f" run={kept + done}/{kept + self._planned} per_minute={rate:.1f} minutes_left={left:.0f}"

    def keep(self, episode: Episode[Any, Any, Any]) -> None:
        """Count a rollout of an earlier start of the run."""
        if self.active:
            self._kept[episode.id] = _row(episode)

    def finish(self, episode: Episode[Any, Any, Any]) -> None:
        """Note what came of a rollout, for good."""
        if not self.active:
            return
        self._rows.append(_row(episode))
        for one in episode.traces:
            for problem in commands_without_program(one):
                self.warn(f"task {self._rows[-1].task}: {problem}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, frames: TracebackType | None
    ) -> None:
        if not self.active:
            return
        logging.getLogger(_LIBRARY).removeHandler(self)
        for line in self._closing(kind):
            say(line, sys.stderr)
        if isinstance(error, RunEndedError):
            raise SystemExit(str(error)) from error  # which verifiers would show below a traceback

    def _closing(self, kind: type[BaseException] | None) -> Iterator[str]:
        for told, count in self._warnings.most_common(_MOST_WARNINGS):
            yield f"warning: {told}" + (f" (and {count - 1} more like it)" if count > 1 else "")
        if len(self._warnings) > _MOST_WARNINGS:
            yield f"and {len(self._warnings) - _MOST_WARNINGS} other warnings, which the log has"
        if rows := [*self._kept.values(), *self._rows]:
            yield from _table(rows, self._cap)
        if self._began and (missing := self._planned - len(self._rows)):
            yield f"{missing:,} of {len(self._kept) + self._planned:,} rollouts are missing"
        if self.run_directory is not None:
            yield f"traces: {self.run_directory / TRACES_FILE}  log: {attempt_log_file(self.run_directory)}"
            interrupted = kind in (asyncio.CancelledError, KeyboardInterrupt)
            saved = saved_config_path(self.run_directory)
            if saved is not None and (interrupted or kind is CapReachedError):
                command = f"vf-eval @ {shlex.quote(str(saved))} --resume{self._cap.options()}"
                yield f"{'interrupted; ' * interrupted}to go on: {command}"


def _row(episode: Episode[Any, Any, Any]) -> _Row:
    trace = next(iter(episode.traces), None)
    reward = trace.reward if trace is not None and episode.ok else None  # `errors` has those of earlier tries too
    tokens = tokens_used(call.usage for one in episode.traces for call in one.calls)
    records = [one.info.get(AGENT_RECORD, {}) for one in episode.traces]
    seconds = max((record.get("rollout_seconds", 0.0) for record in records), default=0.0)
    data, lost = episode.task.data, [NODE_PLACE.search(error.message) for error in episode.errors]
    nodes = [record["node"] for record in records if "node" in record] + [found[1] for found in lost if found]
    return _Row(data.idx or 0, task_name(data), reward, tokens, seconds, *nodes[:1])


def beyond_the_machine(at_once: int) -> str | None:
    """Return what is said where so many local agents at once do not fit this machine's memory or cores."""
    cores, memory = len(os.sched_getaffinity(0)), _free_memory()
    fits = max(1, min(memory // AGENT_BYTES, cores * ROLLOUTS_A_CORE))
    if at_once <= fits:
        return None
    return (
        f"warning: the agents of {at_once} rollouts at once (-c) want {at_once * AGENT_BYTES / 2**30:.1f} GiB and "
        f"{-(-at_once // ROLLOUTS_A_CORE)} cores; {memory / 2**30:.1f} GiB and {cores} cores are there: -c {fits} fits"
    )


def _free_memory() -> int:
    """Bytes that programs can still have, by the machine and by the control groups of this process."""
    found = [os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            found = [int(line.split()[1]) << 10]
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
    except (OSError, ValueError):
        return found[0]
    return min(found[0], max(int(limit) - used, 0)) if limit.isdigit() else found[0]


def _table(rows: Sequence[_Row], cap: CapConfig) -> Iterator[str]:
    """A line for each task, if there are not too many, one for all, and one for each node of a cluster."""
    tasks: dict[str, list[_Row]] = {}
    for row in sorted(rows, key=lambda row: row.place):
        tasks.setdefault(in_one_line(row.task)[:_MOST_CHARS], []).append(row)
    shown = list(tasks.items()) if len(tasks) <= _MOST_TASKS else []
    if len(tasks) != 1:
        shown.append((f"all {len(tasks)} tasks", list(rows)))
    for node in sorted({row.node for row in rows if row.node}):
        shown.append((f"node {node}", [row for row in rows if row.node == node]))
    cells: list[tuple[str, ...]] = [
        ("task", "rollouts", "errors", "mean reward", "pass rate", "mean seconds", "tokens", "cost")
    ]
    cells += [(name, *_figures(some, cap)) for name, some in shown]
    cells = cells if cap.prices else [line[:-1] for line in cells]
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    for line in cells:
        first, *others = (cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        yield "  ".join([line[0].ljust(len(first)), *others])


def _figures(rows: Sequence[_Row], cap: CapConfig) -> tuple[str, ...]:
    rewards = [row.reward for row in rows if row.reward is not None]
    scored = len(rewards)
    mean = f"{sum(rewards) / scored:.3f}" if scored else "-"
    passed = f"{sum(reward >= 1 for reward in rewards) / scored:.2f}" if scored else "-"
    seconds = sum(row.seconds for row in rows) / len(rows)
    dollars = sum(cap.dollars(row.tokens) or 0.0 for row in rows)
    return (
        f"{len(rows)}",
        f"{len(rows) - scored}",
        mean,
        passed,
        f"{seconds:.1f}",
        f"{sum(sum(row.tokens) for row in rows):,}",
        f"${dollars:,.4f}",
    )
