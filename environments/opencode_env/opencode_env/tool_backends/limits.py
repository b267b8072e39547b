"""How much one answer of a tool server may be, whichever way it comes."""

MAX_ANSWER_BYTES = 8 * 1024 * 1024
TOO_LONG = f"The answer is longer than {MAX_ANSWER_BYTES} bytes; ask for less."
"""What the agent reads of a longer one: it may have asked for a file of its own making."""
