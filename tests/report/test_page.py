"""The page in a real browser: read, filtered, followed by links and by keys, with nothing said and nothing fetched."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from opencode_runs.difficulty.rate import figures, rate, rate_text
from opencode_runs.turns.tree import read_rollouts, tree_of

from tests.report import made
from tests.report.reading import written
from tests.support.browser import Browser


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Pages of runs of several kinds."""
    folder = tmp_path_factory.mktemp("pages")
    training = folder / "training" / "rollouts"
    for step in range(1, 22):
        made.write_run(training / f"step_{step}" / "train" / "all", made.many(16, skill=0.03 * step, tasks=8))
    runs = {
        "rich": [made.write_run(folder / "rich", made.rich())],
        "compacted": [made.write_run(folder / "compacted", [made.episode(1904, "long", made.compacted(1904))])],
        "elsewhere": [
            made.write_run(folder / "elsewhere", [made.episode(1905, "long", made.compacted(1905, elsewhere=True))])
        ],
        "outcomes": [made.write_run(folder / "outcomes", made.every_outcome())],
        "large": [made.write_run(folder / "large", made.many(2000, turns=2))],
        "training": [folder / "training"],
        "turns": [made.write_run(folder / "turns", made.continued())],
        "two": [made.write_run(folder / f"run-{skill}", made.many(60, skill=skill, tasks=12)) for skill in (0.2, 0.8)],
    }
    found = {name: folder / f"{name}.html" for name in runs}
    for name, places in runs.items():
        written(*places, page=found[name])
    priced = made.write_run(folder / "priced", made.rich())
    (priced / "configs/resolved").mkdir(parents=True, exist_ok=True)
    (priced / "configs/resolved/eval.json").write_text('{"model": "small", "client": {"api_key_var": "KEY"}}')
    found["priced"] = folder / "priced.html"
    written(priced, page=found["priced"], options=("--prices", "2,0,8"))
    return found


@pytest.fixture(autouse=True)
def quiet(browser: Browser) -> Iterator[None]:
    """After each test the console has said nothing and nothing but the page was asked for."""
    browser.said.clear()
    browser.asked.clear()
    yield
    assert browser.said == []
    assert {address for address in browser.asked if not address.startswith(("file:", "data:image/"))} == set()


def test_a_compacted_conversation_is_one_story_with_the_summaries_between_its_sections(
    browser: Browser, pages: dict[str, Path]
) -> None:
    place = f"#/r/{1904:032x}"
    browser.open(pages["compacted"], place)
    heads = browser.run("[...document.querySelectorAll('.messages h2.part')].map((head) => head.innerText)")
    assert heads == ["Section 1", "Summary 1", "Section 2", "Summary 2", "Section 3"]
    shown = browser.run("[...document.querySelectorAll('article.message')].map((one) => Number(one.id.slice(1)))")
    assert shown == list(range(20)), "each message once, in the order in which they were said"
    assert "5 branches the history was compacted" in browser.text.replace("\n", " ")
    assert "parts from branch" not in browser.text
    chips = browser.run("[...document.querySelectorAll('.chips a')].map((one) => [one.innerText, one.hash])")
    assert chips[0] == ["as one story", place]
    assert chips[2] == ["summary 1 · 3", f"{place}/branch/1"]
    browser.go(f"{place}/branch/2")
    assert len(browser.run("[...document.querySelectorAll('article.message')].map((one) => one.id)")) == 8
    browser.go(f"{place}/trainer")
    assert "5: 3 sections, 2 summaries" in browser.text
    assert "Sample of branch 1, a summary" in browser.text


def test_a_summary_of_another_seats_model_stands_before_its_section(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["elsewhere"], f"#/r/{1905:032x}")
    heads = "[...document.querySelectorAll('.messages h2.part')].map((head) => head.innerText)"
    assert browser.run(heads) == ["Section 1", "Summary 1", "Section 2", "Summary 2", "Section 3"]
    shown = browser.run("[...document.querySelectorAll('article.message')].map((one) => Number(one.id.slice(1)))")
    assert shown == list(range(15))
    assert browser.run("[...document.querySelectorAll('.chips a')].map((one) => one.innerText)")[2] == "section 1 · 8"


