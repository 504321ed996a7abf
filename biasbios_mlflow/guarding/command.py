"""``biasbios guard``."""

from __future__ import annotations

import json

import click

__all__ = ["guard"]


@click.command(context_settings={"show_default": True})
@click.option("--config", metavar="FILE", default=None, help="YAML file that names the models.")
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
        from biasbios_mlflow.guarding.app import serve

        serve(checked, secret=secret, host=host, port=port)


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
