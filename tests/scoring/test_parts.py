"""Why there is a gap: words and rest add up to it, and each is estimated, bounded and compared."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from biasbios_mlflow import GatePolicy, compare, load_bios, score, swap_gender
from biasbios_mlflow.gating.decision import Measured, decide
from biasbios_mlflow.scoring import Counts, JointCounts, Outcomes, Scores, scores_from_counts
from biasbios_mlflow.scoring.gaps import GapIntervals, moment_differences
from biasbios_mlflow.scoring.joint import Pair
from biasbios_mlflow.scoring.metrics import Variants
from biasbios_mlflow.scoring.outcomes import NO_COUNTERFACTUAL
from biasbios_mlflow.scoring.parts import (
    PARTS,
    Part,
    part_abs_noise_floor,
    part_differences,
    part_gap,
    part_rms_debiased,
    part_rms_noise_floor,
)

FAST = settings(max_examples=20, deadline=None, database=None)
K = 4


def drawn(seed: int, n: int = 400, *, unpaired: float = 0.0, outside: bool = True) -> Outcomes:
    rng = np.random.default_rng(seed)
    top = K + 2 if outside else K
    y, g = rng.integers(0, K, n), rng.integers(0, 2, n)
    p = np.where(rng.random(n) < 0.6 + 0.2 * g, y, rng.integers(0, top, n))
    q = np.where(rng.random(n) < 0.8, p, rng.integers(0, top, n))
    q = np.where(rng.random(n) < unpaired, NO_COUNTERFACTUAL, q)
    return Outcomes.from_codes(
        genders=g,
        occupations=y,
        predictions=p,
        counterfactual_predictions=q,
        changed=np.ones(n, dtype=bool),
        labels=[f"occupation {k}" for k in range(K)],
    )


@FAST
@given(st.integers(0, 2**32 - 1), st.integers(20, 400))
def test_words_and_rest_are_the_gap(seed: int, n: int) -> None:
    found = scores_from_counts(Counts.from_outcomes(drawn(seed, n)), min_cell=1)
    gaps = {name for name in found.metrics if name.startswith("tpr_gap/")}
    gaps = {name for name in gaps if not name.endswith(("_ci_low", "_ci_high"))}
    for name in gaps:
        occupation = name.partition("/")[2]
        parts = [found.metrics[f"tpr_gap_{part}/{occupation}"] for part in PARTS]
        assert sum(parts) == pytest.approx(found.metrics[name], abs=1e-12)
    table = found.occupations[found.occupations["scored"]]
    assert len(table) == len(gaps)
    total = table["tpr_gap_words"] + table["tpr_gap_rest"]
    assert total.to_numpy() == pytest.approx(table["tpr_gap"].to_numpy(), abs=1e-12)


@FAST
@given(st.integers(0, 2**32 - 1), st.permutations(range(5)))
def test_windows_in_any_order_have_the_same_parts(seed: int, order: list[int]) -> None:
    whole = drawn(seed, 200, unpaired=0.05)
    cuts = np.sort(np.random.default_rng(seed).integers(0, 200, 4))
    windows = np.split(np.arange(200), cuts)
    other = drawn(seed + 1, 200, unpaired=0.0)

    def rows(outcomes: Outcomes, kept: np.ndarray) -> Outcomes:
        return Outcomes.from_codes(
            genders=whole.genders[kept],
            occupations=whole.occupations[kept],
            predictions=outcomes.predictions[kept],
            counterfactual_predictions=outcomes.counterfactual_predictions[kept],  # type: ignore[index]
            labels=whole.labels,
        )

    parts = [
        JointCounts.from_outcomes(*(rows(o, windows[i]) for o in (whole, other))) for i in order
    ]
    merged = parts[0]
    for part in parts[1:]:
        merged = merged + part
    at_once = JointCounts.from_outcomes(*(rows(o, np.arange(200)) for o in (whole, other)))
    assert (merged.variant_products == at_once.variant_products).all()
    first, second = (scores_from_counts(x.a, min_cell=1) for x in (merged, at_once))
    assert first.metrics == second.metrics
    assert first.intervals == second.intervals


def test_a_bio_without_a_copy_is_left_out_of_both_parts() -> None:
    some = drawn(3, unpaired=0.3)
    kept = some.counterfactual_predictions != NO_COUNTERFACTUAL
    alone = Outcomes.from_codes(
        genders=some.genders[kept],
        occupations=some.occupations[kept],
        predictions=some.predictions[kept],
        counterfactual_predictions=some.counterfactual_predictions[kept],  # type: ignore[index]
        labels=some.labels,
    )
    full, left = (scores_from_counts(Counts.from_outcomes(x)) for x in (some, alone))
    names = [name for name in left.estimates if "_words" in name or "_rest" in name]
    assert len(names) > 2 * K
    for name in names:
        assert full.metrics[name] == left.metrics[name], name
    few = scores_from_counts(Counts.from_outcomes(drawn(4, 60, unpaired=0.95)))
    assert "gap_rms" in few.metrics
    assert few.reasons["gap_rms_words"] == (
        "no scored occupation has at least 5 swapped bios of each gender"
    )


def test_reasons_are_those_of_the_counterfactual_metrics() -> None:
    truth, genders = ["dj", "poet"] * 20, ["m", "m", "f", "f"] * 10
    alone = score(truth, genders, truth)
    assert alone.reasons["gap_rms_words"] == "no counterfactual predictions"
    assert alone.reasons["tpr_gap_rest/dj"] == "no counterfactual predictions"
    same = score(truth, genders, truth, truth, changed=[False] * 40)
    assert same.reasons["gap_abs_rest"] == "the swap changed no bio"
    assert same.occupations["tpr_gap_words"].isna().all()


def variants(cells: Any, own: Any, swapped: Any, both: Any) -> Variants:
    return Variants(*(np.array(x) for x in (cells, own, swapped, both)))


def simulated(sets: int, cells: int, shares: np.ndarray, seed: int = 0) -> Variants:
    """Sets of the shares (both, own only, swapped only, neither) of shape (2, K, 4)."""
    rng = np.random.default_rng(seed)
    counted = rng.multinomial(np.full((sets, *shares.shape[:-1]), cells), shares)
    both, own, swapped = (counted[..., i] for i in range(3))
    return Variants(np.full(both.shape, cells), both + own, both + swapped, both)


SHARES = np.array(
    [
        [[0.5, 0.15, 0.05, 0.3], [0.7, 0.02, 0.08, 0.2], [0.4, 0.1, 0.1, 0.4]],
        [[0.6, 0.02, 0.12, 0.26], [0.65, 0.04, 0.04, 0.27], [0.4, 0.0, 0.0, 0.6]],
    ]
)
TRUTHS = {
    "words": np.array([0.05 + 0.05, -0.03 - 0.0, 0.0]),
    "rest": np.array([0.6 - 0.67, 0.75 - 0.69, 0.5 - 0.4]),
}


@pytest.mark.parametrize("part", PARTS)
def test_estimate_and_variance_are_unbiased(part: Part) -> None:
    found = simulated(60_000, 9, SHARES)
    gap = part_gap(found, part)
    assert gap.mean(axis=0) == pytest.approx(TRUTHS[part], abs=5 * gap.std() / np.sqrt(len(gap)))
    variance = part_differences(found, part).variance
    assert variance.mean(axis=0) == pytest.approx(gap.var(axis=0), rel=0.03)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("cells", [30, 100])
def test_intervals_cover(part: Part, cells: int) -> None:
    shares = np.concatenate([SHARES] * 4, axis=1)
    truth = np.tile(TRUTHS[part], 4)
    sets = simulated(300, cells, shares)
    own = part_differences(sets, part)
    assert ((own.low <= truth) & (truth <= own.high)).mean() >= 0.93
    found = GapIntervals.of(own)
    for (low, high), value in (
        (found.rms, np.sqrt(np.mean(truth**2))),
        (found.abs, np.mean(np.abs(truth))),
    ):
        # 93 % less three standard errors.
        assert ((low <= value) & (value <= high)).mean() >= 0.93 - 3 * 0.015


@pytest.mark.parametrize("part", PARTS)
def test_noise_floors_are_exact_in_small_cells(part: Part) -> None:
    """Deal out the bios of each occupation to men and women in every way there is."""
    rng = np.random.default_rng(1)
    men, women = (3, 2), (2, 4)
    rows = [rng.integers(0, 2, (m + f, 2)) for m, f in zip(men, women, strict=True)]
    sign = -1 if part == "words" else 1
    parts, counted = [], []
    for each, m in zip(rows, men, strict=True):
        value = (each[:, 0] + sign * each[:, 1]) / 2
        dealt = []
        for chosen in itertools.combinations(range(len(each)), m):
            of_men = np.isin(np.arange(len(each)), chosen)
            dealt.append(value[of_men].mean() - value[~of_men].mean())
        parts.append(dealt)
        counted.append(
            [[x[:m].sum(), x[m:].sum()] for x in (each[:, 0], each[:, 1], each[:, 0] * each[:, 1])]
        )
    own, swapped, both = np.array(counted).transpose(1, 2, 0)
    v = variants([men, women], own, swapped, both)
    every = np.array(list(itertools.product(*parts)))
    scored = np.ones(2, dtype=bool)
    assert part_abs_noise_floor(v, part, scored) == pytest.approx(np.abs(every).mean(), rel=1e-9)
    roots = np.sqrt((every**2).mean(axis=1)).mean()
    assert part_rms_noise_floor(v, part, scored) == pytest.approx(roots, rel=2e-3)


def test_noise_floors_of_large_cells_are_close_to_small_steps() -> None:
    """The normal distribution takes over without a jump."""
    for n in (300, 3000):
        v = variants([[n], [n]], [[n // 2], [n // 2]], [[n // 2], [n // 2]], [[n // 3], [n // 3]])
        for part in PARTS:
            kinds = [n // 2 - n // 3, 2 * (n // 3) + 1, n // 2 - n // 3]
            values = np.repeat([-0.5, 0.0, 0.5] if part == "words" else [0.0, 0.5, 1.0], kinds)
            if part == "rest":
                values = np.repeat([0.0, 0.5, 1.0], [n // 3, 2 * (n // 2 - n // 3), n // 3])
            sd = values.std() * np.sqrt(2 / n)
            found = part_abs_noise_floor(v, part, np.array([True]))
            assert found == pytest.approx(sd * np.sqrt(2 / np.pi), rel=0.02)


def test_what_chance_explains_is_nothing() -> None:
    v = variants([[10], [10]], [[5], [5]], [[5], [5]], [[4], [4]])
    for part in PARTS:
        assert float(part_rms_debiased(v, part, np.array([True]))) == 0
    never = variants(
        [[50, 50], [50, 50]], [[30, 40], [30, 40]], [[30, 40], [30, 40]], [[30, 40]] * 2
    )
    low, high = GapIntervals.of(part_differences(never, "words")).rms
    # No bio flipped; that none ever would is not known.
    assert low == 0
    assert 0 < high < 0.02


def test_changes_between_models_by_hand() -> None:
    """Products of the joint counts give the variance of the change, bio by bio."""
    a, b = drawn(5), drawn(6)
    b = Outcomes.from_codes(
        genders=a.genders,
        occupations=a.occupations,
        predictions=np.where(np.arange(400) % 3, a.predictions, b.predictions),
        counterfactual_predictions=np.where(
            np.arange(400) % 5, a.counterfactual_predictions, b.counterfactual_predictions
        ),
        changed=a.changed,
        labels=a.labels,
    )
    joint = JointCounts.from_outcomes(a, b)
    for rate, part in itertools.product((0, 1), (0, 1)):
        expected = np.zeros((2, K), dtype=int)
        sign = (-1, 1)[part]
        for i in range(400):
            for k in range(K):
                if (a.occupations[i] == k) != (rate == 0):
                    continue
                each = [
                    int(x.predictions[i] == k) + sign * int(x.counterfactual_predictions[i] == k)  # type: ignore[index]
                    for x in (a, b)
                ]
                expected[a.genders[i], k] += each[0] * each[1]
        assert (joint.variant_products[rate, part] == expected).all()


def test_comparison_of_parts() -> None:
    rng = np.random.default_rng(0)
    n = 4000
    y, g = rng.integers(0, 3, n), rng.integers(0, 2, n)
    right = rng.random(n) < 0.85 - 0.2 * (g == 1)
    p = np.where(right, y, (y + 1) % 3)
    noise = rng.random(n)
    # a gets a fifth of the bios right by their words, b does not look at them.
    by_words = np.where((noise < 0.2) & (g == 0), (y + 1) % 3, np.where((noise < 0.2), y, p))
    labels = ["x", "y", "z"]
    a = Outcomes.from_codes(
        genders=g, occupations=y, predictions=p, counterfactual_predictions=by_words, labels=labels
    )
    b = Outcomes.from_codes(
        genders=g, occupations=y, predictions=p, counterfactual_predictions=p, labels=labels
    )
    same = compare(a, a, n_replicates=100).differences
    parts = [name for name in same.index if "_words" in name or "_rest" in name]
    assert len(parts) == 2 * (5 + 3)
    assert (same.loc[parts, ["ci_low", "ci_high", "probability_worse"]] == 0).all(axis=None)
    comparison = compare(a, b, n_replicates=200)
    table = comparison.differences
    assert table.loc["gap_rms_words", "b"] == 0
    assert table.loc["gap_rms_words", "ci_high"] < 0
    assert table.loc["gap_rms_words", "probability_worse"] < 0.001
    assert table.loc["gap_rms_rest", "difference"] > 0.02
    assert "by words" in str(comparison)
    rules: list[dict[str, Any]] = [
        {"metric": "gap rms words", "max": 0.01},
        {"metric": "tpr_gap_words/*", "abs_max": 0.02},
        {"metric": "gap_rms_words", "no_worse_than_champion": {"margin": 0.0}},
    ]
    policy = GatePolicy.parse({"rules": rules, "champion": "champion"})

    def verdicts(outcomes: Outcomes, against: Outcomes) -> list[bool]:
        scores = scores_from_counts(Counts.from_outcomes(outcomes))
        measured = Measured.from_summary({"scores": scores.to_dict()})
        found = compare(against, outcomes, n_replicates=200)
        return [verdict.passed for verdict in decide(policy, measured, {0.95: found})]

    assert verdicts(b, a) == [True] * 5
    assert verdicts(a, b) == [False] * 5


def test_models_with_copies_of_other_bios_are_compared_by_their_own_intervals() -> None:
    a, b = drawn(7), drawn(7, unpaired=0.2)
    assert Pair(JointCounts.from_outcomes(a, b)).rise("rms", "tpr words") == 0.0
    table = compare(a, b, n_replicates=100).differences
    low, high = table.loc["gap_rms_words", ["ci_low", "ci_high"]]
    assert low < table.loc["gap_rms_words", "difference"] < high


def test_moment_differences_of_small_values_are_those_of_their_rows() -> None:
    rng = np.random.default_rng(2)
    values = rng.choice([-2, -1, 0, 1, 2], p=[0.1, 0.2, 0.4, 0.2, 0.1], size=(2, 1, 5000))
    found = moment_differences(
        values.sum(axis=-1), np.square(values).sum(axis=-1), np.full((2, 1), 5000)
    )
    result = stats.ttest_ind(values[0, 0] / 2, values[1, 0] / 2, equal_var=False)
    expected = result.confidence_interval(0.95)
    assert float(found.low[0]) == pytest.approx(expected.low, abs=2e-4)
    assert float(found.high[0]) == pytest.approx(expected.high, abs=2e-4)


class Bags:
    """Bags of words of the embedded sample, and of its copies, learned by a linear model."""

    def __init__(self) -> None:
        train, test = (load_bios("sample", split=part).df for part in ("train", "test"))
        self.train, self.test = train.iloc[::2], test
        self.swapped = swap_gender(test["hard_text"].tolist())

    def scores(
        self,
        vectorizer: CountVectorizer,
        *,
        augmented: bool = False,
        occupations: tuple[str, ...] | None = None,
    ) -> Scores:
        train, test, swapped = self.train, self.test, np.array(self.swapped, dtype=object)
        if occupations is not None:
            train = train[train["profession"].isin(occupations)]
            kept = test["profession"].isin(occupations).to_numpy()
            test, swapped = test[kept], swapped[kept]
        texts, truth = train["hard_text"].tolist(), train["profession"].tolist()
        if augmented:
            texts, truth = texts + swap_gender(texts), truth * 2
        model = make_pipeline(vectorizer, LogisticRegression(max_iter=60, tol=1e-2)).fit(
            texts, truth
        )
        return score(
            test["profession"],
            test["gender"],
            model.predict(test["hard_text"]),
            model.predict(swapped),
        )


@pytest.fixture(scope="module")
def bags() -> Bags:
    return Bags()


PRONOUNS = ["he", "him", "his", "himself", "she", "her", "hers", "herself"]


def test_a_model_of_pronouns_has_all_of_its_gap_in_words(bags: Bags) -> None:
    vectorizer = CountVectorizer(vocabulary=["he", "she"])
    found = bags.scores(vectorizer, occupations=("nurse", "surgeon"))
    words, rest, gap = (found.metrics[f"gap_rms{part}"] for part in ("_words", "_rest", ""))
    assert gap > 0.9
    assert words == pytest.approx(gap, rel=0.03)
    assert found.intervals["gap_rms_words"][0] > 0.8
    assert found.intervals["gap_rms_rest"][0] == 0
    assert rest < 0.03 * gap


def test_a_model_without_pronouns_has_all_of_its_gap_in_the_rest(bags: Bags) -> None:
    found = bags.scores(CountVectorizer(stop_words=PRONOUNS, max_features=300))
    assert found.metrics["gap_rms_words"] == 0
    assert found.metrics["gap_rms_rest"] == pytest.approx(found.metrics["gap_rms"], abs=1e-12)


def test_swapped_copies_take_the_words_and_leave_the_rest(bags: Bags) -> None:
    plain = bags.scores(CountVectorizer(max_features=300))
    augmented = bags.scores(CountVectorizer(max_features=300), augmented=True)
    assert plain.intervals["gap_rms_words"][0] > 0.01
    assert augmented.intervals["gap_rms_words"][0] == 0
    assert augmented.metrics["gap_rms_words"] < 0.25 * plain.metrics["gap_rms_words"]
    found = compare(plain, augmented, n_replicates=100).differences
    assert found.loc["gap_rms_words", "ci_high"] < 0
    low, high = found.loc["gap_rms_rest", ["ci_low", "ci_high"]]
    assert low <= 0 <= high
