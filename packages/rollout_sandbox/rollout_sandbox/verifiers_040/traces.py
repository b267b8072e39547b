"""What a trace says in addition after 0.4.0, and how it finds its nodes."""

from typing import Any

from verifiers.v1 import graph
from verifiers.v1.dialects import Dialect
from verifiers.v1.trace import Trace

from rollout_sandbox.verifiers_040.installed import AFTER_0_4_0


def drop_with(trace: Trace[Any, Any, Any], main: Trace[Any, Any, Any]) -> None:
    """Leave `trace` out of training and reward means where `main` is left out; 0.4.0 leaves none out."""
    if AFTER_0_4_0 and main.dropped is not None:
        trace.drop(main.dropped)


def index_nodes(trace: Trace[Any, Any, Any], dialect: type[Dialect[Any]], index: dict[Any, int]) -> None:
    """Let a trace find its nodes in `index`, into which those go that it has; after 0.4.0 there is one per dialect."""
    for number, node in enumerate(trace.nodes):
        if AFTER_0_4_0:
            key = graph._node_key(trace, node.parent, node.message, node.tools, dialect=dialect.name)
        else:
            key = graph._node_key(node.parent, node.message, node.tools)
        index[key] = number
    if AFTER_0_4_0:
        trace._head_index = {dialect.name: index}
    else:
        trace._head_index = index
