"""Sample `csv-report`: the failing path groups cancelled orders too, which spoils two of the four keys."""

from opencode_env.scripted_model.reply import Reply
from opencode_env.scripted_model.solutions.calls import Solution, bash, read, turn, write

_PROGRAM = """import collections
import csv
import json


def amount(order):
    return int(order["quantity"]) * int(order["price"])


with open("/app/sales.csv", newline="") as file:
    orders = list(csv.DictReader(file))
paid = [order for order in orders if order["status"] == "paid"]

by_region = collections.Counter()
by_product = collections.Counter()
for order in GROUPED:
    by_region[order["region"]] += amount(order)
    by_product[order["product"]] += amount(order)

report = {
    "orders": len(paid),
    "revenue": sum(amount(order) for order in paid),
    "by_region": by_region,
    "best_product": by_product.most_common(1)[0][0],
}
with open("/app/report.json", "w") as file:
    json.dump(report, file, indent=2)
"""

_READ = turn("I read the file.", read("/app/sales.csv"))
_RUN = turn("I run it.", bash("python3 /app/make_report.py && cat /app/report.json"))
_END = turn("The report is in /app/report.json.")


def _write(grouped: str) -> Reply:
    program = _PROGRAM.replace("GROUPED", grouped)
    return turn("I write a program for it.", write("/app/make_report.py", program))


SOLUTION = Solution(solve=(_READ, _write("paid"), _RUN, _END), fail=(_READ, _write("orders"), _RUN, _END))
