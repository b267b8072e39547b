"""What is said of the endpoint of an evaluation, and of its failures: a probe before any sandbox, early ends, a line.

Under `vf-eval` in its own process only: a trainer, an environment server, a replay and the scripted model see nothing
of it. Invariant: only what no rollout could get over ends a run, or the cap that its user has set, and what is said of
a failure names the endpoint's own words.
"""

import asyncio
import errno
import logging
import operator
import os
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Sequence, Set
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal, Self

import httpx
from opencode_runs.command import Prices, prices_of, say
from opencode_runs.traces.record import tokens_used
from pydantic import BeforeValidator, Field, FiniteFloat, model_validator
from pydantic_config import BaseConfig
from rollout_sandbox.told import without_credentials
from verifiers.v1.clients import BaseClientConfig, EvalClientConfig
from verifiers.v1.configs.client import resolve_api_key
from verifiers.v1.episode import Episode
from verifiers.v1.errors import EnvError
from verifiers.v1.trace import Error, ModelCall

from opencode_env.cli_agent.interception.endpoint import EndpointHttp
from opencode_env.cli_agent.interception.window import ask_models, model_cards

logger = logging.getLogger("verifiers.v1.opencode_env")

Probe = Literal["models", "call", "none"]
"""How an endpoint is asked before a run: for its list of models, where it has none for one token, or not at all."""

PAGE = 'page "Troubleshooting" of the documents of opencode-envs'
"""Where a message sends to, for whoever has the packages alone too."""
PATIENCE, SILENT = 10.0, 2.0
"""Seconds that a refused connection is tried again for, as an endpoint may be starting, and of them without a word."""
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


class RunEndedError(EnvError):
    """A run ends early."""


class UnusableEndpointError(RunEndedError):
    """No rollout could reach the endpoint, or get an answer of it."""


class CapReachedError(RunEndedError):
    """The model calls of a run have cost what they may."""


class CapConfig(BaseConfig):
    """What the model calls of all seats of one `vf-eval` may cost, failed and repeated rollouts included; at the cap
    the run ends early. It is not part of the saved configuration, so that `--resume` can have another."""

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
        """What tokens cost; None without prices."""
        return None if self.prices is None else sum(map(operator.mul, self.prices, used)) / 1e6

    def is_reached(self, used: Sequence[int]) -> bool:
        """Whether so many tokens are what may be spent."""
        dollars = self.dollars(used)
        return (self.tokens is not None and sum(used) >= self.tokens) or (
            self.cost is not None and dollars is not None and dollars >= self.cost
        )

    def options(self) -> str:
        """What names this cap on a command line; empty without one."""
        prices = self.prices and ",".join(f"{price:g}" for price in self.prices)
        given = {"tokens": self.tokens, "cost": self.cost, "prices": prices}
        return "".join(f" --env.cap.{name} {value}" for name, value in given.items() if value)


def require_proxies() -> None:
    """Refuse proxies of the environment with which no HTTP client can be made.

    Raises:
        EnvError: it names the variable.
    """
    try:
        httpx.Client().close()
    except Exception as error:  # noqa: BLE001 - a URL, an unknown scheme, a missing package: each in its own type
        named = [name for name in (*_PROXIES, *map(str.lower, _PROXIES)) if os.environ.get(name)]
        guilty = next((name for name in named if _fails_with(name)), " or ".join(named))
        advice = (
            "NO_PROXY takes names and addresses, no IPv6 networks" if "NO" in guilty.upper() else "an http:// proxy"
        )
        told = without_credentials(f"no HTTP client can be made with {guilty}={os.environ.get(guilty, '')}: {error}")
        raise EnvError(f"{told}. Change or unset the variable ({advice})") from None  # which may quote a password


def _fails_with(name: str) -> bool:
    others = {key: value for key in os.environ if key.upper() in _PROXIES and (value := os.environ[key])}
    try:
        for key in others:
            os.environ.pop(key)
        os.environ[name] = others[name]
        httpx.Client().close()
    except Exception:  # noqa: BLE001 - as above
        return True
    finally:
        os.environ.pop(name, None)
        os.environ.update(others)
    return False


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
        unusable = _UNUSABLE.search(error.message)
        words = unusable[0] if unusable else error.message
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


_UNUSABLE = re.compile(
    r"^(?:before [\w' ]+: )?(?:a call of )?the endpoint(?:'s (?:stream|answer)| answered a request)\b"
)
"""How the failure of a call begins whose endpoint answered 200 and something else than an answer, which it quotes."""


def _reason(error: Error) -> str:
    """An error on one line; behind the endpoint's words, cut where they are long, stands what to do."""
    words, _, advice = error.message.partition("\n")
    shown = words if len(words) <= 300 else f"{words[:300]}…"
    return without_credentials(" ".join(f"{error.type}: {shown} {advice[:500]}".split()))


async def _probe(config: EvalClientConfig, model: str, how: Probe) -> None:
    """Ask an endpoint for its models, or for one token.

    Raises:
        UnusableEndpointError: its name is unknown, it refuses connections, its certificate or the key.
    """
    shown = without_credentials(config.base_url)
    try:
        response = await _patiently(config)
    except httpx.HTTPError as error:
        where = f"the endpoint {shown}"
        cause = _causes(error)
        if _is_refused(error):
            told = f"{where} refuses connections, {PATIENCE:g} s long: {error}. Is the server up, and the port right?"
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
            if not _is_refused(error) or waited >= PATIENCE:
                raise
        if waited >= SILENT and not told:
            told = True
            where = without_credentials(config.base_url)
            say(f"the endpoint {where} refuses connections; it is asked again for {PATIENCE:g} s", sys.stderr)
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
        response = await client.client.post(
            f"{client.base_url.rstrip('/')}/chat/completions", json=body, headers=headers
        )
    except httpx.HTTPError as error:
        where = without_credentials(config.base_url)
        logger.warning("the endpoint %s did not answer when it was asked for one token: %r", where, error)
        return
    finally:
        await client.close()
    _require_key(config, response, "/chat/completions")
    if response.status_code >= 400:
        logger.warning("%s", _told(config, response, "/chat/completions"))


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
