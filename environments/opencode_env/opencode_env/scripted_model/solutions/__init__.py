"""What the scripted model does with each sample task: one module per task, by the task's id."""

from collections.abc import Mapping
from types import MappingProxyType

from opencode_env.scripted_model.solutions import (
    arithmetic_orders,
    cone_volume,
    count_errors,
    csv_report,
    fix_median,
    pig_latin,
    quadratic_roots,
    rename_function,
    rotate_logs,
    write_roman,
)
from opencode_env.scripted_model.solutions.calls import Solution

SOLUTIONS: Mapping[str, Solution] = MappingProxyType(
    {
        "fix-median": fix_median.SOLUTION,
        "write-roman": write_roman.SOLUTION,
        "count-errors": count_errors.SOLUTION,
        "arithmetic-orders": arithmetic_orders.SOLUTION,
        "rename-function": rename_function.SOLUTION,
        "csv-report": csv_report.SOLUTION,
        "pig-latin": pig_latin.SOLUTION,
        "rotate-logs": rotate_logs.SOLUTION,
        "cone-volume": cone_volume.SOLUTION,
        "quadratic-roots": quadratic_roots.SOLUTION,
    }
)
"""By the id of the sample."""

__all__ = ["SOLUTIONS", "Solution"]