def test_the_overview_shows_what_difficulty_prints(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["rich"])
    header, line = rate_text(figures(rate([pages["rich"].parent / "rich"])), 0).splitlines()[:2]
    printed = line.replace(" ±", "±").split()
    assert len(printed) == len(header.split())
    cells = browser.run("[...document.querySelectorAll('table.numbers tbody td')].map((cell) => cell.innerText)")
    assert [cell.replace(" ±", "±") for cell in cells] == printed
    assert "ask-the-diary" not in browser.text
    assert all(word in browser.text for word in ("Where the time went", "groups with spread\n7 of 10", "hard (< 0.2)"))


def test_a_filter_leaves_what_fits_and_its_address_can_be_kept(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["outcomes"], "#/rollouts")
    assert browser.run("document.querySelectorAll('tr.rollout').length") == len(made.every_outcome())
    assert browser.run("document.querySelector('button.more').offsetParent") is None, "nothing more to show"
    choice = "const choice = document.querySelector('[data-filter=outcome]'); choice.value = 'ProviderError';"
    browser.run(f"(() => {{ {choice} choice.dispatchEvent(new Event('change')); }})()")
    browser.until("document.querySelectorAll('tr.rollout').length === 1")
    where = browser.run("location.hash")
    browser.open(pages["outcomes"], where)
    assert browser.run("document.querySelector('a.open').innerText") == "fails-with-ProviderError"
    browser.go("#/rollouts?tool=edit&sort=reward&min=0&max=0")
    assert browser.run("document.querySelectorAll('tr.rollout').length") == 1 + len(made.STOPS)


def test_each_outcome_opens_with_its_error_and_log(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["outcomes"], "#/rollouts")
    links = browser.run("[...document.querySelectorAll('a.open')].map((one) => one.getAttribute('href'))")
    for link, row in zip(links, made.every_outcome(), strict=True):
        browser.go(link)
        kind = (row["errors"] or [error for trace in row["traces"] for error in trace["errors"]] or [{}])[0].get("type")
        assert kind is None or kind in browser.text, link
        assert "[31m" not in browser.text
        browser.go(f"{link}/scoring")
        assert not row["traces"] or "the end of the log" in browser.text, link


def test_a_conversation_is_read_as_a_person_reads_it(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["rich"], f"#/r/{1000:032x}")
    assert "**even**" not in browser.text
    assert browser.run("document.querySelector('.prose strong').innerText") == "even"
    assert browser.run("document.querySelectorAll('.diff .add').length") > 0
    assert browser.run("document.querySelectorAll('.prose .item').length") == 2
    browser.open(pages["rich"], f"#/r/{1900:032x}")
    assert browser.run("document.querySelector('.term .a2').innerText") == "ok"
    assert "until the next call" in browser.text
    browser.go(f"#/r/{1900:032x}/timeline")
    assert all(word in browser.text for word in ("sandbox", "model call 4", "edit", "sub call 3", "scoring"))
    browser.go(f"#/r/{1900:032x}/scoring")
    assert all(word in browser.text for word in ("verify", "exit 0", "python3 -m unittest", "the end of the log"))


def test_a_link_leads_to_a_message_and_a_sub_call_opens_its_own_conversation(
    browser: Browser, pages: dict[str, Path]
) -> None:
    browser.open(pages["rich"], f"#/r/{1900:032x}/m/4")
    assert browser.run("document.activeElement.id") == "m4"
    browser.run("document.querySelector('.subs a').click()")
    browser.until(f"location.hash.includes('/sub/1.0') && {READY_TEXT}('main conversation')")
    assert "Part 1 says nothing of a badger." in browser.text
    assert browser.run("document.querySelectorAll('article.message').length") == 2
    browser.run("document.querySelectorAll('.chips a')[2].click()")
    browser.until(f"{READY_TEXT}('Part 3 says nothing')")


READY_TEXT = "((words) => document.body.innerText.includes(words))"


def test_kept_turns_are_a_tree_with_the_value_of_each_turn(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["turns"])
    (trunk,) = tree_of(read_rollouts([pages["turns"].parent / "turns"])[0]).trunks
    low, high = trunk.turns[0].low, trunk.turns[0].high
    assert f"turn 2\n0.50 [{low:.2f}, {high:.2f}] of 4 continuations, 1 failed" in browser.text
    assert "turn 3\n1.00" in browser.text  # of one of them
    browser.run("document.querySelector('.turntree ul a').click()")
    browser.until("document.querySelectorAll('tr.rollout').length === 5")
    browser.run("document.querySelector('a.open').click()")
    browser.until(f"{READY_TEXT}('went on from turn 2 of another')")
    browser.run("[...document.querySelectorAll('.facts a')][0].click()")
    browser.until(f"location.hash === '#/r/{1:032x}' && {READY_TEXT}('All tests pass now.')")


