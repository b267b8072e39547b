"""OpenCode's log is read from its end, and is never trusted further than its form."""

import json
from typing import Any

from opencode_env.agents.opencode.harness import ErrorEvent, RunLog, parse_log

SESSION = "ses_e05d8ac59ffem2lRwQpAxYhdh5"


def event(kind: str, **fields: Any) -> str:
    return json.dumps({"type": kind, "sessionID": SESSION, **fields}, ensure_ascii=False)


def failure(name: str, message: str) -> str:
    return event("error", error={"name": name, "data": {"message": message}})


def test_a_line_separator_inside_an_event_does_not_cut_it() -> None:
    text = event("text", part={"text": "one\u2028two\u0085three\x0bfour"})
    log = parse_log(text + "\n" + failure("APIError", "gone\u2028away"), "")
    assert log.session_id == SESSION
    assert log.error == ErrorEvent("APIError", "gone\u2028away")


def test_a_first_line_that_was_cut_is_skipped() -> None:
    assert parse_log(event("step_start")[20:] + "\n" + failure("APIError", "late"), "").error is not None


def test_an_error_that_opencode_worked_on_after_is_none() -> None:
    assert parse_log(failure("APIError", "passing") + "\n" + event("step_start"), "").error is None


def test_the_last_of_several_errors_counts() -> None:
    log = parse_log("\n".join([failure("A", "first"), event("text"), failure("B", "second")]), "")
    assert log.error == ErrorEvent("B", "second")


def test_only_something_that_looks_like_a_session_id_is_taken_for_one() -> None:
    forged = [json.dumps({"type": "text", "sessionID": value}) for value in ("--help", "ses_$(reboot)", 7, None)]
    assert parse_log("\n".join(forged), "").session_id is None


def test_a_log_of_anything_else_says_nothing() -> None:
    noise = '[]\n7\n"text"\nnull\n{"type": "error"\n\x00\x01\n{"type":["error"]}\n' + "[" * 10_000
    assert parse_log(noise, "trouble") == RunLog(None, None, noise, "trouble")


def test_an_error_event_of_any_form_is_an_error() -> None:
    errors: tuple[Any, ...] = (None, "text", 7, [], {}, {"name": None}, {"data": "text"}, {"data": {"message": ["a"]}})
    for error in errors:
        assert parse_log(json.dumps({"type": "error", "error": error}), "").error is not None


def test_a_huge_error_message_is_bounded() -> None:
    error = parse_log(failure("APIError", "x" * 1_000_000), "").error
    assert error is not None
    assert len(error.message) == 2000


def test_the_tail_is_bounded_in_bytes_and_never_cuts_a_character() -> None:
    log = RunLog(events_tail="é" * 100, stderr_tail="ü" * 100)
    assert (log.tail(9), log.tail(0)) == ("é" * 4 + "\n" + "ü" * 4, "")


def test_the_tail_of_a_quiet_standard_error_is_the_events() -> None:
    assert RunLog(events_tail="events\n", stderr_tail=" \n").tail(100) == "events"
