"""The embedded sample: what is in it, and that it behaves like the benchmark."""

from __future__ import annotations

import importlib.resources
import lzma

import numpy as np
import pytest
from mlflow.exceptions import MlflowException
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score
from sklearn.pipeline import make_pipeline

from biasbios_mlflow.bios import sample
from biasbios_mlflow.bios.invented import sample_bytes
from biasbios_mlflow.bios.occupations import GENDERS, OCCUPATIONS
from biasbios_mlflow.bios.sample import read_sample
from biasbios_mlflow.counterfactual import swap_gender


def packed():
    return importlib.resources.files(sample.__package__).joinpath("sample.tsv.xz").read_bytes()


def test_the_file_is_what_the_generator_writes():
    assert lzma.decompress(packed()) == sample_bytes()


def test_the_file_is_small():
    assert len(packed()) <= 1_500_000


def test_the_splits_are_the_files_and_share_no_bio():
    both = read_sample()
    lines = lzma.decompress(packed()).decode().splitlines()
    for split in ("train", "test"):
        part = read_sample(split)
        rows = ["\t".join(row) for row in part[["profession", "gender", "hard_text"]].to_numpy()]
        assert rows == [line.partition("\t")[2] for line in lines if line.startswith(f"{split}\t")]
    assert len(both) == len(read_sample("train")) + len(read_sample("test"))
    assert both["hard_text"].is_unique


def test_every_occupation_and_gender_has_twelve_test_bios():
    test = read_sample("test")
    assert list(test.columns) == ["hard_text", "profession", "gender"]
    cells = test.groupby(["profession", "gender"]).size()
    assert len(cells) == len(OCCUPATIONS) * len(GENDERS)
    assert cells.min() >= 12


def test_an_unknown_split_is_an_error():
    with pytest.raises(MlflowException, match="'train' or 'test'"):
        read_sample("validation")


def measure(model, test, swapped):
    """Return balanced accuracy, gap_rms and prediction_consistency, computed plainly."""
    predicted = model.predict(test["hard_text"])
    right = test.assign(right=predicted == test["profession"])
    recall = right.groupby(["profession", "gender"])["right"].mean().unstack()
    return (
        balanced_accuracy_score(test["profession"], predicted),
        np.sqrt(((recall["male"] - recall["female"]) ** 2).mean()),
        np.mean(predicted == model.predict(swapped)),
    )


@pytest.fixture(scope="module")
def fit_and_measure():
    train, test = read_sample("train"), read_sample("test")
    texts, occupations = train["hard_text"].tolist(), train["profession"].tolist()
    swapped = swap_gender(test["hard_text"].tolist())

    def run(augment=False, **vectorizer):
        model = make_pipeline(TfidfVectorizer(**vectorizer), LogisticRegression(max_iter=1000))
        if augment:
            model.fit(texts + swap_gender(texts), occupations * 2)
        else:
            model.fit(texts, occupations)
        return measure(model, test, swapped)

    return run


def assert_like_published(accuracy, gap, consistency):
    assert 0.72 <= accuracy <= 0.84
    assert 0.12 <= gap <= 0.19
    assert 0.91 <= consistency <= 0.96


def test_a_baseline_lands_where_published_ones_do_and_augmentation_helps(fit_and_measure):
    accuracy, gap, consistency = fit_and_measure()
    assert_like_published(accuracy, gap, consistency)

    augmented = fit_and_measure(augment=True)
    assert augmented[0] >= accuracy - 0.005
    assert augmented[1] <= gap - 0.03
    assert augmented[2] >= 0.985


def test_a_baseline_on_word_pairs_lands_there_too(fit_and_measure):
    assert_like_published(*fit_and_measure(ngram_range=(1, 2), min_df=2))


def test_a_few_bios_have_nothing_to_swap():
    texts = read_sample("test")["hard_text"].tolist()
    unchanged = np.mean([a == b for a, b in zip(texts, swap_gender(texts), strict=True)])
    assert 0.01 <= unchanged <= 0.04
