"""Secrets: taken out of everything that leaves the process or is shown.

One place for all: errors, logs, tags, parameters, summary, report, ``gate.json``, the sources of
datasets, the guard's state. What is hidden is the user info of a URI, the values of its query
(signatures, tokens) but for a few that are plain by their name, what stands behind a word such as
``password=``, tokens of the usual makes, and the values of environment variables whose name says
that they are secret.
"""

from __future__ import annotations

import logging
import os
import re
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

__all__ = [
    "HIDDEN",
    "clean_error",
    "clean_errors",
    "is_secret_name",
    "logger",
    "redacted",
    "redacted_content",
    "redacted_uri",
]

HIDDEN = "***"
"""Stands where a secret stood."""

# Names of options, query parameters and variables; matched without regard to case, at word ends.
_SECRET_NAME = re.compile(
    r"(?i)(?:^|[^a-z])(?:pass(?:word|wd|phrase)?|pwd|secrets?|token|api[-_]?key|apikey|access[-_]?key"
    r"(?:[-_]?id)?|private[-_]?key|account[-_]?key|auth(?:orization|entication)?|bearer|credentials?|signature|sig|sas"
    r"|jwt|session[-_]?id|cookie)(?:$|[^a-z])"
)
# The same where words are written together: openaiApiKey, AWSAccessKeyId, PGPASSWORD.
_SECRET_PART = re.compile(
    r"(?i)password|passwd|passphrase|secret(?!ar|ly|ion|iv)|api[-_]?key|accesskey|privatekey|credential|signature"
    r"|(?:access|auth|refresh|bearer|api|id|session|security)[-_]?token|_token$|token$"
)
# What a query may say in the open; any other value in one may be a key.
_PLAIN_QUERY = frozenset(
    (
        *("alt", "charset", "config", "dl", "download", "encoding", "export", "file", "filename"),
        *("format", "lang", "limit", "name", "offset", "page", "path", "raw", "ref", "region"),
        *("rev", "revision", "sheet", "split", "sslmode", "timeout", "type", "version"),
        "versionid",
    )
)

_SCHEME = r"[A-Za-z][A-Za-z0-9+.\-]{1,30}:/{1,3}"
_URI = re.compile(rf"{_SCHEME}[^\s\"'<>`]+")
# There the name of a container stands before the @, and no user.
_CONTAINERS = re.compile(r"(?i)^(?:wasbs?|abfss?):")
_QUERY = re.compile(r"([?&;#])([^=&;#\s\"'<>]+)=([^&;#\s\"'<>)]*)")
_ASSIGNED = re.compile(
    r"(?P<name>[A-Za-z][\w\-]*)(?P<sign>[\"']?\s*[=:]\s*)"
    r"(?P<value>\"[^\"\n]*\"|'[^'\n]*'|(?:Basic|Bearer|Token)\s+[^\s,;\"')]+|[^\s,;&\"')}\]]+)"
)
_TOKENS = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|sk-[\w\-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}"
    r"|glpat-[\w\-]{16,}|xox[abprs]-[\w\-]{10,}|(?:AKIA|ASIA)[0-9A-Z]{16}|dapi[0-9a-f]{32}"
    r"|AIza[\w\-]{30,}|eyJ[\w\-]{8,}\.[\w\-]{8,}\.[\w\-]*)"
    r"|(?i:\b(?:Bearer|Basic)\s+[A-Za-z0-9+/_.\-]{12,}=*)"
)
_SHORTEST = 6  # characters of a value of the environment that is looked for in other texts


def is_secret_name(name: str) -> bool:
    """Tell whether the value under a name is likely a secret.

    Examples
    --------
    >>> [is_secret_name(n) for n in ("openai_api_key", "PGPASSWORD", "X-Amz-Signature", "sig")]
    [True, True, True, True]
    >>> [is_secret_name(n) for n in ("token_budget", "max_tokens", "design", "passes", "author")]
    [False, False, False, False, False]
    """
    if name.lower() in _NOT_SECRET:
        return False
    return _SECRET_NAME.search(name) is not None or _SECRET_PART.search(name) is not None


_NOT_SECRET = frozenset({"token_budget", "pad_token", "eos_token", "bos_token"})


def redacted_uri(text: str) -> str:
    """Return a text whose URIs hold no user info and no query that may be secret.

    The same text gives the same result everywhere: what it becomes can be hashed.

    Examples
    --------
    >>> redacted_uri("https://ann:hunter2@example.org/bios.csv?X-Amz-Signature=3f&version=2")
    'https://***@example.org/bios.csv?X-Amz-Signature=***&version=2'
    >>> redacted_uri("models:/occupations@champion"), redacted_uri("abfss://bios@acme/test.csv")
    ('models:/occupations@champion', 'abfss://bios@acme/test.csv')
    """
    return _URI.sub(lambda match: _without_secrets(match.group()), text)


def _without_secrets(uri: str) -> str:
    parts = _parted(uri)
    if parts is None:
        return uri
    scheme, info, place, query = parts
    if _CONTAINERS.match(scheme):
        info = info.partition(":")[0]
    elif info:
        info = HIDDEN
    return scheme + info + "@" * bool(info) + place + _QUERY.sub(_without_value, query)


