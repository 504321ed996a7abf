"""Answers in words: which occupation, if any, a model named.

Strict on purpose. What is not unambiguous is no answer: it counts as wrong, is listed, and its
share among women and men is a metric of its own.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from biasbios_mlflow.bios.occupations import canonical

__all__ = [
    "NOT_NAMED",
    "NO_ANSWER",
    "SEVERAL_NAMED",
    "UNREADABLE",
    "AnswerMode",
    "AnswerReader",
    "Reading",
    "answer_text",
    "is_chat_shaped",
    "looks_written",
]

AnswerMode = Literal["auto", "labels", "text"]
"""How the labels that a model returns are read."""

NO_ANSWER = "(no answer)"
NOT_NAMED = "(no occupation named)"
SEVERAL_NAMED = "(several occupations named)"
UNREADABLE = (NO_ANSWER, NOT_NAMED, SEVERAL_NAMED)
"""What stands in the place of a label where none can be read; two different ones are a flip."""


@dataclass(frozen=True)
class Reading:
    """What was read from one answer.

    Attributes
    ----------
    code : int or None
        Position of the occupation among the names; None where none could be read.
    why : str or None
        One of `UNREADABLE`; None where an occupation was read.
    """

    code: int | None
    why: str | None = None


_THOUGHTS = re.compile(r"<(think|thinking|reasoning)>.*?(</\1>|\Z)", re.DOTALL | re.IGNORECASE)
"""What a reasoning model writes before its answer; what was cut off in the middle has none."""

_FENCE = re.compile(r"```[\w+-]*\n?")
_EMPHASIS = re.compile(r"[*`~]+|(?<!\w)_+|_+(?!\w)")
_APOSTROPHES = str.maketrans({"’": "'", "‘": "'", "ʼ": "'", "´": "'"})

# A model speaks of itself, or of what is no person: none of it names the occupation "model".
_NO_PERSON = re.compile(
    r"\b(?:(?:large|ai|artificial intelligence|language|machine[- ]learning|statistical|trained|"
    r"generative|deep[- ]learning|foundation|chat)[- ])+models?\b"
    r"|\b(?:role|business|mathematical|data|economic|climate)[- ]models?\b"
    r"|\b(?:as|i am|i'm|being) (?:just |only |merely )?(?:an? |the )?model,? (?=i\b|and (?:i|can))"
    r"|\b(?:this|the|my|our|your) model(?='s|(?: \w+ly)? (?:can|could|would|will|does|do|is unable|"
    r"predict|think|believe|say|suggest|answer|output|classif|choose|return))"
    # Not the architect of buildings.
    r"|\b(?:software|data|solutions?|systems?|enterprise|information|cloud|network|security) "
    r"architects?\b"
)

_NEGATION = re.compile(
    r"\b(?:not|no|never|neither|nor|cannot|without|non|except|excluding|hardly|unlikely|unclear|"
    r"unsure|unknown|unable|impossible|refuse[sd]?|decline[sd]?|hesitate|reluctant|rather than|"
    r"instead of|other than|anything but|far from|if|whether|"
    # Languages in which the words for "no" and "not" mean nothing else in English.
    r"nicht|keine?[mnrs]?|weder|aucune?|jamais|pas|nunca|tampoco|ning[uú]na?|não|nem|nenhuma?|"
    r"niet|geen|inte|ikke|nie)\b|n't\b"
)
_NEGATED_AFTER = re.compile(
    r"^'?\s*(?:\w+\s+){0,2}?(?:(?:is|are|was|were|would be|seems?|looks?) "
    r"(?:not|un\w+|wrong|incorrect|ruled out|im\w+)\b|isn't|wasn't|cannot\b|can't\b|won't\b|"
    r"wouldn't\b|doesn't\b)"
)
_CLAUSE = re.compile(r"[.;:!?,\n()]|(?<!anything )\b(?:but|however|although|though|because|so)\b")

_SENTENCE_END = re.compile(r"[.!?\n]")

_NEXT_WORD = re.compile(r"[ \t\-‐‑/]+([\w']+)")
# Words that may follow an occupation without making it part of another one.
_MAY_FOLLOW = frozenset(
    """a about according after alone also an and any are as at based because before but by can could
    during either etc for from had has have he her here his i if in into is it its likely more most
    nor of on or over per probably she should since so than that the their then there these they
    this though through to too under unless until was were when where which while who whom whose
    will with within without would you""".split()  # noqa: SIM905
)
_ENDINGS_THAT_MAY_FOLLOW = ("ing", "ed", "ly")

_WRITTEN = re.compile(r"^[\s\"'“„«»‹「『`*#{\[<]|[.!?…\"'”»」』`*}\]]\s*$|\n|:\s")
_MANY_WORDS = 5

_OPENING = re.compile(r"[{\[]")

_DEEPEST = 40
"""So deep may an answer in JSON be nested."""


class AnswerReader:
    """Reads which one of some occupations an answer names.

    An answer is read by the first of these that finds something: it is an occupation, in any
    spelling; it is one when quotes, markdown and punctuation around it are left out; it holds JSON
    with one occupation among the values; it names exactly one occupation, where a longer name goes
    before a shorter one in the same place. An occupation that is denied ("not a nurse"), asked for
    ("a nurse?"), or part of another one ("nurse practitioner") is not named.

    Parameters
    ----------
    names : sequence of str
        The occupations.

    Examples
    --------
    >>> reader = AnswerReader(["nurse", "teacher", "yoga_teacher"])
    >>> [reader.read(answer).code for answer in ("NURSE", "**Yoga teacher**.", "A nurse, I think.")]
    [0, 2, 0]
    >>> reader.read('{"occupation": "teacher", "confidence": 0.9}').code
    1
    >>> [reader.read(answer).why for answer in ("", "She is not a nurse.", "nurse or teacher")]
    ['(no answer)', '(no occupation named)', '(several occupations named)']
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._size = len(names)
        self._codes: dict[str, int] = {}
        for code, name in enumerate(names):
            self._codes.setdefault(canonical(name), code)
        for code, name in enumerate(names):
            self._codes.setdefault(canonical(_bare(name)), code)
        spelled = {_spelling(name): code for code, name in enumerate(names) if _bare(name)}
        longest_first = sorted(spelled, key=len, reverse=True)
        self._groups = [spelled[spelling] for spelling in longest_first]
        self._mention = re.compile(
            "|".join(f"({spelling})" for spelling in longest_first) or "(?!)"
        )

    def read(self, answer: object) -> Reading:
        """Read one answer.

        Parameters
        ----------
        answer : object
            A text, or what a chat model returns (see `answer_text`).
        """
        text = answer_text(answer)
        if text is None:
            return Reading(None, NO_ANSWER)
        if text in UNREADABLE:  # read before, and kept in the place of the answer
            return Reading(None, text)
        code = self._codes.get(canonical(text))
        if code is not None:
            return Reading(code)
        text = _THOUGHTS.sub(" ", text)
        if not _bare(text):
            return Reading(None, NO_ANSWER)
        code = self._codes.get(canonical(_bare(text)))
        if code is not None:
            return Reading(code)
        values = _json_values(text)
        if values is not None:
            return self._read_values(values)
        return self._read_named([text])

    @property
    def size(self) -> int:
        """Number of occupations."""
        return self._size

    def is_label(self, answer: object) -> bool:
        """Tell whether an answer is an occupation as it stands, in any spelling."""
        return isinstance(answer, str) and canonical(answer) in self._codes

    def _read_values(self, values: Sequence[str]) -> Reading:
        exact = {self._codes.get(canonical(_bare(value))) for value in values} - {None}
        if len(exact) == 1:
            return Reading(exact.pop())
        return Reading(None, SEVERAL_NAMED) if exact else self._read_named(values)

    def _read_named(self, texts: Iterable[str]) -> Reading:
        named: set[int] = set()
        doubtful = False
        for text in texts:
            plain = _plain(text)
            for match in self._mention.finditer(plain):
                assert match.lastindex is not None
                start, end = match.span()
                if _is_denied(plain, start, end):
                    continue
                if _is_part(plain, end):
                    doubtful = True
                    continue
                named.add(self._groups[match.lastindex - 1])
        # Something else is named too, of which an occupation is only a part.
        if len(named) > 1 or (named and doubtful):
            return Reading(None, SEVERAL_NAMED)
        return Reading(named.pop()) if named else Reading(None, NOT_NAMED)


