"""What a rubric does in a live sandbox: commands, checked programs, bounded reads, and ending the agent."""
