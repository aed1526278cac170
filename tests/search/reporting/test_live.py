"""Tests the page that follows a search: served to this machine alone, anew when the journal grows."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestClient, TestServer

from search.record.home import EVENTS_FILE, FINDINGS_FILE, VERIFICATION_FILE
from search.reporting.live import Live
from search.study import STUDY_FILE
from trainable.errors import UserError


async def client_of(folder: Path, written: list[int]) -> TestClient[web.Request, web.Application]:
    """Return a client of a page that says how often it was written."""

    def write() -> str:
        written.append(1)
        return f"page {len(written)}"

    return TestClient(TestServer(Live(folder, write).app(), host="127.0.0.1"))


def grow(folder: Path) -> None:
    with (folder / EVENTS_FILE).open("ab") as file:
        file.write(b"{}\n")


def test_the_page_is_written_again_only_when_the_journal_has_grown(tmp_path: Path) -> None:
    async def served() -> list[str]:
        async with await client_of(tmp_path, []) as client:
            found = [await (await client.get("/")).text() for _ in range(2)]
            grow(tmp_path)
            return [*found, await (await client.get("/")).text()]

    assert asyncio.run(served()) == ["page 1", "page 1", "page 2"]


@pytest.mark.parametrize("name", [VERIFICATION_FILE, FINDINGS_FILE, STUDY_FILE])
def test_the_page_is_written_again_when_a_file_that_it_shows_is_new(name: str, tmp_path: Path) -> None:
    async def served() -> list[str]:
        async with await client_of(tmp_path, []) as client:
            before = await (await client.get("/")).text()
            (tmp_path / name).touch()
            return [before, await (await client.get("/")).text()]

    assert asyncio.run(served()) == ["page 1", "page 2"]


def test_a_search_that_can_no_longer_be_read_is_one_message(tmp_path: Path) -> None:
    def write() -> str:
        raise UserError("line 3: damaged")

    async def served() -> tuple[int, str]:
        async with TestClient(TestServer(Live(tmp_path, write).app(), host="127.0.0.1")) as client:
            answer = await client.get("/")
            return answer.status, await answer.text()

    assert asyncio.run(served()) == (503, "line 3: damaged")


def test_browsers_are_told_when_the_journal_grows(tmp_path: Path) -> None:
    async def served() -> tuple[str, bytes]:
        async with await client_of(tmp_path, []) as client:
            await client.get("/")
            async with client.get("/events") as events:
                grow(tmp_path)
                while not (line := await asyncio.wait_for(events.content.readline(), 60)).startswith(
                    b"data:"
                ):
                    pass
                return events.headers["Content-Type"], line

    kind, line = asyncio.run(served())
    assert kind == "text/event-stream"
    assert line.startswith(b"data: False 3:")  # no driver, and a journal of three bytes


def test_a_page_of_another_site_cannot_read_it(tmp_path: Path) -> None:
    async def served() -> int:
        async with await client_of(tmp_path, []) as client, ClientSession() as session:
            answer = await session.get(client.make_url("/"), headers={"Host": "evil.example"})
            return answer.status

    assert asyncio.run(served()) == 403
