"""Process 1 of a confined sandbox: a standard-library program that serves its host over one socket.

The host's Python starts it with `-E -s -S` inside the sandbox, so its modules import nothing outside the standard
library and only each other. They also avoid `enum`, on which `socket` and `signal` depend: that halves the start.
"""
