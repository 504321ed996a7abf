"""Files on the web: streamed to disk, within bounds of size and time."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import Message
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

from mlflow.environment_variables import MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR
from tqdm.auto import tqdm

from biasbios_mlflow.errors import invalid
from biasbios_mlflow.redaction import clean_error, redacted, redacted_uri

__all__ = ["fetch", "is_on_the_web"]

MOST_BYTES = 16 << 30
"""The benchmark's largest release has less than 1 GiB."""

CONNECT_SECONDS = 10.0
READ_SECONDS = 60.0
"""So long a server may say nothing."""

SLOWEST = 1024.0
"""Bytes a second; below this, after `READ_SECONDS`, a server is taken for one that never ends."""

_TRIES = 3
_WAIT_SECONDS = 0.5
_LONGEST_WAIT = 10.0  # whatever Retry-After says
_REDIRECTS = 5
_PIECE = 1 << 14  # small: from a slow server each is waited for
_AGAIN = (429, 500, 502, 503, 504)
_SUFFIXES = {
    "text/csv": ".csv",
    "application/csv": ".csv",
    "text/tab-separated-values": ".tsv",
    "application/x-ndjson": ".jsonl",
    "application/jsonl": ".jsonl",
    "application/jsonlines": ".jsonl",
    "application/vnd.apache.parquet": ".parquet",
}
_KNOWN = re.compile(r"(?i)\.(?:csv|tsv|jsonl?|parquet|pq|pkl|pickle)(?:\.gz)?$")


def is_on_the_web(source: str) -> bool:
    """Tell whether a name is an address of the web.

    Examples
    --------
    >>> is_on_the_web("https://example.org/bios.csv"), is_on_the_web("s3://bios/test.csv")
    (True, False)
    """
    return source.lower().startswith(("http://", "https://"))


def fetch(url: str, folder: Path) -> Path:
    """Fetch a file into a folder.

    User info in the URL, or what ``~/.netrc`` has for its host, is sent to that host alone. A
    redirect may lead to https, and from http to the same host.

    Parameters
    ----------
    url : str
        ``http://…`` or ``https://…``.
    folder : Path

    Returns
    -------
    Path
        Named as the URL's path, or as the server says.

    Raises
    ------
    MlflowException
        Where it cannot be reached or does not hold a file, where it is too large or too slow, where
        the disk is full.
    """
    import requests

    shown = redacted_uri(url)
    with requests.Session() as session, _told(url, shown):
        for attempt in range(_TRIES):
            last = attempt == _TRIES - 1
            try:
                with _response(session, url, shown) as response:
                    if response.status_code in _AGAIN and not last:
                        wait = response.headers.get("Retry-After", "")
                    else:
                        return _save(response, url, shown, folder)
            except (requests.ConnectionError, requests.exceptions.ChunkedEncodingError):
                if last:
                    raise
                wait = ""
            seconds = float(wait) if wait.isdigit() else _WAIT_SECONDS * 2**attempt
            time.sleep(min(seconds, _LONGEST_WAIT))
    raise AssertionError("the last try returns or raises")


@contextmanager
def _told(url: str, shown: str) -> Iterator[None]:
    """Turn what goes wrong on the way into a user error without secrets."""
    import requests

    try:
        yield
    except (requests.RequestException, OSError) as error:
        clean_error(error, url)
        why = redacted(f"{type(error).__name__}: {error}", url)
        on_disk = not isinstance(error, requests.RequestException) and error.filename is not None
        raise invalid(
            "data",
            found=f"{shown!r}, which cannot be fetched ({why:.400})",
            expected="a file that can be read, on a disk with room for it"
            if on_disk
            else "an address that answers",
            fix="set TMPDIR to a folder with room"
            if on_disk
            else "check the address, or download the file and name it",
        ) from error


