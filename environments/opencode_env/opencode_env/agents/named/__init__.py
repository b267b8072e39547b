"""What is known of agents by their names: their npm packages and the wire formats that they speak.

`cli_agent` knows no agent. Another harness of verifiers is an entry in these tables; an agent of your own needs none.
"""

_OF_CHAT = ("bash", "browser_use", "mini_swe_agent", "null", "prime_agent", "terminus_2")
TRANSPORTS = {**dict.fromkeys(_OF_CHAT, "chat_completions"), "claude_code": "anthropic_messages", "codex": "responses"}
"""What verifiers' own harnesses speak that leave no choice; the others say it in their configuration, or first call."""