def _parted(uri: str) -> tuple[str, str, str, str] | None:
    """Return scheme, user info, place and query of a URI; None for MLflow's own names."""
    if uri.startswith(("models:/", "runs:/")):
        return None
    scheme = re.match(_SCHEME, uri)
    assert scheme is not None
    rest = uri[scheme.end() :]
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    _, colon, after = authority.partition(":")
    info = ""
    if "@" in authority:
        info, _, rest = rest.rpartition("@") if colon and "@" in after else rest.partition("@")
    elif colon and not after.isdigit() and "@" in rest:
        # No port, so a password, in which nobody escaped what stands for something else in a URI.
        info, _, rest = rest.rpartition("@")
    at = min((place for place in map(rest.find, "?#") if place >= 0), default=len(rest))
    return scheme.group(), info, rest[:at], rest[at:]


def _without_value(match: re.Match[str]) -> str:
    mark, name, value = match.groups()
    plain = unquote(name).lower() in _PLAIN_QUERY and len(value) <= 40
    return f"{mark}{name}={value if plain or not value else HIDDEN}"


def redacted(text: str, *sources: object) -> str:
    """Return a text without secrets.

    Parameters
    ----------
    text : str
        Anything that is shown or kept: an error, a line of a log, a tag.
    *sources : object
        What the user gave that the text is about, such as the URI that could not be read: parts of
        it that are secret are taken out wherever they stand, in whatever form.

    Examples
    --------
    >>> redacted("401 for url: /bios.csv?token=abc (password='hunter2')")
    "401 for url: /bios.csv?token=*** (password='***')"
    >>> redacted("no user ann:hunter2", "https://ann:hunter2@example.org/bios.csv")
    'no user ***'
    """
    for secret in sorted({*_secrets_in(sources), *_secrets_of_environment()}, key=len)[::-1]:
        text = text.replace(secret, HIDDEN)
    text = redacted_uri(text) if "/" in text else text
    if "=" in text or ":" in text:
        text = _QUERY.sub(_without_secret_value, text)
        text = _ASSIGNED.sub(_without_assigned, text)
    return _TOKENS.sub(HIDDEN, text)


def _without_secret_value(match: re.Match[str]) -> str:
    mark, name, value = match.groups()
    return f"{mark}{name}={HIDDEN if value and is_secret_name(unquote(name)) else value}"


def _without_assigned(match: re.Match[str]) -> str:
    name, value = match["name"], match["value"]
    if not is_secret_name(name) and name.lower() != "authorization":
        return match.group()
    if value.startswith("//") or value in ("None", "null", HIDDEN, "''", '""', "{", "[", "("):
        return match.group()
    quote = value[0] if value[0] in "\"'" else ""
    return f"{name}{match['sign']}{quote}{HIDDEN}{quote}"


def _secrets_in(sources: Sequence[object]) -> Iterator[str]:
    for source in sources:
        for uri in _URI.findall(str(source)):
            parts = _parted(uri)
            if parts is None:
                continue
            info = "" if _CONTAINERS.match(uri) else parts[1]
            secrets = [info, *info.split(":", 1)]
            secrets += [
                query.group(3)
                for query in _QUERY.finditer(parts[3])
                if _without_value(query) != query.group()
            ]
            for part in secrets:
                yield from (form for form in {part, unquote(part)} if len(form) >= 3)


def _secrets_of_environment() -> Iterator[str]:
    for name, value in os.environ.items():
        if len(value) < _SHORTEST or value.isdigit() or not is_secret_name(name):
            continue
        if not value.startswith(("/", "~")) and not os.path.exists(value):  # a file of secrets
            yield value


def redacted_content(content: Any, *, key: str = "") -> Any:
    """Return plain values, such as those of a JSON file, without secrets.

    Strings are taken for what may hold a URI; what stands under a name such as ``api_key`` is
    hidden whatever it is.

    Examples
    --------
    >>> redacted_content({"data": ["https://a:b@host/x.csv"], "api_key": "sk", "seed": 0})
    {'data': ['https://***@host/x.csv'], 'api_key': '***', 'seed': 0}
    """
    if isinstance(content, Mapping):
        return {name: redacted_content(value, key=str(name)) for name, value in content.items()}
    if key and is_secret_name(key) and isinstance(content, (str, bytes)) and content:
        return HIDDEN
    if isinstance(content, str):
        return redacted(content)
    if isinstance(content, (list, tuple)):
        return type(content)(redacted_content(value, key=key) for value in content)
    return content


def clean_error(error: BaseException, *sources: object) -> None:
    """Take secrets out of the message of an exception, and of those that led to it."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        waiting += [one.__cause__, one.__context__]
        args = tuple(redacted(a, *sources) if isinstance(a, str) else a for a in one.args)
        if args != one.args:
            one.args = args
        message = getattr(one, "message", None)
        if isinstance(message, str) and redacted(message, *sources) != message:
            one.message = redacted(message, *sources)  # type: ignore[attr-defined]  # of MLflow


@contextmanager
def clean_errors(*sources: object) -> Iterator[None]:
    """Take secrets out of whatever is raised in the block.

    Parameters
    ----------
    *sources : object
        What the user gave, see `redacted`.
    """
    try:
        yield
    except BaseException as error:
        clean_error(error, *sources)
        raise


class _WithoutSecrets(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        clean = redacted(text)
        if clean != text:
            record.msg, record.args = clean, ()
        if record.exc_info and record.exc_info[0] is not None and not record.exc_text:
            record.exc_text = redacted(
                "".join(traceback.format_exception(*record.exc_info))
            ).rstrip()
        return True


def logger(name: str) -> logging.Logger:
    """Return the logger of a module, whose records hold no secrets.

    Examples
    --------
    >>> logger("biasbios_mlflow.example").name
    'biasbios_mlflow.example'
    """
    found = logging.getLogger(name)
    if not any(isinstance(known, _WithoutSecrets) for known in found.filters):
        found.addFilter(_WithoutSecrets())
    return found
