"""A web page as bounded text.

Invariant: unless it is allowed, no request goes to an address that is not public: each name is looked up once, every
address that it has is checked, and the connection goes to the address that was checked, at every redirect anew.
"""

import asyncio
import html
import ipaddress
import re
import socket
from urllib.parse import urljoin, urlsplit

import httpx

from opencode_search.errors import UnreadablePage
from opencode_search.search_endpoint import ANSWER_SECONDS, CODINGS, read_body

MAX_PAGE_BYTES = 2 << 20
MAX_URL_CHARS = 2000
MAX_PAGE_CHARS = 20_000
"""Of one answer."""
_REDIRECTS = 5
_TYPES = ("text/", "application/json", "application/xhtml", "application/xml")
_UNICAST = ipaddress.ip_network("2000::/3")
"""All that IPv6 has given out as public; outside lie, among others, spellings of IPv4 addresses."""
_CLOSED_NAMES = ("2002::/16", "2001::/32", "3fff::/20", "192.0.0.0/24", "192.88.99.0/24", "168.63.129.16")
_CLOSED = tuple(map(ipaddress.ip_network, _CLOSED_NAMES))
"""Addresses that stand for others, or that `is_global` calls public in some versions of Python; and the one at which
Azure tells each of its machines about itself."""
_HIDDEN = ("noscript", "template", "svg")
_RAW = {name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE) for name in ("script", "style")}
"""What holds no tags but its own end, which is not shown either."""
_NAME = re.compile(r"<(/?)([A-Za-z][^\s/>]*+)")
_ATTRIBUTES = re.compile(r"(?:[^>=]++|=\s*+(?:\"[^\"]*+\"|'[^']*+'|(?![\"'])[^\s>]*+))*+>")
_BLOCKS = ("p", "div", "br", "li", "tr", "section", "article", "h1", "h2", "h3", "h4", "h5", "h6", "table", "pre")


async def open_page(url: str, start: int, *, private: bool = False) -> str:
    """The text of a page from character `start` on, at most `MAX_PAGE_CHARS` of it; an `UnreadablePage` if it is not to
    be had or read. With `private`, addresses of this machine and its networks are opened, too."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            kind, body = await _fetched(url, private)
    except ValueError as error:
        raise UnreadablePage(f"the page cannot be read: {error}") from error
    except (httpx.HTTPError, TimeoutError) as error:
        raise UnreadablePage(f"the page cannot be read: {type(error).__name__}") from error
    text = body.decode(errors="replace")
    text = await asyncio.to_thread(text_of, text) if "html" in kind else text
    start = min(max(start, 0), len(text))
    part = text[start : start + MAX_PAGE_CHARS]
    end = start + len(part)
    more = f"\n\n[characters {start} to {end} of {len(text)}; go on with start={end}]" if end < len(text) else ""
    return (part or "The page holds no text.") + more


async def _fetched(url: str, private: bool) -> tuple[str, bytes]:
    async with httpx.AsyncClient(timeout=ANSWER_SECONDS, trust_env=False, follow_redirects=False) as client:
        for _ in range(_REDIRECTS + 1):
            target, headers, extensions = await _checked(url, private)
            async with client.stream("GET", target, headers=headers, extensions=extensions) as response:
                if response.is_redirect:
                    url = urljoin(url, response.headers.get("location", ""))
                    continue
                kind = response.headers.get("content-type", "text/html").lower()
                if response.status_code >= 400 or not kind.startswith(_TYPES):
                    raise UnreadablePage(f"the page cannot be read: HTTP {response.status_code}, {kind}")
                return kind, await read_body(response, MAX_PAGE_BYTES)
    raise UnreadablePage("the page leads to another one too often")


async def _checked(url: str, private: bool) -> tuple[str, dict[str, str], dict[str, str]]:
    """The URL with the address in the place of the name, and what tells the server the name."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError as error:
        raise UnreadablePage("this is not an address of a page") from error
    if parts.scheme not in ("http", "https") or not host or len(url) > MAX_URL_CHARS or parts.username:
        raise UnreadablePage("only http:// and https:// addresses of pages can be opened")
    try:
        looked = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise UnreadablePage(f"there is no {host}") from error
    addresses = [str(entry[4][0]) for entry in looked]
    if not private and not all(map(is_public, addresses)):
        raise UnreadablePage(f"{host} is not a public address")
    address = f"[{addresses[0]}]" if ":" in addresses[0] else addresses[0]
    target = parts._replace(netloc=f"{address}:{port}", fragment="").geturl()
    name = f"[{host}]" if ":" in host else host
    shown = name if parts.port is None else f"{name}:{parts.port}"
    return target, {"Host": shown, "User-Agent": "opencode-search", **CODINGS}, {"sni_hostname": host}


def is_public(address: str) -> bool:
    """Whether an IP address is one of the public network."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            found = found.ipv4_mapped
        elif found not in _UNICAST:
            return False
    return found.is_global and not found.is_multicast and not any(found in network for network in _CLOSED)


def text_of(page: str) -> str:
    """Return what a reader of an HTML page sees, line by line, in time linear in the page's length."""
    pieces: list[str] = []
    at = hidden = 0
    while at < len(page):
        opened = page.find("<", at)
        opened = len(page) if opened < 0 else opened
        if not hidden:
            pieces.append(re.sub(r"\s+", " ", _spelled_out(page[at:opened])))
        named = _NAME.match(page, opened)
        if named is None:
            at = opened + 1
            if page.startswith(("<!", "<?", "</"), opened):
                end = "-->" if page.startswith("<!--", opened) else ">"
                last = page.find(end, opened + 2)
                at = len(page) if last < 0 else last + len(end)
            elif not hidden:
                pieces.append(page[opened:at])
            continue
        name, closing = named[2].lower(), bool(named[1])
        ended = _ATTRIBUTES.match(page, named.end())
        if ended is None:
            break  # nothing behind a tag without an end is shown
        at = ended.end()
        if name in _BLOCKS:
            pieces.append("\n")
        if name in _RAW and not closing:
            closed = _RAW[name].search(page, at)
            at = len(page) if closed is None else closed.start()
        elif name in _HIDDEN and closing:
            hidden = max(0, hidden - 1)
        elif name in _HIDDEN and page[at - 2] != "/":
            hidden += 1
    lines = (" ".join(line.split()) for line in "".join(pieces).split("\n"))
    return "\n".join(line for line in lines if line)


def _spelled_out(text: str) -> str:
    """A text with its character references replaced; a number of many digits is left."""
    return html.unescape(re.sub(r"&#[0-9]{9,}+;?", "\ufffd", text)) if "&" in text else text
