"""The window of a model: in what words endpoints say that it is full."""

from verifiers.v1.harnesses.utils.compaction import CONTEXT_OVERFLOW_MARKERS

_MORE_MARKERS = (
    "longer than the model's context length",  # SGLang, of the prompt
    "exceeds the maximum allowed length",  # SGLang, of what its cache holds
    "exceeds the available context size",  # llama.cpp
    "exceed context window of",  # llama-cpp-python
    "`max_new_tokens` must be <=",  # TGI, with 422, of prompt and answer
    "`inputs` must have less than",  # TGI, with 422, of the prompt
    "greater than the context length",  # LM Studio
    "when context the overflows",  # LM Studio, earlier
    "exceeded max context length",  # Ollama
    "input length exceeds",  # Ollama
    "input exceeds context length",  # Ollama, earlier
    "input is too long",  # Bedrock
    "exceed context limit",  # Anthropic, of prompt and answer
    "input tokens exceed",  # OpenAI, of a limit of its own
    "longer than the maximum model length",  # vLLM
    "too long to fit into the model",  # vLLM
    "context window exceeds limit",  # MiniMax
    "exceeded model token limit",  # Moonshot
)
_WHATEVER_STATUS = (
    "exceed_context_size_error",  # llama.cpp, at first with 500
    "context size has been exceeded",  # llama.cpp with 500, and LM Studio in a stream
    "tokens to keep from the initial prompt is greater than the context length",  # LM Studio in a stream
)


def says_full(status: int | None, text: str) -> bool:
    """Whether an endpoint says that a request does not fit into the window: 400, 413 or 422 in words that name it, or
    words with which an engine says nothing else, whatever the status."""
    said = text.casefold()
    if any(marker in said for marker in _WHATEVER_STATUS):
        return True
    return status in (400, 413, 422) and any(marker in said for marker in (*CONTEXT_OVERFLOW_MARKERS, *_MORE_MARKERS))
