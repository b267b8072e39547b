"""What is known of agents by their names: their npm packages and the wire formats that they speak.

`cli_agent` knows no agent. Another harness of verifiers is an entry in these tables; an agent of your own needs none.
"""

TRANSPORTS = {
    "bash": "chat_completions",
    "browser_use": "chat_completions",
    "claude_code": "anthropic_messages",
    "codex": "responses",
    "mini_swe_agent": "chat_completions",
    "null": "chat_completions",
    "prime_agent": "chat_completions",
    "terminus_2": "chat_completions",
}
"""What verifiers' own harnesses speak that leave no choice; the others say it in their configuration, or first call."""
