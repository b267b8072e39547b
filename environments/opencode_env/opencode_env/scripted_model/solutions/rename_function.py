"""Sample `rename-function`: the failing path replaces the name inside longer names too."""

from opencode_env.scripted_model.solutions.calls import Solution, bash, edit, grep, turn

_GREP = turn("I search for the name.", grep("calc_total"))
_RUN = turn("I run the report.", bash("cd /app && python3 -m shop.report"))
_FILES = "shop/cart.py shop/checkout.py shop/report.py docs/pricing.md"

SOLUTION = Solution(
    solve=(
        _GREP,
        turn(
            "`recalc_totals` and `calc_total_limit` only look alike; I rename whole words.",
            bash(f"cd /app && sed -i 's/\\bcalc_total\\b/order_total/g' {_FILES}"),
        ),
        turn("Is the old name left anywhere?", grep(r"\bcalc_total\b"), bash("cd /app && python3 -m shop.report")),
        turn("`calc_total` is `order_total` everywhere, and the report prints what it printed before."),
    ),
    fail=(
        _GREP,
        turn(
            "I replace it in all files.",
            *(edit(f"/app/{name}", "calc_total", "order_total", everywhere=True) for name in _FILES.split()),
        ),
        _RUN,
        turn("`calc_total` is `order_total` everywhere."),
    ),
)
