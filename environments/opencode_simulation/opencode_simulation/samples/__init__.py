"""The shipped worlds, and their rows as JSONL files of the worlds' names."""
