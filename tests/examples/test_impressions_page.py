"""The page of examples/impressions in a real browser: open hours of selected ads, live, through a restart of their
server.

The job is the example's own program, run in process. If a test decides when an epoch is committed, `commit` runs it for
some epochs, on the same store, with a separate server; otherwise the job runs in real time and serves its page itself.
The page's contents are compared with answers of `millstream.query`.
"""

from __future__ import annotations

import hashlib
import importlib
import re
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from millstream import query
from millstream.datastream import StreamExecutionEnvironment
from millstream.jobs.clock import SystemClock
from millstream.jobs.launch.launch import Launch
from millstream.query.server import QueryServer, ServerSettings
from millstream.query.server.rights import Reader, Rights
from millstream.runtime.task.local import LocalRunner
from millstream.storage.memory import MemoryStore
from millstream.testing import ManualClock, run

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "impressions"
STORES = count()
ADS, PER_SECOND = 1_000, 1_000.0
WATCHED = 4  # this many ads have a stream of their own, the others are polled
TOKEN = "a-token-of-some-length"


@pytest.fixture(scope="module")
def hourly() -> Iterator[ModuleType]:
    sys.path.insert(0, str(FOLDER))
    try:
        yield importlib.import_module("hourly")
    finally:
        sys.path.remove(str(FOLDER))
        sys.modules.pop("hourly", None)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium")
    assert chromium is not None, "there is no chromium. Install it: scripts/debian chromium chromium"
    expect.set_options(timeout=60_000)  # the machine may be busy
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium, args=flags)
        yield launched
        launched.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with opened(browser) as page:
        yield page


@contextmanager
def opened(browser: Browser, **options: Any) -> Iterator[Page]:
    """A page in a profile of its own; errors of its script fail the test."""
    with browser.new_context(**options) as context:
        page = context.new_page()
        failures: list[Any] = []
        page.set_default_timeout(10_000)
        page.on("pageerror", lambda error: failures.append(error))
        yield page
        assert failures == []


class Job:
    """The example's program on an in-memory store: an hour is seven to eight epochs long."""

    def __init__(self, hourly: ModuleType, output: Path) -> None:
        self.hourly, self.output = hourly, output
        self.store = f"impressions-page-{next(STORES)}"
        self.epoch = 0

    def commit(self, epochs: int = 1) -> None:
        """Run for this many epochs, and one more in which the job is suspended."""
        env = StreamExecutionEnvironment()
        self._build(env, PER_SECOND, paced=False)
        clock = ManualClock(int(time.time() * 1000))
        run(env, store=self.store, epochs=self.epoch + epochs, epoch_records=8_000, clock=clock, job_name="hourly")
        self.epoch = self.newest().epoch

    @contextmanager
    def running(self, listen: str) -> Iterator[str]:
        """Run in real time until the end of the block, as the example does; yields the address at which the job
        answers.
        """
        settings = self.hourly.settings(listen).set_string("millstream.epoch.min-interval", "150 ms")
        env = StreamExecutionEnvironment(configuration=settings)
        self._build(env, 20_000.0, paced=True)
        launched = Launch(SystemClock(), LocalRunner(), MemoryStore(self.store))
        running = launched.prepare(env._graph("hourly"), env._job_settings()).start()
        try:
            yield running.board.now.query_url
        finally:
            running.stop()
            assert running.wait(30)
        running.result()

    def _build(self, env: StreamExecutionEnvironment, rate: float, paced: bool) -> None:
        env.set_parallelism(1)
        server = self.hourly.AdServer(ADS, rate)
        self.hourly.program(self.hourly.impressions(env, server, None, paced), str(self.output))

    def newest(self) -> query.EpochView:
        return query.open(f"memory://{self.store}").newest()

    def counts(self, ad: int) -> list[str]:
        """The expected contents of the page for an ad."""
        return [f"{window.result['impressions']:,}" for window in self.newest().windows("impressions", ad)]

    def server(self, **changes: Any) -> QueryServer:
        settings = ServerSettings(**{"port": 0, "page": self.hourly.PAGE.read_bytes(), **changes})
        return QueryServer(query.open(f"memory://{self.store}"), settings)


@pytest.fixture
def job(hourly: ModuleType, tmp_path: Path) -> Job:
    return Job(hourly, tmp_path)


def card(page: Page, ad: object) -> Locator:
    return page.get_by_role("listitem").filter(has=page.get_by_role("heading", name=f"Ad {ad}", exact=True))


def expect_counts(page: Page, job: Job, *ads: int) -> None:
    for ad in ads:
        expect(card(page, ad).locator(".count b")).to_have_text(job.counts(ad))


def choose(page: Page, text: str) -> None:
    page.get_by_label("Ad numbers").fill(text)
    page.get_by_role("button", name="Show").click()


def expect_state(page: Page, state: str) -> None:
    expect(page.locator("#pill")).to_have_text(state)


