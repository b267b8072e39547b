"""What one rollout may ask of the path to the model, under `--env.gateway.*`.

Every bound has an off switch; with all of them off a request goes the way it goes through verifiers alone.
"""

from pydantic import Field, FiniteFloat
from pydantic_config import BaseConfig


class GatewayConfig(BaseConfig):
    """Bounds of one rollout's model calls, far above what an agent's own calls amount to; None takes one away."""

    max_body: int | None = Field(32 * 1024 * 1024, ge=1)
    """Bytes of one request, unpacked; more is answered 413."""
    max_messages: int | None = Field(5000, ge=1)
    """Messages, and tools, of one request; more is answered 400."""
    max_values: int | None = Field(100_000, ge=1)
    """JSON values of one request (every number, string, list and object counts one); more is answered 400."""
    max_depth: int | None = Field(100, ge=1)
    """How deep lists and objects of a request may nest; deeper is answered 400. The parser's own limit is 200."""
    max_parallel_calls: int | None = Field(16, ge=1)
    """Main calls that one rollout has at the model at once; more wait in the order in which they came. Every call
    reserves its turn and its share of a token budget before it is served, so a limit of the seat holds for parallel
    calls too; None takes the reservation away with it."""
    max_waiting_calls: int | None = Field(1024, ge=1)
    """Requests of one rollout that are open at once, waiting ones included; more are answered 429."""
    max_trace: int | None = Field(256 * 1024 * 1024, ge=1)
    """Bytes that the calls of one rollout may leave on its traces; when they have, it is stopped (`max_trace`) and
    scored. Sub calls count, and are refused then."""
    max_program_text: int | None = Field(64 * 1024, ge=1024)
    """Bytes of what one call of the agent's programs says anew, beyond which a trace keeps of its long texts beginning,
    end and SHA-256. A call that is sampled from tokens is kept whole."""
    max_share: FiniteFloat | None = Field(0.1, gt=0, le=1)
    """Share of the serving thread's time that one rollout's requests may take for long; whoever takes more waits."""
    idle_timeout: FiniteFloat | None = Field(300.0, gt=0)
    """Seconds after which a connection that carries no request is closed, and after which a request is answered 408
    when no further byte of its body came."""
    answer_after: FiniteFloat | None = Field(15.0, gt=0)
    """Seconds after which a streamed call from a remote sandbox whose model still thinks is answered with a comment
    line, and with another every 3 s, so that no proxy takes its connection for idle. Until then a failure keeps its
    HTTP status. A call that is not streamed cannot be kept alive; the agents here make none. One value for
    all environments of a process, the last that started; None leaves verifiers' own, 60 s, which local sandboxes
    keep."""
    probe: FiniteFloat | None = Field(5.0, gt=0)
    """Seconds between two health checks that a server makes of itself through its tunnel or own URL. A tunnel that is
    dead is found by them: its rollouts end with a `TunnelError`, and new ones get a new one. None makes none."""
    raise_open_files: bool = True
    """Raise this process's soft limit of open files to the hard one when the environment starts."""
    filter_requests: bool = True
    """Let through only the harness's own wire formats and request keys, and no address that the endpoint would
    fetch."""
    ask_streamed: bool = True
    """Ask a chat endpoint for a stream where the agent asks for one. False asks for the whole answer at once, for an
    endpoint that does not stream, or whose streams lack log-probabilities; the agent gets a stream either way."""
    filter_headers: bool = True
    """Let through only the request headers that the endpoint needs."""
    mask_keys: bool = True
    """Take API keys out of everything that goes back to the agent."""