def _bare(text: str) -> str:
    """Return a text without quotes, markdown, punctuation and spaces around it."""
    start, end = 0, len(text)
    while start < end and _surrounds(text[start]):
        start += 1
    while end > start and _surrounds(text[end - 1]):
        end -= 1
    return text[start:end]


def _surrounds(character: str) -> bool:
    return not character.isalnum() and unicodedata.category(character)[0] in "PSZC"


def _plain(text: str) -> str:
    """Return a text in one case and form, without markdown, and what is no person blanked."""
    text = unicodedata.normalize("NFKC", text.translate(_APOSTROPHES)).casefold()
    text = _EMPHASIS.sub("", _FENCE.sub("\n", text))
    return _NO_PERSON.sub(lambda found: "#" * len(found[0]), text)


def _spelling(name: str) -> str:
    """Return an expression for a name in a text of `_plain`, one or many of it."""
    folded = unicodedata.normalize("NFKC", name.translate(_APOSTROPHES)).casefold().strip()
    words = [word for word in re.split(r"[\s_\-]+", folded) if word]
    spelled = r"[\s_\-]+".join(map(re.escape, words))
    if folded.endswith("y") and folded[-2:-1] not in "aeiou":
        spelled = f"{spelled[:-1]}(?:y|ies)"
    else:
        spelled += "(?:e?s)?"
    # Scripts without cases write words without spaces between them.
    before = "" if unicodedata.category(folded[0]) == "Lo" else r"(?<!\w)"
    after = "" if unicodedata.category(folded[-1]) == "Lo" else r"(?!\w)(?!'s)"
    return f"{before}{spelled}{after}"