def test_selected_ads_show_their_open_hours_and_update_at_each_commit(page: Page, job: Job) -> None:
    job.commit(6)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    with job.server() as server:
        page.goto(server.url)
        choose(page, "7, 0 7")
        expect_counts(page, job, 7, 0)
        expect_state(page, "Live")
        expect(page.locator(".card")).to_have_count(2)
        expect(page.locator("#job")).to_have_text("hourly")
        expect(page.locator("#epoch")).to_have_text(str(job.epoch))
        expect(page.locator("#age")).to_have_text(re.compile(r"^\d+\.\d s$"))
        expect(page.locator("#watermark")).to_have_text(re.compile(r"^2026-01-01 09:\d\d$"))
        expect(card(page, 7).locator(".when")).to_have_text("09:00 – 10:00")
        expect(card(page, 7).locator("figcaption")).to_contain_text(f"{job.epoch} points")
        expect(card(page, 7).get_by_role("img")).to_have_accessible_name(re.compile("Impressions of ad 7 over"))
        before = job.epoch
        while len(job.counts(7)) < 2:  # until the next hour has begun and the last one is still open
            job.commit()
            expect_counts(page, job, 7, 0)
        assert job.epoch > before
        expect(card(page, 7).locator(".when")).to_have_text(["09:00 – 10:00", "10:00 – 11:00"])
        expect(page.locator("#epoch")).to_have_text(str(job.epoch))
        page.get_by_role("button", name="Remove ad 0").click()
        expect(page.locator(".card")).to_have_count(1)
        page.reload()  # the address contains the selected ads
        expect_counts(page, job, 7)
        expect(page.locator(".card")).to_have_count(1)
        assert all(url.startswith(server.url) for url in asked), "the page asked somebody else"


def test_more_ads_than_browser_connections_all_update(page: Page, job: Job) -> None:
    job.commit(2)
    ads = range(WATCHED + 4)
    with job.server() as server:
        page.goto(f"{server.url}/#{','.join(map(str, ads))}")
        expect_counts(page, job, *ads)
        job.commit()
        expect_counts(page, job, *ads)
        assert page.evaluate("[...cards.values()].filter(card => card.watch).length") == WATCHED


def test_the_page_reports_a_lost_connection_and_reconnects_by_itself(page: Page, job: Job) -> None:
    job.commit(2)
    with job.server() as server:
        page.goto(f"{server.url}/#7")
        expect_counts(page, job, 7)
        kept, port = job.counts(7), int(server.url.rsplit(":", 1)[1])
    expect_state(page, "Disconnected")
    expect(page.locator("#notice")).to_contain_text(f"What you see is of epoch {job.epoch}.")
    job.commit(2)
    expect(card(page, 7).locator(".count b")).to_have_text(kept)
    with job.server(port=port):
        expect_state(page, "Live")
        expect_counts(page, job, 7)
        assert job.counts(7) != kept
        expect(page.locator("#notice")).to_be_hidden()
        expect(card(page, 7).locator("figcaption")).to_contain_text(f"{job.epoch} points")  # including missed updates


def test_errors_are_shown_as_text(page: Page, job: Job) -> None:
    job.commit(1)
    with job.server() as server:
        page.goto(server.url)
        choose(page, "nonsense 5000000 99999999999999999999 7/../8")
        expect(card(page, "nonsense")).to_contain_text("key 'nonsense' is a string, and keys of this state are LONG")
        expect(card(page, 5000000)).to_contain_text("Not seen in any hour that is open")
        for text in ("99999999999999999999", "7/../8"):
            expect(card(page, text).locator(".wrong")).to_contain_text("keys of this state are LONG")
        expect(page.locator("#said")).to_contain_text("Ad ")
        expect_state(page, "Live")


def test_a_token_is_sent_to_a_server_that_requires_one(page: Page, job: Job) -> None:
    job.commit(1)
    rights = Rights({hashlib.sha256(TOKEN.encode()).digest(): Reader("page", ("impressions",))})
    with job.server(rights=rights) as server:
        page.goto(f"{server.url}/#7")
        expect_state(page, "Token needed")
        page.get_by_label("Token").fill(TOKEN)
        page.get_by_role("button", name="Use it").click()
        expect_counts(page, job, 7)
        expect(page.get_by_label("Token")).to_be_hidden()


def test_a_phone_shows_everything_without_scrolling_sideways(browser: Browser, job: Job) -> None:
    job.commit(8)
    with job.server() as server, opened(browser, viewport={"width": 320, "height": 640}) as page:
        page.goto(f"{server.url}/#7,0,{'x' * 90},5000000")
        expect_counts(page, job, 7, 0)
        expect(card(page, "x" * 90).locator(".wrong")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        for scheme, is_dark in (("light", False), ("dark", True)):
            page.emulate_media(color_scheme=scheme)
            paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (max(map(int, re.findall(r"\d+", paper))) < 64) is is_dark
        server.stop()
        expect_state(page, "Disconnected")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


NOTE_WHAT_IS_SHOWN = """() => {
    window.shown = [];
    new MutationObserver(() => {
        for (const hour of document.querySelectorAll(".hour")) {
            shown.push([hour.dataset.start, Number(hour.querySelector("b").textContent.replaceAll(",", ""))]);
        }
    }).observe(document.getElementById("cards"), { subtree: true, childList: true, characterData: true });
}"""


def test_the_job_serves_its_page_itself_and_counts_never_decrease_after_a_restart(page: Page, job: Job) -> None:
    with job.running("127.0.0.1:0") as url:
        page.goto(f"{url}/#0")
        page.evaluate(NOTE_WHAT_IS_SHOWN)
        expect_state(page, "Live")
        expect(card(page, 0).locator(".count b").first).to_be_visible()
    expect_state(page, "Disconnected")
    before = page.evaluate("shown")
    with job.running(url.removeprefix("http://")):
        expect_state(page, "Live")
        # A predicate of Playwright's own would be evaluated by the page, whose policy forbids evaluation.
        until = time.monotonic() + 60
        while len(page.evaluate("shown")) <= len(before) + 3:
            assert time.monotonic() < until, "the page shows nothing new"
            page.wait_for_timeout(50)
    most: dict[str, int] = {}
    for start, impressions in page.evaluate("shown"):
        assert impressions >= most.get(start, 0)
        most[start] = impressions
    assert most[before[-1][0]] > before[-1][1]
