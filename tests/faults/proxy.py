"""A server between the client and MLflow's, that fails as told at any request."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

Fault = Callable[[BaseHTTPRequestHandler], None]


def answers(status: int, **headers: str) -> Fault:
    """Answer with an error, as a gateway does."""

    def fail(handler: BaseHTTPRequestHandler) -> None:
        body = b"<html>no</html>"
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return fail


def cuts(handler: BaseHTTPRequestHandler) -> None:
    """Promise an answer and close the connection in the middle of it."""
    handler.send_response(200)
    handler.send_header("Content-Length", "100")
    handler.end_headers()
    handler.wfile.write(b'{"ru')
    handler.close_connection = True


def drops(handler: BaseHTTPRequestHandler) -> None:
    """Close the connection without an answer."""
    handler.close_connection = True


def hangs(handler: BaseHTTPRequestHandler) -> None:
    """Say nothing for longer than the client waits."""
    time.sleep(2)
    handler.close_connection = True


class Proxy:
    """Passes requests on, but for those that ``fault`` is given for.

    Parameters
    ----------
    server : str
    fault : callable, optional
        From the number of a request, from 1 on, to what is done instead of passing it on; None
        passes it on.
    """

    def __init__(
        self, server: str, fault: Callable[[int], Fault | None] = lambda number: None
    ) -> None:
        self.asked: list[str] = []
        to = urlsplit(server)
        lock = threading.Lock()
        proxy = self

        class Forward(BaseHTTPRequestHandler):
            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                with lock:
                    proxy.asked.append(f"{self.command} {self.path}")
                    failing = fault(len(proxy.asked))
                if failing is not None:
                    failing(self)
                    return
                headers = {k: v for k, v in self.headers.items() if k.lower() != "host"}
                connection = http.client.HTTPConnection(to.hostname, to.port, timeout=60)
                with closing(connection) as client:
                    client.request(self.command, self.path, body or None, headers)
                    response = client.getresponse()
                    self.reply(response.status, response.getheaders(), response.read())

            def reply(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
                self.send_response(status)
                for key, value in headers:
                    if key.lower() not in {"transfer-encoding", "content-length", "connection"}:
                        self.send_header(key, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            # The names are the protocol's.
            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer  # noqa: N815

            def log_message(self, *arguments: Any) -> None:
                pass

        self._proxy = ThreadingHTTPServer(("127.0.0.1", 0), Forward)
        self._proxy.daemon_threads = True
        self._proxy.handle_error = lambda *arguments: None  # type: ignore[method-assign]
        self.url = f"http://127.0.0.1:{self._proxy.server_address[1]}"
        threading.Thread(target=self._proxy.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self._proxy.shutdown()
        self._proxy.server_close()
