"""An OpenAI-compatible server that plays scripts. It is not a language model and says so."""

from opencode_env.scripted_model.policy import (
    LABEL,
    MODEL_ID,
    ChatRequest,
    Fault,
    FaultKind,
    FaultyPolicy,
    Policy,
    Reply,
    Script,
    ScriptPolicy,
    ToolCall,
    Usage,
)
from opencode_env.scripted_model.server import RecordedRequest, RequestOutcome, ScriptedModel
from opencode_env.scripted_model.shipped_policies import SamplesPolicy, ToolsPolicy, WorldsPolicy

__all__ = [
    "LABEL",
    "MODEL_ID",
    "ChatRequest",
    "Fault",
    "FaultKind",
    "FaultyPolicy",
    "Policy",
    "RecordedRequest",
    "Reply",
    "RequestOutcome",
    "SamplesPolicy",
    "Script",
    "ScriptPolicy",
    "ScriptedModel",
    "ToolCall",
    "ToolsPolicy",
    "Usage",
    "WorldsPolicy",
]
