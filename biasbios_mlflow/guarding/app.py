"""The guard over HTTP: ``POST /webhook``, ``GET /health``, ``GET /status``."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import uvicorn
from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse

from biasbios_mlflow.guarding.config import GuardConfig
from biasbios_mlflow.guarding.process import GATE_COMMAND
from biasbios_mlflow.guarding.service import Guard
from biasbios_mlflow.guarding.webhooks import MAX_BODY_BYTES, Event, RefusedError, verify
from biasbios_mlflow.redaction import logger

__all__ = ["create_app", "serve"]

_logger = logger(__name__)

# A body that is too large is read to here, and thrown away, so that the sender gets the answer.
_MOST_READ_BYTES = 64 * MAX_BODY_BYTES

# The guard itself tries again every few seconds; MLflow's client would sleep for minutes in an
# outage, and go on sleeping when it is over. Gates keep MLflow's own patience.
_IMPATIENT = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "30"}

_STATUS = {"accepted": 202, "ignored": 202, "repeated": 200}


def create_app(guard: Guard, *, secret: str) -> FastAPI:
    """Make the application; it starts and stops the guard with itself.

    Parameters
    ----------
    guard : Guard
    secret : str
        That the webhook was created with.

    Returns
    -------
    fastapi.FastAPI
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await run_in_threadpool(guard.start)
        yield
        await run_in_threadpool(guard.stop)

    # No pages that would fetch scripts from elsewhere.
    app = FastAPI(
        title="biasbios guard", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None
    )

    @app.post("/webhook")
    async def webhook(request: Request) -> JSONResponse:
        try:
            body = await _body(request)
            delivery_id = verify(secret, request.headers, body, now=time.time())
            event = Event.parse(body)
        except RefusedError as error:
            _logger.warning("A delivery was refused (%d): %s", error.status, error)
            return JSONResponse({"status": "refused", "reason": str(error)}, error.status)
        status, reason = await run_in_threadpool(guard.accept, delivery_id, event)
        return JSONResponse({"status": status, "reason": reason}, _STATUS[status])

    @app.get("/health")
    def health() -> JSONResponse:
        healthy = guard.is_healthy()
        return JSONResponse({"status": "ok" if healthy else "broken"}, 200 if healthy else 503)

    @app.get("/status")
    def status() -> JSONResponse:
        return JSONResponse(guard.status())

    return app


async def _body(request: Request) -> bytes:
    """Read the body of a request, of which no more than `MAX_BODY_BYTES` is kept."""
    body = bytearray()
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > _MOST_READ_BYTES:
            break
        if size <= MAX_BODY_BYTES:
            body += chunk
    if size > MAX_BODY_BYTES:
        raise RefusedError(413, f"the body is larger than {MAX_BODY_BYTES} bytes")
    return bytes(body)


def serve(
    config: GuardConfig,
    *,
    secret: str,
    host: str = "127.0.0.1",
    port: int = 8480,
    command: Sequence[str] = GATE_COMMAND,
) -> None:
    """Run the guard until SIGTERM or SIGINT, in the main thread of a process of its own.

    Parameters
    ----------
    config : GuardConfig
    secret : str
        That the webhook was created with.
    host, port : str, int
        Where it listens.
    command : sequence of str
        What runs a gate; see `biasbios_mlflow.guarding.process.GATE_COMMAND`.

    Raises
    ------
    MlflowException
        When another guard uses the same state.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)-7s %(message)s")
    # What urllib3 says of an outage the guard says too, once and not at each try.
    for name, level in {"huey": "WARNING", "alembic": "WARNING", "urllib3": "ERROR"}.items():
        logging.getLogger(name).setLevel(level)
    guard = Guard(config, command=command)
    for name, value in _IMPATIENT.items():
        os.environ.setdefault(name, value)
    # uvicorn raises the signal that stopped it again when all is done; this is a good end.
    for stop in (signal.SIGTERM, signal.SIGINT):
        signal.signal(stop, lambda *_: None)
    uvicorn.run(
        create_app(guard, secret=secret),
        host=host,
        port=port,
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=5,
    )
