"""Sample `pig-latin`: the failing path moves one letter only, which gets 11 of 20 lines right."""

from opencode_env.scripted_model.reply import Reply
from opencode_env.scripted_model.solutions.calls import Solution, bash, read, turn, write

_PROGRAM = r"""import re
import sys

for word in sys.stdin.read().split():
    if word[0] in "aeiou":
        print(word + "way")
    else:
        start, rest = re.match(r"PATTERN", word).groups()
        print(rest + start + "ay")
"""

_READ = turn("I look at the words.", read("/app/words.txt"))
_RUN = turn(
    "I translate them.",
    bash("python3 /app/pig.py < /app/words.txt > /app/pig.txt && paste /app/words.txt /app/pig.txt"),
)
_END = turn("The translation is in /app/pig.txt.")


def _write(pattern: str) -> Reply:
    return turn("I write a program for it.", write("/app/pig.py", _PROGRAM.replace("PATTERN", pattern)))


SOLUTION = Solution(
    solve=(_READ, _write(r"((?:qu|[^aeiou])(?:qu|[^aeiouyq])*)(.*)"), _RUN, _END),
    fail=(_READ, _write(r"(.)(.*)"), _RUN, _END),
)
