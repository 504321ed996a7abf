"""Deliveries: signed as MLflow signs them, and nothing else."""

from __future__ import annotations

import base64
import json
import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlflow.webhooks.delivery import _generate_hmac_signature

from biasbios_mlflow.guarding.webhooks import (
    DELIVERY_ID_HEADER,
    SIGNATURE_HEADER,
    TIMESTAMP_HEADER,
    TOLERANCE_SECONDS,
    Event,
    RefusedError,
    signature,
    verify,
)

words = st.text(string.printable, min_size=1)


@given(words, words, st.integers(0, 2**40), st.text())
def test_the_signature_is_mlflows(secret: str, delivery: str, at: int, body: str) -> None:
    theirs = _generate_hmac_signature(secret, delivery, str(at), body)
    assert signature(secret, delivery, str(at), body.encode()) == theirs
    headers = {DELIVERY_ID_HEADER: delivery, TIMESTAMP_HEADER: str(at), SIGNATURE_HEADER: theirs}
    assert verify(secret, headers, body.encode(), now=at) == delivery


def headers(at: float = 1000, body: bytes = b"{}", secret: str = "secret") -> dict[str, str]:
    return {
        DELIVERY_ID_HEADER: "id",
        TIMESTAMP_HEADER: str(int(at)),
        SIGNATURE_HEADER: signature(secret, "id", str(int(at)), body),
    }


@given(st.sampled_from(sorted(headers())), st.text(), st.integers(0))
def test_whatever_is_changed_is_refused(header: str, value: str, byte: int) -> None:
    """Only the signature of these bytes with this id at this time is taken."""
    whole = headers()
    if value != whole[header]:
        with pytest.raises(RefusedError) as refused:
            verify("secret", {**whole, header: value}, b"{}", now=1000)
        assert refused.value.status == 401
    signed = bytearray(base64.b64decode(whole[SIGNATURE_HEADER].removeprefix("v1,")))
    signed[byte % len(signed)] ^= 1
    forged = {**whole, SIGNATURE_HEADER: "v1," + base64.b64encode(signed).decode()}
    with pytest.raises(RefusedError):
        verify("secret", forged, b"{}", now=1000)


@pytest.mark.parametrize("missing", sorted(headers()))
def test_a_header_that_is_missing(missing: str) -> None:
    with pytest.raises(RefusedError, match="not signed") as refused:
        verify("secret", {k: v for k, v in headers().items() if k != missing}, b"{}", now=1000)
    assert refused.value.status == 401


@pytest.mark.parametrize("late", [-2, -1.001, 1.001, 100])
def test_stale(late: float) -> None:
    at = 10**6
    verify("secret", headers(at), b"{}", now=at + TOLERANCE_SECONDS * (0.99 if late > 0 else -0.99))
    with pytest.raises(RefusedError, match="timestamp") as refused:
        verify("secret", headers(at), b"{}", now=at + TOLERANCE_SECONDS * late)
    assert refused.value.status == 400


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no json",
        b"\xff\xfe",
        b"[]",
        b"null",
        b"{}",
        b'{"entity": "model_version", "action": "created"}',
        b'{"entity": "model_version", "action": "created", "data": {"version": "1"}}',
        b'{"entity": "model_version", "action": "created", "data": {"name": 7}}',
        b"[" * 100_000,
    ],
)
def test_a_body_that_is_no_event(body: bytes) -> None:
    with pytest.raises(RefusedError, match="not an event of MLflow") as refused:
        Event.parse(body)
    assert refused.value.status == 400


def test_an_event_is_read_whatever_else_it_says() -> None:
    from mlflow.webhooks.types import ModelVersionTagSetPayload

    payload: Any = ModelVersionTagSetPayload(name="jobs", version="2", key="k", value="v")
    told = {"entity": "model_version_tag", "action": "set", "timestamp": "…", "workspace": "w"}
    event = Event.parse(json.dumps({**told, "data": payload}).encode())
    assert (event.kind, event.data.name, event.data.key) == ("model_version_tag.set", "jobs", "k")
