"""The search server's two tools against a real endpoint and real pages, all on the loopback."""

import asyncio
import tracemalloc
from typing import Any

import pytest
from opencode_search import SearchEndpoint, SearchEndpointDown, SearchOptions, UnreadablePage, open_page, text_of
from opencode_search.pages import MAX_PAGE_BYTES, is_public
from opencode_search.search_endpoint import CONTROL

from tests.deepdive.fake_web import KEY, FakeWeb, fake_web


def options(fake: FakeWeb, **more: Any) -> SearchOptions:
    """Options for the fake endpoint."""
    return SearchOptions(url=f"{fake.url}/search", **more)


async def test_results_are_listed_and_bounded_and_the_key_goes_in_its_header(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEARCH_API_KEY", KEY)
    async with fake_web() as fake:
        found = await SearchEndpoint(options(fake)).search("how many " * 100, 99)
        fake.results = []
        nothing = await SearchEndpoint(options(fake, key_prefix="Bearer ")).search("x", -3)
    assert found.startswith(f"1. Wall of stones\n{fake.url}/page\nsss")
    assert len(found) < 1000
    assert nothing == "Nothing was found."
    assert [len(asked["q"]) for asked in fake.asked] == [400, 1]
    assert [asked["num"] for asked in fake.asked] == [10, 1]
    assert fake.keys == [KEY, f"Bearer {KEY}"]
    assert KEY not in found


@pytest.mark.parametrize(("status", "asked"), [(401, 2), (503, 6)])
async def test_an_endpoint_that_does_not_answer_our_query_either_is_down(
    status: int, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opencode_search.search_endpoint.PAUSE", 0.01)
    monkeypatch.setattr("opencode_search.search_endpoint.PATIENCE", 30.0 if status == 401 else 0.25)
    async with fake_web() as fake:
        fake.status = status
        with pytest.raises(SearchEndpointDown, match=f"HTTP {status}"):
            await SearchEndpoint(options(fake)).search("x", 1)
        assert {query["q"] for query in fake.asked} == {"x", CONTROL}
        assert len(fake.asked) == asked if status == 401 else len(fake.asked) >= 4


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 408, 413, 422, 429, 451, 500, 502, 503])
async def test_a_query_that_alone_is_refused_is_an_answer(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opencode_search.search_endpoint.PAUSE", 0.01)
    async with fake_web() as fake:
        fake.status, fake.refused, endpoint = status, "union select", SearchEndpoint(options(fake))
        with pytest.raises(ValueError, match=f"refused this query .HTTP {status}"):
            await endpoint.search("1 union select 2", 1)
        assert await endpoint.search("x", 1)


async def test_a_flood_is_told_to_wait_and_brings_nothing_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opencode_search.search_endpoint.PER_MINUTE", 20)
    monkeypatch.setattr("opencode_search.search_endpoint.PAUSE", 0.01)
    async with fake_web() as fake:
        fake.allowed, fake.busy = 3, 5
        endpoint = SearchEndpoint(options(fake))
        found = await asyncio.gather(*(endpoint.search("x", 1) for _ in range(30)), return_exceptions=True)
    told = {str(one) for one in found if isinstance(one, Exception)}
    assert told == {"more than 20 searches in a minute; go on with what was found"}
    assert sum(isinstance(one, str) for one in found) == 20


async def test_a_packed_page_takes_no_more_memory_than_a_plain_one() -> None:
    async with fake_web() as fake:
        tracemalloc.start()
        try:
            assert "no text" in await open_page(f"{fake.url}/packed", 0, private=True)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        with pytest.raises(UnreadablePage, match="packed by 'gzip, gzip'"):
            await open_page(f"{fake.url}/packed?twice=1", 0, private=True)
    assert peak < 100 * MAX_PAGE_BYTES  # a body, its text and the list of its pieces


async def test_a_page_is_read_as_text_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opencode_search.pages.MAX_PAGE_CHARS", 2000)
    async with fake_web() as fake:
        assert await open_page(f"{fake.url}/page", 0, private=True) == "t\nThe wall\nhas 4711 stones & no door."
        first = await open_page(f"{fake.url}/long", 0, private=True)
        last = await open_page(f"{fake.url}/long", 4990, private=True)
        assert "[characters 0 to 2000 of 5000; go on with start=2000]" in first
        assert last == "abcdefghij"
        for name, told in (("gone", "HTTP 404"), ("picture", "image/png"), ("round", "too often")):
            with pytest.raises(UnreadablePage, match=told):
                await open_page(f"{fake.url}/{name}", 0, private=True)


@pytest.mark.parametrize(
    "url",
    [
        "{}/page", "http://localhost:1/", "http://127.1/", "http://[::1]/", "http://169.254.169.254/latest",
        "file:///etc/passwd", "http://0x7f000001/", "http://[::ffff:10.0.0.1]/", "http://user@8.8.8.8/",
        "ftp://8.8.8.8/", "http:///x", "http://[", "",
    ],
)  # fmt: skip
async def test_only_public_addresses_are_opened(url: str) -> None:
    async with fake_web() as fake:
        with pytest.raises(UnreadablePage, match=r"not a public address|only http|not an address|there is no"):
            await open_page(url.format(fake.url), 0)


async def test_a_redirect_is_checked_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    async with fake_web() as fake:
        # The loopback counts as public, and nothing else does.
        monkeypatch.setattr("opencode_search.pages.is_public", lambda at: at == "127.0.0.1" or is_public(at))
        with pytest.raises(UnreadablePage, match=r"169\.254\.169\.254 is not a public address"):
            await open_page(f"{fake.url}/inside", 0)


def test_public_addresses_are_told_from_others() -> None:
    assert all(map(is_public, ["8.8.8.8", "2606:4700::1111"]))
    local = ["127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0"]
    odd = ["224.0.0.1", "255.255.255.255", "::1", "fe80::1%eth0", "fc00::1", "::ffff:127.0.0.1", "2002:7f00:1::", "x"]
    spelled = ["64:ff9b::7f00:1", "64:ff9b:1::7f00:1", "::127.0.0.1", "::ffff:0:7f00:1", "2001::7f00:1"]
    clouds = ["192.0.0.192", "168.63.129.16", "100.100.100.200", "fd00:ec2::254", "::ffff:168.63.129.16"]
    assert not any(map(is_public, [*local, *odd, *spelled, *clouds, "fec0::1", "5f00::1", "3fff::1"]))


def test_what_is_not_shown_is_not_read() -> None:
    assert text_of("<style>x</style>a<br>b <b>c</b><noscript>d</noscript><p>e") == "a\nb c\ne"


def test_tags_without_an_end_and_strange_ones_are_read_as_a_browser_does() -> None:
    assert text_of("1 < 2 <p title='x>y'>b<a href=it's>c</a><!-- d > e -->f<svg/>g&#99999999999;&lt;<a href='") == (
        "1 < 2\nbcfg\ufffd<"
    )
    assert text_of("a<script>'</scripts>'</SCRIPT >b<!-- c") == "ab"