def test_tokens_are_shown_as_their_text_where_the_trace_has_it(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["rich"], f"#/r/{1000:032x}/trainer")
    trained = "[...document.querySelectorAll('details[open] .token.trained')].slice(0, 3)"
    texts = browser.run(f"{trained}.map((one) => one.textContent)")
    assert texts[:2] == ["I look at", " the tests."]
    assert texts[2].isdigit()
    shades = browser.run(f"{trained}.map((one) => [one.style.getPropertyValue('--surprise'), one.title])")
    assert all(0 <= float(shade) <= 1 and "log-probability -" in title for shade, title in shades)


def test_a_fork_shows_its_first_difference_and_a_trainer_what_trains(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["rich"], f"#/r/{1902:032x}")
    assert all(word in browser.text for word in ("2 branches", "Branch 1 parts from branch 0 at message 3", "MEDIAN"))
    assert "message 3 from turn 2 on: another tool result" in browser.text
    browser.go(f"#/r/{1902:032x}/trainer")
    assert all(word in browser.text for word in ("forks", "Sample of branch 0", "Sample of branch 1"))
    shaded = browser.run("[...document.querySelectorAll('.token.trained')].map((one) => one.title)")
    assert shaded
    assert all(title.startswith("log-probability -") for title in shaded)
    browser.go(f"#/r/{1001:032x}/trainer")
    assert "4 rollouts, mean reward 0.50, spread 1.00" in browser.text.replace("\n", " ")
    browser.go(f"#/r/{1903:032x}/scoring")
    assert all(word in browser.text for word in ("World shop", "seed 3, 2 steps, total reward 3.00", "terminated"))


def test_the_attempts_of_a_task_stand_side_by_side(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["rich"], "#/task/fix-median")
    assert browser.run("document.querySelectorAll('article.column').length") == 4
    assert browser.text.count("advantage ") == 4


def test_keys_alone_lead_through_the_page(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["rich"])
    browser.press("/")
    browser.until("document.activeElement.id === 'search'")
    browser.type("diary")
    browser.until("document.querySelectorAll('tr.rollout').length === 1 && document.activeElement.id === 'search'")
    browser.press("Escape")
    browser.press("j")
    browser.until("document.activeElement.matches('a.open')")
    browser.press("Enter")
    browser.until("document.querySelector('article.message') !== null")
    browser.press("j")
    browser.until("document.activeElement.matches('article.message')")
    browser.press("u")
    browser.until("location.hash.startsWith('#/rollouts?q=diary') && document.querySelector('tr.rollout') !== null")
    browser.press("?")
    browser.until(f"{READY_TEXT}('previous or next rollout')")
    assert browser.run("document.querySelectorAll('[onclick], [tabindex=\"-1\"]:not(main)').length") == 0


def test_the_words_of_conversations_are_found(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["rich"], "#/rollouts?q=MEDIAN+of")
    assert browser.run("document.querySelectorAll('tr.rollout').length") == 0
    browser.run("document.getElementById('search').value = 'import MEDIAN'; document.getElementById('deep').click()")
    browser.until("document.querySelectorAll('tr.rollout').length > 0 && location.hash.includes('in=')")
    assert "forked" in browser.text


