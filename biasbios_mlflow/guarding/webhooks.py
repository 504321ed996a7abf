"""MLflow's registry webhooks: whether a delivery is genuine, what it says, how one is created.

The signature is that of Standard Webhooks (https://www.standardwebhooks.com) with the secret as it
is: HMAC-SHA256 over ``<delivery id>.<timestamp>.<body>``, base64, after the word ``v1``.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

import pydantic

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.webhook import Webhook

__all__ = [
    "DELIVERY_ID_HEADER",
    "EVENTS",
    "MAX_BODY_BYTES",
    "SIGNATURE_HEADER",
    "TIMESTAMP_HEADER",
    "TOLERANCE_SECONDS",
    "Event",
    "RefusedError",
    "register_webhook",
    "signature",
    "verify",
]

DELIVERY_ID_HEADER = "X-MLflow-Delivery-Id"
TIMESTAMP_HEADER = "X-MLflow-Timestamp"
SIGNATURE_HEADER = "X-MLflow-Signature"

TOLERANCE_SECONDS = 300
"""A delivery that is older, or from so far in the future, is refused: somebody plays it again."""

MAX_BODY_BYTES = 1 << 20

EVENTS = (
    "model_version.created",
    "model_version_alias.created",
    "model_version_alias.deleted",
    "model_version_tag.set",
    "model_version_tag.deleted",
)
"""What the guard wants to hear of."""

_PATH = "/webhook"
_NAME = "biasbios-guard"


class RefusedError(Exception):
    """A delivery that is not taken.

    Attributes
    ----------
    status : int
        The HTTP status that says so.
    """

    def __init__(self, status: int, reason: str) -> None:
        self.status = status
        super().__init__(reason)


class _Data(pydantic.BaseModel):
    name: str
    key: str | None = None


class Event(pydantic.BaseModel):
    """What happened in the registry, as far as the guard uses it.

    It takes the name from it and looks at the registry itself: an event that comes late, twice or
    never makes no difference to what the guard does.
    """

    entity: str
    action: str
    data: _Data

    @property
    def kind(self) -> str:
        """The event as `EVENTS` names it."""
        return f"{self.entity}.{self.action}"

    @classmethod
    def parse(cls, body: bytes) -> Event:
        """Read the body of a delivery.

        Raises
        ------
        RefusedError
            With status 400, when it is not the JSON that MLflow sends.
        """
        try:
            return cls.model_validate_json(body)
        except pydantic.ValidationError as error:
            problem = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, problem["loc"])) or "body"
            raise RefusedError(400, f"not an event of MLflow: {where}: {problem['msg']}") from error


def signature(secret: str, delivery_id: str, timestamp: str, body: bytes) -> str:
    """Sign a delivery as MLflow does.

    Examples
    --------
    >>> signature("secret", "id", "0", b"{}")
    'v1,E1dgkCf/zWJwoqyLX4JX4msjlpeuuY59/nLUxawMaKQ='
    """
    signed = f"{delivery_id}.{timestamp}.".encode() + body
    digest = hmac.new(secret.encode(), signed, hashlib.sha256).digest()
    return "v1," + base64.b64encode(digest).decode()


def verify(secret: str, headers: Mapping[str, str], body: bytes, *, now: float) -> str:
    """Check who sent a delivery, and when.

    Parameters
    ----------
    secret : str
    headers : mapping
        Of the request; looked up without regard to case where the mapping does.
    body : bytes
    now : float
        Seconds since 1970.

    Returns
    -------
    str
        The id of the delivery: the same for each try of MLflow to deliver it.

    Raises
    ------
    RefusedError
        With status 401 where the signature is missing or wrong, 400 where it is right but the
        delivery is not of these minutes.
    """
    delivery_id = headers.get(DELIVERY_ID_HEADER, "")
    timestamp = headers.get(TIMESTAMP_HEADER, "")
    given = headers.get(SIGNATURE_HEADER, "")
    if not (delivery_id and timestamp and given):
        raise RefusedError(401, "the delivery is not signed")
    expected = signature(secret, delivery_id, timestamp, body).encode()
    if not hmac.compare_digest(given.encode(), expected):
        raise RefusedError(401, "the signature does not fit the delivery")
    # Signed with our secret, so MLflow's own: but perhaps heard before, and sent by somebody else.
    if not timestamp.isdecimal() or abs(now - int(timestamp)) > TOLERANCE_SECONDS:
        raise RefusedError(400, f"the timestamp is not within {TOLERANCE_SECONDS} s of now")
    return delivery_id


def register_webhook(client: MlflowClient, url: str, *, secret: str) -> tuple[Webhook, bool]:
    """Have the tracking server tell the guard of what happens in its registry.

    Parameters
    ----------
    client : MlflowClient
    url : str
        Where the guard is reached from the tracking server; without a path, ``/webhook`` is meant.
    secret : str

    Returns
    -------
    webhook : mlflow.entities.webhook.Webhook
    created : bool
        False where the server had one with this URL, which has these events and this secret now.

    Raises
    ------
    mlflow.exceptions.MlflowException
        When MLflow refuses the URL, or its store has no webhooks.
    """
    parts = urlsplit(url)
    full = urlunsplit(parts._replace(path=_PATH)) if parts.path in ("", "/") else url
    chosen: dict[str, Any] = {"events": list(EVENTS), "secret": secret, "status": "ACTIVE"}
    for webhook in _webhooks(client):
        if webhook.url == full:
            return client.update_webhook(webhook.webhook_id, **chosen), False
    return client.create_webhook(name=_NAME, url=full, **chosen), True


def _webhooks(client: MlflowClient) -> list[Webhook]:
    found: list[Webhook] = []
    token = None
    while True:
        page = client.list_webhooks(page_token=token)
        found += page
        token = page.token
        if not token:
            return found
