"""Recursive OpenCode (`opencode-rlm`): sub-LLM calls routed by `X-RLM-Role`.

The distribution installs and depends on opencode-env; its environment, harness and plugin come with the RLM issue.
"""

__all__: list[str] = []