def test_a_heading_orders_a_metric_becomes_a_column_and_the_list_is_saved_as_csv(
    browser: Browser, pages: dict[str, Path]
) -> None:
    browser.open(pages["rich"], "#/rollouts")
    column = "[...document.querySelectorAll('td[data-name=\"{}\"]')].map((cell) => cell.innerText)"
    for name in ("length", "turns"):
        browser.run(f"document.getElementById('by-{name}').click()")
        browser.until(f"location.hash.includes('sort=-{name}')")
        numbers = [
            int(text.split()[0].replace(",", "")) for text in browser.run(column.format(name)) if text[0].isdigit()
        ]
        assert numbers == sorted(numbers, reverse=True)
        assert len({*numbers}) > 1
    choice = "const choice = document.querySelector('[data-filter=add]'); choice.value = 'num_turns';"
    browser.run(f"(() => {{ {choice} choice.dispatchEvent(new Event('change')); }})()")
    browser.until("location.hash.includes('columns=num_turns')")
    shown = browser.run(column.format("num_turns"))
    assert any(text.isdigit() for text in shown)
    browser.run("window.kept = []; URL.createObjectURL = (blob) => { window.kept.push(blob); return '#'; }")
    browser.run("document.getElementById('csv').click()")
    browser.run("window.kept[0].text().then((text) => (window.csv = text))")
    browser.until("window.csv !== undefined")
    rows = list(csv.DictReader(io.StringIO(browser.run("window.csv"), newline="")))
    assert [row["num_turns"] for row in rows] == [text if text.isdigit() else "" for text in shown]


def test_the_overview_says_what_a_run_cost_how_long_it_took_and_how_it_can_be_repeated(
    browser: Browser, pages: dict[str, Path]
) -> None:
    browser.open(pages["priced"])
    for said in ("$ vf-eval @ ", "configs/resolved/eval.json", "rollouts a minute", "stop conditions", "shortcuts"):
        assert said in browser.text.lower(), said
    used = [call["usage"] for line in made.rich() for trace in line["traces"] for call in trace["calls"]]
    cost = sum(2 * one["prompt_tokens"] + 8 * one["completion_tokens"] for one in used) / 1e6
    assert f"${cost:.4f} at the prices given" in browser.text
    browser.open(pages["outcomes"])
    assert "Errors by message" in browser.text
    browser.run("document.querySelector('.failures a').click()")
    browser.until("document.querySelectorAll('tr.rollout').length > 0 && location.hash.includes('error=')")


def test_two_attempts_of_a_task_are_compared_alone(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["rich"], "#/task/fix-median")
    for number in (0, 2):
        browser.run(f"document.querySelectorAll('.chip')[{number}].click()")
        browser.until("document.querySelectorAll('article.column').length === " + ("1" if number == 0 else "2"))


def test_two_thousand_rollouts_open_filter_and_answer(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["large"], "#/rollouts")
    assert "2,000 rollouts of 2,000" in browser.text
    assert browser.run("document.querySelectorAll('tr.rollout').length") == 200
    browser.go("#/rollouts?q=task-7&min=1")
    assert 0 < browser.run("document.querySelectorAll('tr.rollout').length") < 200
    browser.run("document.querySelector('a.open').click()")
    browser.until("document.querySelectorAll('article.message').length === 5")


def test_many_checkpoints_are_curves(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["training"], "#/time")
    assert browser.run("document.querySelectorAll('.chart svg').length") == 6
    assert browser.run("document.querySelector('.curve.c1').getAttribute('points').split(' ').length") == 21
    assert all(word in browser.text for word in ("Learned", "Forgotten", "step 21"))
    cells = "[...document.querySelectorAll('.numbers tbody tr:first-child td')].slice(0, 2)"
    (source,) = figures(rate([pages["training"].parent / "training/rollouts/step_1/train/all/traces.jsonl"])).sources
    assert browser.run(f"{cells}.map((one) => one.textContent)") == ["step 1", f"{source.avg_reward:.2f}"]


def test_two_runs_say_what_differs(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["two"])
    assert "run-0.8 against run-0.2: +0." in browser.text
    assert "the interval leaves out 0" in browser.text


def test_it_fits_a_phone_and_has_names_for_a_screen_reader(browser: Browser, pages: dict[str, Path]) -> None:
    browser.size(390, 840)
    try:
        for where in ("#/", "#/rollouts", f"#/r/{1900:032x}", f"#/r/{1900:032x}/timeline", f"#/r/{1900:032x}/trainer"):
            browser.open(pages["rich"], where)
            assert browser.run("document.documentElement.scrollWidth") <= 390, where
            assert browser.run(UNNAMED) == [], where
    finally:
        browser.size(1280, 860)


UNNAMED = """[...document.querySelectorAll('a, button, input, select, svg, [role=img]')]
  .filter((one) => !(one.innerText || one.getAttribute('aria-label') || one.closest('label, [aria-label]')))
  .map((one) => one.outerHTML)"""