def _is_denied(text: str, start: int, end: int) -> bool:
    """Tell whether a text denies, or only asks, what it names."""
    begin = 0
    for clause in _CLAUSE.finditer(text, 0, start):
        begin = clause.end()
    head = text[begin:start]
    if _NEGATION.search(head) or head.endswith("ex-"):
        return True
    stop = _CLAUSE.search(text, end)
    if _NEGATED_AFTER.search(text[end : stop.start() if stop else None]):
        return True
    last = _SENTENCE_END.search(text, end)
    return last is not None and last[0] == "?"


def _is_part(text: str, end: int) -> bool:
    """Tell whether what is named is the beginning of another name, as in "nurse practitioner"."""
    follows = _NEXT_WORD.match(text, end)
    if follows is None:
        return False
    word = follows[1]
    return word not in _MAY_FOLLOW and not word.endswith(_ENDINGS_THAT_MAY_FOLLOW)


def _json_values(text: str) -> list[str] | None:
    """Return the texts among the values of all JSON in a text; None where there is none."""
    text = _FENCE.sub("\n", text).strip()
    decoder = json.JSONDecoder(object_pairs_hook=_Pairs)
    found: list[Any] = []
    place = 0
    while True:
        opening = _OPENING.search(text, place)
        if opening is None:
            break
        try:
            value, place = decoder.raw_decode(text, opening.start())
        except (ValueError, RecursionError):
            place = opening.end()
            continue
        if isinstance(value, _Pairs) or (value and place == len(text) and not opening.start()):
            found.append(value)
    return [value for part in found for value in _leaves(part)] if found else None


class _Pairs(list[Any]):
    """The keys and values of a JSON object, those of repeated keys too."""


def _leaves(value: Any, depth: int = 0) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif depth < _DEEPEST and isinstance(value, _Pairs):
        for _, inner in value:
            yield from _leaves(inner, depth + 1)
    elif depth < _DEEPEST and isinstance(value, list):
        for inner in value:
            yield from _leaves(inner, depth + 1)


