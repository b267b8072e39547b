"""What a trace says in addition, since 0.4.1; before, nothing."""

from typing import Any

from verifiers.v1.trace import Trace

from opencode_rubrics.verifiers_versions.installed import AFTER_0_4_0


def drop_with(trace: Trace[Any, Any, Any], main: Trace[Any, Any, Any]) -> None:
    """Leave `trace` out of training and reward means where `main` is left out; 0.4.1 (dev72) brought `Trace.dropped`.

    When 0.4.0 is no longer supported, its caller says it itself.
    """
    if AFTER_0_4_0 and main.dropped is not None:
        trace.drop(main.dropped)
