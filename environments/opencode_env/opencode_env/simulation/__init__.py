"""Simulated surroundings of an agent: tool servers, worlds, and a user on the other side."""
