"""What a rubric does in a live sandbox: commands, bounded reads, the agent's processes, and whether it still lives."""
