"""A user on the other side of a conversation: it answers the agent's turns until it says stop."""