def is_chat_shaped(output: object) -> bool:
    """Tell whether an object is one answer as chat models return it.

    Chat and text completions (``choices``), MLflow's ``ResponsesAgent`` and OpenAI's responses
    (``output``), ``ChatAgent`` (``messages``), and messages of LangChain (``content``).

    Examples
    --------
    >>> is_chat_shaped({"choices": [{"message": {"content": "nurse"}}]})
    True
    >>> is_chat_shaped({"label": ["nurse"], "score": [0.9]})
    False
    """
    if isinstance(output, Mapping):
        for key in ("choices", "output", "messages"):
            value = output.get(key)
            if isinstance(value, list | tuple) and all(isinstance(v, Mapping) for v in value):
                return bool(value) or key == "choices"
        return output.get("role") == "assistant" and "content" in output
    return not isinstance(output, str) and _is_message(output)


def _is_message(output: object) -> bool:
    kind = type(output)
    known = kind.__module__.partition(".")[0] in ("langchain_core", "openai", "mlflow")
    return known and any(hasattr(output, name) for name in ("choices", "content", "output"))


def answer_text(answer: object) -> str | None:
    """Return the words of an answer; None where there are none, as in a refusal.

    Parameters
    ----------
    answer : object
        A text, or one answer as chat models return it (see `is_chat_shaped`).

    Examples
    --------
    >>> answer_text({"choices": [{"message": {"role": "assistant", "content": "A nurse."}}]})
    'A nurse.'
    >>> parts = [{"type": "output_text", "text": "A nurse."}]
    >>> answer_text({"output": [{"type": "message", "content": parts}]})
    'A nurse.'
    >>> answer_text({"choices": [{"message": {"content": None, "refusal": "No."}}]}) is None
    True
    """
    if isinstance(answer, str):
        return answer
    if not isinstance(answer, Mapping):
        if hasattr(answer, "model_dump"):
            return answer_text(answer.model_dump())
        if _is_message(answer):
            return _content_text(getattr(answer, "content", None))
        return None if answer is None or answer != answer else str(answer)
    choices = answer.get("choices")
    if isinstance(choices, list | tuple):
        if not choices:
            return None
        first = choices[0]
        message = first.get("message")
        if isinstance(message, Mapping):
            return None if message.get("refusal") else _content_text(message.get("content"))
        return _content_text(first.get("text"))
    output = answer.get("output")
    if isinstance(output, list | tuple):
        # What an agent did before it answered (reasoning, calls of tools) is no answer.
        texts = [
            _content_text(item.get("content"))
            for item in output
            if isinstance(item, Mapping) and item.get("type", "message") == "message"
        ]
        return next((text for text in reversed(texts) if text is not None), None)
    messages = answer.get("messages")
    if isinstance(messages, list | tuple):
        said = [m for m in messages if isinstance(m, Mapping) and m.get("role") == "assistant"]
        return _content_text(said[-1].get("content")) if said else None
    if "content" in answer:
        return None if answer.get("refusal") else _content_text(answer["content"])
    return json.dumps(answer, ensure_ascii=False, default=str)


def _content_text(content: object) -> str | None:
    if content is None or isinstance(content, str):
        return content
    if isinstance(content, list | tuple):
        parts = []
        for part in content:
            if isinstance(part, str):
                parts.append(part)
            elif isinstance(part, Mapping) and isinstance(part.get("text"), str):
                parts.append(part["text"])
        return "".join(parts) if parts else None
    return str(content)


def looks_written(answers: Iterable[object], reader: AnswerReader) -> bool:
    """Tell whether the outputs of a model that is not known are sentences, not labels.

    That is so where more than half of them are no occupation but written (a sentence, quotes,
    markdown, JSON), and one at least of these names an occupation. A label that is only unknown,
    such as "nurse practitioner", is not written.

    Examples
    --------
    >>> reader = AnswerReader(["nurse", "poet"])
    >>> looks_written(["The person is a nurse.", '"poet"'], reader)
    True
    >>> looks_written(["nurse practitioner", "poet laureate"], reader)
    False
    """
    total = written = 0
    named = False
    for answer in answers:
        total += 1
        if not isinstance(answer, str) or reader.is_label(answer):
            continue
        if _WRITTEN.search(answer) or len(answer.split()) >= _MANY_WORDS:
            written += 1
            named = named or reader.read(answer).code is not None
    return named and 2 * written > total
