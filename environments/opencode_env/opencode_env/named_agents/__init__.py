"""What is known of agents by their names: their npm packages and the wire formats that they speak.

The room beside `cli_agent`, which knows no agent; another agent of verifiers is an entry in these tables.
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
