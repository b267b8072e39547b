"""What one episode says about its task's difficulty: attempts with a reward, or an error that is neither.

The line drawn here is the project's: what the policy did is data (a wrong answer, an agent out of time), what
the infrastructure did to it is an error and never counts as a failure of the task.
"""

from dataclasses import dataclass

from opencode_runs.traces.record import EpisodeRecord, TraceRecord

AGENT_TIMEOUT = "agent_timeout"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One scored try of the main seat."""

    reward: float
    turns: int
    tokens: int | None
    """New input plus generated tokens, as the provider reported them; None if the trace has no count."""
    timed_out: bool
    """The agent used up its time. Its partial work was scored: an attempt like any other."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One try that says nothing about the task; `cause` is an error type or a stop condition."""

    cause: str
    unscored: bool = False
    """The try ended well, but no reward was computed for it."""


Tries = list[tuple[TraceRecord | None, Attempt | Failure]]
"""What was tried, each with its trace if it has one."""


def tries(episode: EpisodeRecord, seat: str | None = None) -> Tries:
    """Every try of the episode with its trace; an episode that has none of the main seat is one error.

    The seat whose tries count is `seat`, else "agent", else the first trainable, else the first. A seat may have
    several traces in an episode (best-of-n): each is a try. A seat named "sub" is never chosen on its own account: its
    traces are calls the main agent made.
    """
    if seat is None:
        mains = [trace for trace in episode.traces if trace.seat != "sub"]
        names = [trace.seat for trace in mains]
        trainable = [trace.seat for trace in mains if trace.trainable]
        seat = "agent" if "agent" in names else next(iter(trainable or names), None)
    traces = [trace for trace in episode.traces if trace.seat == seat]
    if not traces:
        return [(None, Failure(episode.errors[-1].type if episode.errors else "no trace of the main seat"))]
    return [(trace, _classified(episode, trace)) for trace in traces]


def _classified(episode: EpisodeRecord, trace: TraceRecord) -> Attempt | Failure:
    """Whether the main seat's `trace` is an attempt, and with what reward."""
    stop = trace.stop_condition
    if not trace.ok:
        return Failure(trace.errors[-1].type if trace.errors else stop or "unknown error")
    # verifiers marks an expired setup, finalize or scoring deadline as ok, with a reward of 0 or none.
    if stop is not None and stop.endswith("_timeout") and stop != AGENT_TIMEOUT:
        return Failure(stop)
    # Nothing was sampled: a program that never asked the model, or one whose first request did not fit into the window.
    # A first answer that was under way when the time was over is not a turn, and is the policy's.
    if stop != AGENT_TIMEOUT and not trace.turns and not trace.num_total_tokens:
        return Failure("no model call" if stop in (None, "agent_completed") else f"no answer, stopped by {stop}")
    # A failed sub call is an error to the agent's tool call, and a failed sibling of the same seat is its own error.
    # The env's own hooks failing, or any other seat (one that judges, say), leaves the reward in doubt.
    bystanders = (trace.seat, "sub")
    if not episode.ok and (episode.errors or any(not t.ok for t in episode.traces if t.seat not in bystanders)):
        return Failure(episode.errors[-1].type if episode.errors else "another seat's error")
    if trace.dropped is not None:
        return Failure("dropped", unscored=True)
    if trace.reward is None:
        return Failure("no reward", unscored=True)
    return Attempt(trace.reward, trace.turns, trace.num_total_tokens, timed_out=stop == AGENT_TIMEOUT)