@contextmanager
def _response(session: Any, url: str, shown: str) -> Iterator[Any]:
    """Ask for a file, following redirects as far as they are safe."""
    start = urlsplit(url)
    auth: tuple[str, str] | None = None
    if start.username is not None:
        auth = (unquote(start.username), unquote(start.password or ""))
    at = start._replace(netloc=start.netloc.rpartition("@")[2], fragment="").geturl()
    for _ in range(_REDIRECTS + 1):
        response = session.get(
            at,
            auth=auth,
            allow_redirects=False,
            stream=True,
            timeout=(CONNECT_SECONDS, READ_SECONDS),
            headers={"Accept-Encoding": "identity"},
        )
        if not response.is_redirect:
            try:
                yield response
            finally:
                response.close()
            return
        response.close()
        to = urljoin(at, response.headers["Location"])
        here, there = urlsplit(at), urlsplit(to)
        same = (here.scheme, here.netloc) == (there.scheme, there.netloc)
        if there.scheme != "https" and not same:
            raise invalid(
                "data",
                found=f"{shown!r}, which sends on to {redacted_uri(to)!r}",
                expected="an address that sends on to https only",
                fix="name the address it leads to, if you trust it",
            )
        auth = auth if same else None
        at = to
    raise invalid(
        "data",
        found=f"{shown!r}, which sends on more than {_REDIRECTS} times",
        expected="an address of a file",
        fix="check the address",
    )


def _save(response: Any, url: str, shown: str, folder: Path) -> Path:
    if response.status_code >= 400:
        who = {
            401: "check user and password: in the address, or for its host in ~/.netrc",
            403: "check that you may read it, and that a signed address is not out of date",
            404: "check the address",
        }
        raise invalid(
            "data",
            found=f"{shown!r}, which answers {response.status_code} {response.reason}",
            expected="a file",
            fix=who.get(response.status_code, "try again later, or download it yourself"),
        )
    size = response.headers.get("Content-Length", "")
    length = int(size) if size.isdigit() else None
    if length is not None and length > MOST_BYTES:
        raise _too_large(shown, f"{length >> 20} MiB")
    kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    name = _file_name(response, url, kind)
    if kind == "text/html":
        raise invalid(
            "data",
            found=f"{shown!r}, which is a page (text/html)",
            expected="a file with bios",
            fix="name the address of the file itself; perhaps one must sign in",
        )
    path = folder / name
    encoded = bool(response.headers.get("Content-Encoding"))
    _write(response, path, shown, None if encoded else length)
    if path.suffix.lower() == ".gz":
        with path.open("rb") as file:
            if file.read(2) != b"\x1f\x8b":  # the server has unpacked it
                path = path.rename(path.with_suffix(""))
    return path


def _file_name(response: Any, url: str, kind: str) -> str:
    """Return a name that tells the format, from the URL or from what the server says."""
    message = Message()
    message["Content-Disposition"] = response.headers.get("Content-Disposition", "")
    paths = [urlsplit(url).path, message.get_filename() or "", urlsplit(response.url).path]
    # A name, never a path: nothing is written elsewhere.
    names = [re.split(r"[/\\]", unquote(path))[-1].replace("\0", "")[-200:] for path in paths]
    known = next((name for name in names if _KNOWN.search(name)), None)
    if known is not None:
        return known
    first = next((name for name in names if name.strip(".")), "bios")
    return first + _SUFFIXES.get(kind, "")


def _write(response: Any, path: Path, shown: str, length: int | None) -> None:
    # None: no bar where the output is not a terminal.
    disable = None if MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR.get() else True
    begun, done = time.monotonic(), 0
    with (
        path.open("wb") as file,
        tqdm(total=length, desc=path.name, unit="B", unit_scale=True, disable=disable) as bar,
    ):
        for piece in response.iter_content(_PIECE):
            done += len(piece)
            if done > MOST_BYTES:
                raise _too_large(shown, f"more than {MOST_BYTES >> 20} MiB")
            file.write(piece)
            bar.update(len(piece))
            spent = time.monotonic() - begun
            if spent > READ_SECONDS and done / spent < SLOWEST:
                raise invalid(
                    "data",
                    found=f"{shown!r}, of which {done} bytes came in {spent:.0f} s",
                    expected=f"at least {SLOWEST:.0f} bytes a second",
                    fix="download the file and name it",
                )
    if length is not None and done != length:
        raise invalid(
            "data",
            found=f"{shown!r}, which broke off after {done} of {length} bytes",
            expected="the whole file",
            fix="try again",
        )


def _too_large(shown: str, size: str) -> Exception:
    return invalid(
        "data",
        found=f"{shown!r}, which is too large ({size})",
        expected=f"at most {MOST_BYTES >> 20} MiB",
        fix="download the file and name it",
    )
