"""No error of the policy's choosing: how the runs of a light agent end, whatever its programs do to them."""

import asyncio

import pytest
from opencode_env.cli_agent import runaway
from opencode_env.cli_agent.interception import MARK_HEADER
from opencode_env.cli_agent.rollout import rollout_of
from opencode_env.cli_agent.traces import AnyTrace
from opencode_env.scripted_model import ChatRequest, Reply
from verifiers.v1.errors import MODEL_TRANSPORT_ERROR_EXIT_CODE, ProviderError

from tests.cli_agent.light_agent import Asking, Doing, play_light
from tests.support.replies import bash, fault, faulty
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("sandboxes")

KILLED = 137
DONE = Reply(text="Done.")
FAILS = faulty("status", status=500)


def model(*own: Reply, program: Reply = DONE) -> object:
    """The model's turns in order, the last of them for ever; the agent's programs get their own."""
    left = list(own)

    def policy(request: ChatRequest) -> Reply:
        if request.prompt == "the program's":
            return program
        return left.pop(0) if len(left) > 1 else left[0]

    return policy


async def played(doing: Doing, *own: Reply, program: Reply = DONE, **options: object) -> AnyTrace:
    return await play_light(doing, model(*own, program=program), **options)  # type: ignore[arg-type]


def asks(times: int, code: int = 1) -> Doing:
    """An agent that asks so often and ends so."""

    async def doing(asking: Asking) -> int:
        for _ in range(times):
            await asking.ask()
        return code

    return doing


def ending(trace: AnyTrace) -> str:
    """`scored`, or the type of the error."""
    if trace.last_error is not None:
        assert not any(trace.rewards.values()), trace.rewards
        return trace.last_error.type
    assert trace.reward == 1.0
    return "scored"


def assert_own(trace: AnyTrace, *words: str) -> None:
    assert ending(trace) == "scored", trace.errors
    assert (trace.stop_condition, trace.metrics["agent_error_own"]) == ("agent_error", 1.0)
    assert all(word in trace.info["agent"]["own_error"] for word in words), trace.info["agent"]["own_error"]


@pytest.mark.parametrize("status", [500, 503, 429, 408])
async def test_an_agent_killed_in_its_rest_before_a_retry_is_scored(status: int) -> None:
    assert_own(await played(asks(2, KILLED), bash("ls"), faulty("status", status=status)), "exited 137")


@pytest.mark.parametrize("status", [500, 429, 408])
async def test_an_endpoint_that_fails_every_send_of_a_call_is_an_error(status: int) -> None:
    assert ending(await played(asks(4), bash("ls"), faulty("status", status=status))) == "ProviderError"


@pytest.mark.parametrize("kind", ["cut", "html", "malformed_sse", "no_finish", "sse_error"])
async def test_streams_that_are_none_are_an_error_once_the_call_was_sent_again(kind: str) -> None:
    broken = Reply(text="And so on.", faults=fault(kind))
    assert ending(await played(asks(4), bash("ls"), broken)) == "ProviderError"
    assert_own(await played(asks(2, KILLED), bash("ls"), broken))


@pytest.mark.parametrize("status", [401, 403])
async def test_a_key_that_is_refused_is_an_error_at_once(status: int) -> None:
    assert ending(await played(asks(2), bash("ls"), faulty("status", status=status))) == "ProviderError"


@pytest.mark.parametrize("status", [400, 404, 413, 422])
async def test_what_the_endpoint_refuses_for_what_is_in_it_is_scored(status: int) -> None:
    refused = faulty("status", status=status, body="a broken picture")
    assert_own(await played(asks(4), bash("ls"), refused), "exited 1")
    assert_own(await played(asks(2, code=0), bash("ls"), refused), "a broken picture")


@pytest.mark.parametrize("status", [400, 500])
async def test_before_the_first_tool_call_a_failed_call_is_the_infrastructures(status: int) -> None:
    assert ending(await played(asks(1), faulty("status", status=status))) == "ProviderError"


