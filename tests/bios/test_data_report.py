"""The report on data: every number against a plain count."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
import pytest
from mlflow.exceptions import MlflowException
from sklearn.pipeline import Pipeline

import biasbios_mlflow
from biasbios_mlflow.bios.checked import check_bios, find_columns
from biasbios_mlflow.bios.occupations import OCCUPATIONS
from biasbios_mlflow.config import EvaluationConfig
from biasbios_mlflow.counterfactual import swap_with_directions
from biasbios_mlflow.data_report import DataReport, examine_data
from biasbios_mlflow.findings import Findings
from biasbios_mlflow.pipeline import evaluate_bios
from biasbios_mlflow.prediction.sklearn import SklearnPredictor
from tests.program import call_program, run_program


def findings(frame: pd.DataFrame) -> Findings:
    bios = check_bios(frame, find_columns(list(frame.columns)))
    return Findings.of(bios, swap_with_directions(bios.texts)[1])


@pytest.fixture
def spoiled(bios: pd.DataFrame) -> pd.DataFrame:
    """Bios with every problem, and the split they are in."""
    spoiled = bios.assign(split=np.array(["train", "dev", "test"])[np.arange(len(bios)) % 3])
    spoiled = spoiled.astype(object)
    text, job, gender = 0, 1, 2
    spoiled.iloc[10, text] = spoiled.iloc[13, text]  # within dev
    spoiled.iloc[31, text] = spoiled.iloc[30, text]  # dev and train
    spoiled.iloc[32, text] = spoiled.iloc[30, text]  # test, dev and train
    spoiled.iloc[30:33, job] = ["nurse", "nurse", "poet"]
    spoiled.iloc[40, text] = None
    spoiled.iloc[41, text] = 7.5
    spoiled.iloc[42, text] = " \n"
    spoiled.iloc[43, job] = None
    spoiled.iloc[44, gender] = None
    spoiled.iloc[45:48, gender] = "other"
    spoiled.iloc[50, text] = "Paints every day."
    spoiled.iloc[51, [text, gender]] = ["She paints, and her dog sleeps.", "male"]
    spoiled.iloc[52, [text, gender]] = ["He paints, and his dog sleeps.", "female"]
    spoiled.iloc[53, [text, gender]] = ["He paints, and her dog sleeps.", "female"]
    spoiled.iloc[54, [text, job]] = ["She is a Software-Engineer! She codes.", "software_engineer"]
    spoiled.iloc[55, [text, job]] = ["He sings. Later, the DJ slept.", "dj"]
    spoiled.iloc[56, [text, job]] = ["One of the best DJs he knows", "dj"]
    return spoiled.reset_index(drop=True)


class TestFindings:
    def test_parts_add_up_in_any_order(self, bios: pd.DataFrame) -> None:
        frame = pd.concat([bios.iloc[:300], bios.iloc[100:150]], ignore_index=True)
        whole = findings(frame).to_dict()
        checked = check_bios(frame, find_columns(list(frame.columns)))
        parts = [
            Findings.of(window, swap_with_directions(window.texts)[1])
            for window in checked.windows(33)
        ]
        for order in (range(len(parts)), reversed(range(len(parts)))):
            first, *others = (parts[i] for i in order)
            for other in others:
                first = first + other
            assert first.to_dict() == whole
        assert whole["duplicates"] == 50
        assert whole["duplicates_with_other_labels"] == 0

    def test_words(self) -> None:
        counts = [1, 1, 2, 3, 5, 8, 13, 21, 34, 5000]
        frame = pd.DataFrame({"bio": [" ".join(["x"] * n) for n in counts], "p": "dj", "g": "M"})
        found = findings(frame)
        assert [found.length(share) for share in (0.1, 0.5, 0.9)] == [1, 5, 34]
        assert (found.longest, found.length(0.95)) == (5000, 5000)

    @pytest.mark.parametrize(
        ("text", "job", "leaks"),
        [
            ("She is a nurse. He is.", "nurse", True),
            ("NURSES like her", "nurse", True),
            ("She nursed. A nurse.", "nurse", False),
            ("She is a yoga  teacher\nHe.", "yoga_teacher", True),
            ("She is a teacher of yoga. A yoga teacher.", "yoga_teacher", False),
            ("Is she a dj? No", "dj", True),
            ("Dr. Lee, a dentist", "dentist", False),  # a full stop ends the sentence
            ("Ein „Poet“ ist er.", "poet", True),
            ("He met a nurse.", "poet", False),
            ("", "model", False),
        ],
    )
    def test_first_sentence(self, text: str, job: str, leaks: bool) -> None:
        frame = pd.DataFrame({"bio": [text or "."], "p": [job], "g": ["M"]})
        assert findings(frame).leaks == int(leaks)

    def test_other_label_sets(self) -> None:
        names = ["C++ developer", "__", "R&D (lead)"]
        frame = pd.DataFrame(
            {
                "bio": ["A c++ developer.", "He __ works.", "An r&d (lead) she."],
                "p": names,
                "g": "F",
            }
        )
        assert findings(frame).leaks >= 2

    def test_in_an_evaluation(self, classifier: Pipeline, bios: pd.DataFrame) -> None:
        frame = pd.concat([bios, bios.iloc[:7]], ignore_index=True)
        expected = findings(frame).to_dict()
        checked = check_bios(frame, find_columns(list(frame.columns)))
        for options in ({}, {"n_jobs": 2}, {"window_size": 50}):
            config = EvaluationConfig.parse({"n_replicates": 100, **options})
            model = SklearnPredictor(classifier)
            evaluation = evaluate_bios(checked, model, config)
            assert evaluation.result.findings.to_dict() == expected
        assert expected["duplicates"] == 7
        changed = evaluation.scores.metrics["swap_coverage"]
        assert expected["without_gendered_words"] == round((1 - changed) * len(frame))

    def test_own_counterfactuals_say_nothing_of_words(self, bios: pd.DataFrame) -> None:
        frame = bios.assign(swapped=bios["hard_text"], guess=bios["profession"])
        with mlflow.start_run():
            result = biasbios_mlflow.evaluate(
                None, frame, predictions="guess", counterfactual_column="swapped", n_replicates=100
            )
        found = result.artifacts["biasbios/summary"].content["data"]["findings"]
        assert "without_gendered_words" not in found
        assert found["duplicates"] == 0


class TestReport:
    @pytest.fixture
    def report(self, spoiled: pd.DataFrame, tmp_path: Path, small_chunks: None) -> DataReport:
        spoiled.to_json(tmp_path / "spoiled.jsonl", orient="records", lines=True)
        return examine_data(tmp_path / "spoiled.jsonl")

    def test_what_is_missing(self, report: DataReport, spoiled: pd.DataFrame) -> None:
        found = report.to_dict()
        assert found["rows"] == len(spoiled)
        assert found["missing"] == {"text": 3, "occupation": 1, "gender": 4}
        assert found["complete"] == len(spoiled) - 8
        assert found["not_texts"] == 1
        assert found["unknown_genders"] == {"other": 3}
        assert found["columns"] == {
            "text": "hard_text",
            "occupation": "profession",
            "gender": "gender",
        }
        assert found["other_columns"] == ["split"]

    def test_duplicates(self, report: DataReport, spoiled: pd.DataFrame) -> None:
        found = report.to_dict()["splits"]
        assert {split: part["duplicates"] for split, part in found.items()} == {
            "all": 3,
            "train": 0,
            "dev": 1,
            "test": 0,
        }
        # The three copies under two labels, and the pair whose labels differ.
        pair = spoiled.loc[[10, 13], ["profession", "gender"]]
        assert found["all"]["duplicates_with_other_labels"] == 3 + 2 * (
            len(pair.drop_duplicates()) > 1
        )
        assert dict(report.shared) == {
            (one, other): 1
            for one in ("train", "dev", "test")
            for other in ("train", "dev", "test")
            if one != other
        }

    def test_words_and_leaks(self, report: DataReport, spoiled: pd.DataFrame) -> None:
        whole = spoiled.drop(index=range(40, 48))
        texts = whole["hard_text"].str.lower()
        his = texts.str.contains(r"\b(?:he|him|his|himself)\b")
        hers = texts.str.contains(r"\b(?:she|her|hers|herself)\b")
        women = whole["gender"] == "female"
        found = report.all
        assert found.neutral == (~his & ~hers).sum() >= 1
        assert found.contradicted == ((women & his & ~hers) | (~women & hers & ~his)).sum() >= 4
        assert found.leaks == 2

    def test_occupations(self, report: DataReport, spoiled: pd.DataFrame) -> None:
        whole = spoiled.drop(index=range(40, 48))
        table = report.occupations().set_index("occupation")
        assert list(table.index) == list(OCCUPATIONS)
        assert table["bios"].to_dict() == whole["profession"].value_counts().to_dict()
        women = whole[whole["gender"] == "female"]["profession"].value_counts()
        assert (table["women"] == women.reindex(table.index, fill_value=0)).all()
        np.testing.assert_allclose(table["share_of_women"], table["women"] / table["bios"])

    def test_text_fits_a_terminal(self, report: DataReport) -> None:
        lines = str(report).splitlines()
        assert max(map(len, lines)) <= 80
        text = "\n".join(lines)
        for words in (
            "Text            column 'hard_text'",
            "'other' (3); say what they mean with gender_values",
            "train and test share texts, those of 1 and 1 bios",
            "software_engineer",
        ):
            assert words in text

    def test_wide_data_too(self) -> None:
        n = 200_000
        frame = pd.DataFrame(
            {
                "bio": [f"She works in place {i}." for i in range(n)],
                "p": [f"an occupation with a very long name, number {i % 300}" for i in range(n)],
                "g": "F",
                "split": np.array(["training split", "b", "c", "d", "e", "f"])[np.arange(n) % 6],
                **{f"one of many columns {i}": 1 for i in range(20)},
            }
        )
        text = str(examine_data(frame))
        assert max(map(len, text.splitlines())) <= 80
        assert "and 240 more" in text

    def test_without_a_complete_bio(self) -> None:
        report = examine_data(pd.DataFrame({"bio": [None, 5], "p": ["dj", None], "g": ["M", "x"]}))
        assert report.survey.complete == 0
        assert json.dumps(report.to_dict(), allow_nan=False)
        assert "Without text        2" in str(report)

    def test_numbers_are_plain_json(self, report: DataReport) -> None:
        assert json.loads(json.dumps(report.to_dict(), allow_nan=False)) == report.to_dict()

    @pytest.mark.parametrize(
        ("frame", "says"),
        [
            (pd.DataFrame({"bio": [], "p": [], "g": []}), "no rows"),
            (pd.DataFrame({"words": ["He."], "p": [1], "g": [0]}), "text_column"),
        ],
    )
    def test_nothing_to_report(self, frame: pd.DataFrame, says: str) -> None:
        with pytest.raises(MlflowException, match=says):
            examine_data(frame)

    def test_memory_is_a_few_bytes_a_bio(self, tmp_path: Path) -> None:
        def peak(n: int) -> int:
            path = tmp_path / f"{n}.csv"
            rows = "".join(f'"She works in place {i}. {"x" * 300}",dj,F\n' for i in range(n))
            path.write_text("bio,occupation,sex\n" + rows)
            del rows
            tracemalloc.start()
            examine_data(path)
            found = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            return found

        small, large = peak(8000), peak(24000)
        assert (large - small) / 16_000 < 100


class TestCommand:
    def test_text_and_json(self, bios: pd.DataFrame, bios_csv: Path) -> None:
        done = run_program("data", str(bios_csv))
        assert done.returncode == 0, done.stderr
        assert done.stdout == f"{examine_data(bios_csv)}\n"
        done = call_program("data", str(bios_csv), "--json")
        assert json.loads(done.stdout) == examine_data(bios_csv).to_dict()

    def test_error(self, tmp_path: Path) -> None:
        done = call_program("data", str(tmp_path / "no.csv"))
        assert done.returncode == 2
        assert done.stderr.startswith("biasbios: data: found")
        assert done.stdout == ""
