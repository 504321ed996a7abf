"""report.html: everything in it, nothing from the data as markup, of a bounded size."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from biasbios_mlflow.pipeline import Evaluation
from biasbios_mlflow.report.files import summary
from biasbios_mlflow.report.marks import visible
from biasbios_mlflow.report.page import MOST_FLIPS, report_page
from biasbios_mlflow.scoring import HEADLINE
from biasbios_mlflow.scoring.specs import is_of_each
from tests.report.conftest import HOSTILE, evaluated, predicted

MODEL = {"uri": "models:/x/1", "model_id": None, "versions": [{"name": "x", "version": "1"}]}
DATA = {"name": "<u>data</u>", "digest": "abc"}


def content(evaluation: Evaluation) -> dict[str, Any]:
    return summary(evaluation, model=MODEL, data=DATA)


def page(evaluation: Evaluation, **options: Any) -> str:
    return report_page(content(evaluation), evaluation.result.flips.sample, **options)


class Reader(HTMLParser):
    """Collects tags, attributes and the text outside style and script."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(markup)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag in {"style", "script"}:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in {"style", "script"}:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        if not self._open:
            self.text += data


def test_data_is_text_never_markup(hostile_evaluation: Evaluation) -> None:
    markup = page(hostile_evaluation)
    read = Reader(markup)
    assert read.tags.count("script") == 1
    assert not {"img", "i", "b", "u", "iframe", "link", "object"} & set(read.tags)
    assert not [name for _, name, _ in read.attributes if name.startswith("on")]
    for shown in (visible(HOSTILE), "<b>poet</b>", "=1+1", "<u>data</u>", '=HYPERLINK("https://'):
        assert shown in read.text
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f]", markup)


def test_nothing_is_loaded_from_elsewhere_and_only_the_own_script_may_run(
    hostile_evaluation: Evaluation,
) -> None:
    markup = page(hostile_evaluation)
    read = Reader(markup)
    for tag, name, value in read.attributes:
        if name in {"src", "href", "xlink:href", "action", "data", "srcset"}:
            assert (value or "").startswith("#"), (tag, name, value)
    (policy,) = (v for t, n, v in read.attributes if t == "meta" and n == "content" and "src" in v)
    (script,) = re.findall(r"<script>(.*?)</script>", markup, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in str(policy)
    assert "default-src 'none'" in str(policy)
    assert "url(" not in re.findall(r"<style>(.*?)</style>", markup, re.DOTALL)[0]


def test_everything_a_reviewer_signs_is_there(hostile_evaluation: Evaluation) -> None:
    c = content(hostile_evaluation)
    text = Reader(page(hostile_evaluation)).text
    assert "x version 1" in text
    for name in HEADLINE:
        assert name in text
        assert f"{c['scores']['metrics'][name]:.4f}" in text
    for row in c["scores"]["occupations"]:
        assert visible(row["occupation"]) in text
    assert c["data"]["sha256"] in text
    for name, version in c["versions"].items():
        assert name in text
        assert version in text
    for option in c["config"]:
        assert option in text
    for row in c["scores"]["flips"]:
        assert f"{row['towards']:,}" in text
    assert "noise floor" in text


def test_structure_for_screen_readers(hostile_evaluation: Evaluation) -> None:
    read = Reader(page(hostile_evaluation))
    for landmark in ("header", "main", "nav", "h1"):
        assert read.tags.count(landmark) == 1
    assert ("html", "lang", "en") in read.attributes
    ids = [value for _, name, value in read.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    referred = [v for _, n, v in read.attributes if n in {"aria-labelledby"}]
    assert set(referred) <= set(ids)
    assert {v[1:] for t, n, v in read.attributes if t == "a" and n == "href" and v} <= set(ids)
    heads = [value for tag, name, value in read.attributes if tag == "th" and name == "scope"]
    assert len(heads) == read.tags.count("th")
    images = [v for _, n, v in read.attributes if n == "role" and v == "img"]
    assert len(images) == read.tags.count("svg") == 3


def test_texts_are_withheld(hostile_evaluation: Evaluation) -> None:
    flips = hostile_evaluation.result.flips.sample
    markup = page(hostile_evaluation, texts=False, changed_words=["she > he"] * len(flips))
    assert "she &gt; he" in markup
    assert "number 1" not in markup
    assert "reversed" not in markup


def test_size_is_bounded() -> None:
    texts = [f"{'word ' * 20_000}she {i}" for i in range(300)]
    frame = predicted(texts, [f"label {i}" for i in range(28)], flipped=1)
    evaluation = evaluated(
        frame, counterfactual_column="swapped", label_names=[f"label {i}" for i in range(28)]
    )
    assert evaluation.result.flips.found > MOST_FLIPS
    markup = page(evaluation)
    assert len(markup.encode()) < 2_000_000
    assert markup.count("<article>") == MOST_FLIPS


@pytest.mark.parametrize("kind", ["labels only", "one gender", "one bio", "no flips", "no texts"])
def test_pages_of_thin_evaluations(kind: str) -> None:
    frame = predicted([f"She is no {i}." for i in range(60)], ["poet", "dj"])
    if kind == "labels only":
        frame = frame.drop(columns=["after", "before_p", "after_p"])
    if kind == "one gender":
        frame = frame[frame["gender"] == "male"]
    if kind == "one bio":
        frame = frame[:1]
    if kind == "no flips":
        frame["after"], frame["after_p"] = frame["before"], frame["before_p"]
    evaluation = evaluated(frame.reset_index(drop=True), label_names=["poet", "dj"])
    text = Reader(page(evaluation)).text
    for name, why in evaluation.scores.reasons.items():
        if not is_of_each(name):
            assert why in text
    if kind == "labels only":
        assert "no predictions for swapped bios" in text
    if kind == "no flips":
        assert "all 60 predictions stayed the same" in text
    if kind == "one gender":
        assert "no gap to show" in text


def test_what_may_be_wrong_with_the_data_is_said() -> None:
    texts = [f"She is no {i}." for i in range(56)] + ["Works."] * 3 + ["He is a poet."]
    frame = predicted(texts, ["poet", "dj"])
    frame.loc[56:58, ["profession", "gender"]] = ["poet", "male"]
    frame.loc[59, ["profession", "gender"]] = ["poet", "female"]
    evaluation = evaluated(frame, label_names=["poet", "dj"], counterfactual_column="swapped")
    found = content(evaluation)["data"]["findings"]
    text = Reader(page(evaluation)).text
    assert found["duplicates"] == 2
    assert "2 (3.3 %) have the text of a bio before." in text
    assert "1 (1.7 %) name their occupation in the first sentence" in text
    assert "Half of the bios have at most 4 words" in text