async def test_how_long_an_endpoint_wants_to_be_left_alone_is_known_of_the_failed_call() -> None:
    async def doing(asking: Asking) -> int:
        for _ in range(3):
            await asking.ask()
        gateway = rollout_of(asking.trace).gateway
        assert gateway is not None
        waits.extend(gateway.waits_of(asking.trace.calls))
        return 0

    waits: list[float] = []
    limited = faulty("status", status=429, retry_after=40)
    await played(doing, bash("ls"), limited, limited, DONE)
    assert waits == [0.0, 40.0, 40.0]


async def test_a_crash_is_scored_or_with_the_option_an_error_that_no_failed_call_hides() -> None:
    script = (bash("ls"), FAILS)
    assert_own(await played(asks(2, KILLED), *script), "exited 137")
    unscored = await played(asks(2, KILLED), *script, agent_errors="error")
    assert ending(unscored) == "AgentError"
    assert unscored.metrics["agent_error_own"] == 1.0


async def test_a_call_without_an_id_counts_as_a_call_of_a_tool() -> None:
    called = bash("ls").model_copy(update={"faults": fault("no_tool_call_id")})
    trace = await played(asks(1, KILLED), called)
    assert_own(trace, "exited 137")
    assert [call.id[:5] for message in trace.assistant_messages for call in message.tool_calls or ()] == ["call_"]


async def test_a_later_good_answer_clears_what_failed_before() -> None:
    turns = [bash("ls"), FAILS, FAILS, FAILS, DONE]
    assert ending(await played(asks(5, code=0), *turns)) == "scored"
    assert_own(await played(asks(5, KILLED), *turns), "exited 137")


async def test_a_flood_of_a_programs_calls_is_to_blame_for_what_fails_beside_it() -> None:
    async def floods(asking: Asking) -> int:
        await asking.ask()
        await asyncio.gather(*(asking.program_asks() for _ in range(25)))
        for _ in range(3):
            await asking.ask()
        return 1

    limited = faulty("status", status=429)
    assert_own(await played(floods, bash("ls"), limited, program=limited))


async def test_a_programs_failed_calls_are_no_evidence() -> None:
    async def fails(asking: Asking) -> int:
        await asking.ask()
        for _ in range(3):
            await asking.program_asks()
        return KILLED

    assert_own(await played(fails, bash("ls"), program=FAILS), "exited 137")


async def test_a_call_that_the_endpoint_holds_longer_than_the_agent_waits_is_an_error() -> None:
    async def gives_up(asking: Asking) -> int:
        await asking.ask()
        sent = asyncio.ensure_future(asking.ask())
        await until(lambda: rollout_of(asking.trace).program.longest_under_way > 0.1)
        sent.cancel()
        return 1

    script = (bash("ls"), faulty("hang"))
    assert ending(await played(gives_up, *script, patient_for=0.1)) == "ProviderError"
    assert_own(await played(gives_up, *script, patient_for=600.0))


async def test_an_endless_loop_is_scored_and_one_of_failures_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runaway, "POLL_SECONDS", 0.05)

    async def loops(asking: Asking) -> int:
        await asking.ask()
        said = [{"role": "user", "content": "Go on for ever."}]
        while True:
            if await asking.post(said, {MARK_HEADER: asking.mark}) == 200:
                said.append({"role": "assistant", "content": "Done."})

    assert_own(await played(loops, bash("ls"), DONE), "without end")
    assert ending(await played(loops, bash("ls"), FAILS)) == "ProviderError"


@pytest.mark.parametrize("status", [400, 500])
async def test_in_a_later_segment_programs_of_the_agents_have_run(status: int) -> None:
    segments: list[int] = []

    async def doing(asking: Asking) -> int:
        segments.append(1)
        await asking.ask()
        return 0 if len(segments) == 1 else KILLED

    refused = faulty("status", status=status)
    assert_own(await played(doing, bash("ls"), refused, segments=2), "exited 137")
    assert len(segments) == 2


async def test_neither_a_log_nor_an_exit_code_is_evidence() -> None:
    """What a harness makes of a line in a log, and of the exit code that is reserved for a lost connection."""

    async def claims(asking: Asking) -> int:
        await asking.ask()
        raise ProviderError("gave up waiting for the model (provider_timeout)", status_code=504)

    assert_own(await played(claims, bash("ls")), "ProviderError: gave up waiting")
    assert_own(await played(asks(1, MODEL_TRANSPORT_ERROR_EXIT_CODE), bash("ls")), "InterceptionError: ")
