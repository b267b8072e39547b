"""What is true of every CLI agent: its sandbox, its path to the model, the end of its processes, its log line.

Nothing here knows which agent runs; the agents are packages beside this one.
"""
