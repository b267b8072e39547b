"""Real MCP servers as tools of a rollout: described in a file, started for it, bridged to its agent, always removed."""
