"""``biasbios guard``."""

from __future__ import annotations

import json
import logging
import os
import signal
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from biasbios_mlflow.guarding.config import GuardConfig

__all__ = ["guard"]

# The guard itself tries again every few seconds; MLflow's client would sleep for minutes in an
# outage, and go on sleeping when it is over. Gates keep MLflow's own patience.
_IMPATIENT = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "30"}


@click.command(context_settings={"show_default": True})
@click.option(
    "--config", metavar="FILE", default=None, help="YAML file that names the models."
)
@click.option("--host", default="127.0.0.1", help="Address to listen at.")
@click.option("--port", default=8480, help="Port to listen at; 0 for any that is free.")
@click.option(
    "--register",
    metavar="URL",
    default=None,
    help="Create the webhook at the tracking server, which sends to URL, and end.",
)
@click.option("--json", "as_json", is_flag=True, help="With --register: print one JSON object.")
def guard(config: str | None, host: str, port: int, register: str | None, as_json: bool) -> None:
    """Gate every new version, and keep aliases on versions that passed: a service.

    It takes the webhooks of the tracking server (MLFLOW_TRACKING_URI) at POST /webhook and tells
    how it stands at GET /status. SIGTERM ends it when the gate that runs has ended.

    Example: biasbios guard --config guard.yaml
    """
    from biasbios_mlflow.guarding.config import DEFAULT_SECRET_ENV, GuardConfig, read_secret

    if config is None and register is None:
        raise click.UsageError("--config is missing, e.g. --config guard.yaml")
    checked = None if config is None else GuardConfig.read(config)
    secret = read_secret(DEFAULT_SECRET_ENV if checked is None else checked.secret_env)
    if register is not None:
        _register(register, secret, as_json)
    else:
        assert checked is not None
        _serve(checked, secret, host, port)


def _register(url: str, secret: str, as_json: bool) -> None:
    from mlflow import MlflowClient

    from biasbios_mlflow.guarding.webhooks import EVENTS, register_webhook

    webhook, created = register_webhook(MlflowClient(), url, secret=secret)
    if as_json:
        told = {"webhook_id": webhook.webhook_id, "url": webhook.url, "created": created}
        click.echo(json.dumps({**told, "events": list(EVENTS)}, indent=2))
        return
    done = "created" if created else "brought up to date"
    click.echo(f"Webhook {webhook.webhook_id} {done}: {', '.join(EVENTS)} go to {webhook.url}")


def _serve(config: GuardConfig, secret: str, host: str, port: int) -> None:
    import uvicorn

    from biasbios_mlflow.guarding.app import create_app
    from biasbios_mlflow.guarding.service import Guard

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)-7s %(message)s")
    for name in ("huey", "alembic", "uvicorn.access"):
        logging.getLogger(name).setLevel(logging.WARNING)
    guard = Guard(config)
    for name, value in _IMPATIENT.items():
        os.environ.setdefault(name, value)
    app = create_app(guard, secret=secret)
    # uvicorn raises the signal that stopped it again when all is done; this is a good end.
    for stop in (signal.SIGTERM, signal.SIGINT):
        signal.signal(stop, lambda *_: None)
    uvicorn.run(app, host=host, port=port, log_config=None, timeout_graceful_shutdown=5)
