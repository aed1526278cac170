"""The report of a search, served on this machine, anew whenever its journal grows (`report --watch`)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from aiohttp import web

from search.record.folder import is_driven
from search.record.home import REPORTED
from trainable.errors import UserError

HOST = "127.0.0.1"
POLL_SECONDS = 1.0  # the journal is looked at so often

Write = Callable[[], str]  # makes the page of the search as it is now


class Live:
    """A server of one page, which tells browsers by server-sent events when there is more.

    The page is written anew when it is asked for and the search has changed since.
    """

    def __init__(self, folder: Path, write: Write) -> None:
        self._folder, self._write = folder, write
        self._writing = asyncio.Lock()
        self._page, self._written_at = "", ""

    def app(self) -> web.Application:
        """Return the application: the page at `/`, the events at `/events`."""
        app = web.Application(middlewares=[_for_this_machine])
        app.add_routes([web.get("/", self._serve_page), web.get("/events", self._serve_events)])
        return app

    def _moment(self) -> str:
        """Return what changes whenever the page may: the sizes and times of the files that it shows, and
        whether a driver is at work, since a killed one writes nothing."""
        found = (path.stat() for name in REPORTED if (path := self._folder / name).exists())
        files = " ".join(f"{each.st_size}:{each.st_mtime_ns}" for each in found)
        return f"{is_driven(self._folder)} {files}"

    async def _serve_page(self, request: web.Request) -> web.Response:
        async with self._writing:
            if (moment := self._moment()) != self._written_at:
                try:
                    self._page, self._written_at = await asyncio.to_thread(self._write), moment
                except UserError as error:  # the journal was damaged since, or the folder moved away
                    return web.Response(text=str(error), status=503)
        return web.Response(text=self._page, content_type="text/html", headers={"Cache-Control": "no-store"})

    async def _serve_events(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"}
        )
        await response.prepare(request)
        with suppress(ConnectionResetError):  # the page was closed
            await self._tell(response)
        return response

    async def _tell(self, response: web.StreamResponse) -> None:
        announced = self._written_at
        while True:
            moment = self._moment()
            # a comment finds who has left
            line = f"data: {moment}" if moment != announced else ": nothing new"
            await response.write(f"{line}\n\n".encode())
            announced = moment
            await asyncio.sleep(POLL_SECONDS)


@web.middleware
async def _for_this_machine(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Refuse requests under another name than this machine's own: pages of other sites could send them."""
    if request.url.host not in (HOST, "localhost"):
        raise web.HTTPForbidden(text=f"this page is at http://{HOST}:{request.url.port}")
    return await handler(request)


def serve(folder: Path, write: Write, port: int, say: Callable[[str], None]) -> None:
    """Serve until Ctrl-C. Raises OSError where the port cannot be used."""

    async def run() -> None:
        runner = web.AppRunner(Live(folder, write).app(), access_log=None)
        await runner.setup()
        try:
            await web.TCPSite(runner, HOST, port, shutdown_timeout=1.0).start()
            say(f"http://{HOST}:{port}  (Ctrl-C ends it)")
            await asyncio.Event().wait()
        finally:
            await runner.cleanup()

    with suppress(KeyboardInterrupt):
        asyncio.run(run())
