"""The documentation site as it is built: in a real browser, and link by link."""

import functools
import re
import threading
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest
from chromium import browser, needs_chromium
from website.__main__ import build

pytest.importorskip("zensical")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

PAGES = ["index", "concepts", "benchmarks", "ppo", "reference/muster", "reference/commands"]
WAYS = ["served", "from a disk"]


class Quiet(SimpleHTTPRequestHandler):
    """A server that does not write about requests."""

    def log_message(self, *_):
        pass


class Found(HTMLParser):
    """The links, the anchors and what a page loads."""

    def __init__(self, text):
        super().__init__()
        self.links, self.anchors, self.loads = [], set(), []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.anchors |= {given.get("id"), given.get("name") if tag == "a" else None}
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        if tag == "link" and given.get("rel") not in ("prev", "next", "canonical"):
            self.loads.append(given["href"])
        if tag in ("script", "img", "iframe", "source") and given.get("src"):
            self.loads.append(given["src"])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    return build(tmp_path_factory.mktemp("built")).parent


@pytest.fixture(scope="module")
def address(site):
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def chromium():
    with browser() as found:
        yield found


@pytest.fixture(params=WAYS)
def opened(request, chromium, site, address):
    """A browser, and where the site begins for it."""
    chromium.requests.clear()
    chromium.complaints.clear()
    return chromium, address if request.param == "served" else site.as_uri()


def test_every_link_anchor_and_asset_of_the_site_is_there(site):
    pages = {path: Found(path.read_text()) for path in site.rglob("*.html")}
    assert len(pages) > 60
    dead, outside = [], []
    for path, found in pages.items():
        if path.name == "404.html":
            continue
        outside += [load for load in found.loads if re.match(r"(\w+:)?//", load)]
        for link in [*found.links, *found.loads]:
            target, anchor = urldefrag(unquote(link))
            if re.match(r"[a-z]+:", link):
                continue
            there = (path.parent / target).resolve() if target else path
            known = pages[there].anchors if there in pages else {anchor}
            if not there.is_file() or (anchor and anchor not in known):
                dead.append((path.name, link))
    assert dead == [] and outside == []


@needs_chromium
@pytest.mark.parametrize("width", [400, 1300])
def test_pages_render_without_complaints_or_requests_to_others(opened, width):
    page, begins = opened
    for name in PAGES:
        page.open(f"{begins}/{name}.html", width, 900)
        assert page.run("document.querySelector('article h1').textContent.length > 2"), name
        fits = "document.documentElement.scrollWidth <= innerWidth"
        assert page.run(fits), f"{name} scrolls sideways"
        assert page.run("[...document.images].every(image => image.naturalWidth > 0)"), name
    assert page.complaints == []
    assert [url for url in page.requests if not url.startswith((begins, "data:"))] == []


@needs_chromium
def test_search_finds_a_word_offline(opened):
    page, begins = opened
    page.open(f"{begins}/index.html", 400, 800)
    page.run("document.querySelector('.md-search__button').click()")
    dialog = "[...document.querySelectorAll('div')].find(each => each.shadowRoot)?.shadowRoot"
    page.wait_for(f"{dialog}?.activeElement?.matches('input')")
    page.call("Input.insertText", text="stratified bootstrap")
    results = f"[...{dialog}.querySelectorAll('a')].map(each => each.href)"
    page.wait_for(f"{results}.some(href => href.includes('report_statistics.html'))")
    assert page.complaints == []
    assert [url for url in page.requests if not url.startswith((begins, "data:"))] == []


@needs_chromium
def test_the_menu_opens_on_a_narrow_screen(opened):
    page, begins = opened
    page.open(f"{begins}/concepts.html", 400, 800)
    shown = "document.querySelector('.md-nav--primary').getBoundingClientRect().left >= 0"
    page.run("document.querySelector('[for=__drawer]').click()")
    page.wait_for(shown)
    assert page.run("!!document.querySelector('.md-nav--primary a[href*=\"tutorial.html\"]')")


def test_the_site_has_no_page_that_is_empty(site):
    for path in site.rglob("*.html"):
        text = path.read_text()
        if path.name != "404.html":
            article = text.partition("<article")[2]
            assert len(re.sub("<[^>]*>", "", article)) > 40, path.name
    assert Path(site / "search.js").stat().st_size > 100_000
