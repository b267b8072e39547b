"""The gateway with everything off: what a request meets then, the attacks of these tests included."""

from opencode_env.cli_agent.interception import GatewayConfig

OPEN = GatewayConfig(
    max_body=None,
    max_messages=None,
    max_values=None,
    max_depth=None,
    max_parallel_calls=None,
    max_waiting_calls=None,
    max_trace=None,
    max_program_text=None,
    max_share=None,
    idle_timeout=None,
    answer_after=None,
    probe=None,
    raise_open_files=False,
    filter_requests=False,
    filter_headers=False,
    mask_keys=False,
)
