"""Figures: what they show, that nothing is cut off, and that they stand alone in a page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from biasbios_mlflow import plot_comparison, score
from biasbios_mlflow.report.figures import flips_figure, gaps_figure, save_png, style, svg
from biasbios_mlflow.scoring import Scores
from tests.report.conftest import evaluated, predicted

LONG = [f"an occupation with quite a long name, no {i:02d}, $x_{i}$" for i in range(28)]


@pytest.fixture(scope="module")
def scores() -> Scores:
    frame = predicted([f"She is no {i}." for i in range(600)], LONG)
    frame = frame[(frame["profession"] != LONG[3]) | (frame["gender"] == "male")]
    return evaluated(frame.reset_index(drop=True), label_names=LONG, min_cell=1).scores


def assert_nothing_is_cut(figure: Figure) -> None:
    with style():
        figure.draw_without_rendering()
        width, height = figure.bbox.width, figure.bbox.height
        unseen = set()  # labels of ticks beyond the limits of their axis
        for axes in figure.axes:
            for axis in (axes.xaxis, axes.yaxis):
                low, high = sorted(axis.get_view_interval())
                for tick in axis.get_major_ticks():
                    if not low <= tick.get_loc() <= high:
                        unseen |= {tick.label1, tick.label2}
        shown = [t for t in figure.findobj(Text) if t.get_text() and t not in unseen]
        shown = [t for t in shown if t.get_visible()]
        assert shown
        for text in shown:
            box = text.get_window_extent()
            assert box.x0 >= -1, text
            assert box.y0 >= -1, text
            assert box.x1 <= width + 1, text
            assert box.y1 <= height + 1, text


def test_gaps_are_sorted_with_their_intervals_and_both_counts(scores: Scores) -> None:
    (axes,) = gaps_figure(scores.to_dict()).axes
    table = scores.occupations[scores.occupations["scored"]].sort_values("tpr_gap", kind="stable")
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert len(labels) == 28
    for label, row in zip(labels, table.to_dict("records"), strict=False):
        assert label.startswith(row["occupation"][:35])
        assert label.endswith(f"({row['n_male']} m, {row['n_female']} f)")
    dots = [line for line in axes.lines if line.get_marker() == "o"]
    assert np.concatenate([d.get_xdata() for d in dots]) == pytest.approx(list(table["tpr_gap"]))
    spans = [tuple(line.get_xdata()) for line in axes.lines if line.get_linewidth() == 1.6]
    assert spans == [
        (row["tpr_gap_ci_low"], row["tpr_gap_ci_high"]) for row in table.to_dict("records")
    ]
    # The one that is not scored comes last and says so.
    assert labels[-1].startswith(LONG[3][:35])
    assert "not scored" in axes.texts[0].get_text()
    assert axes.texts[0].get_position()[1] == 27


def test_flips_have_both_directions_and_add_up(scores: Scores) -> None:
    (axes,) = flips_figure(scores.to_dict()).axes
    table = scores.flip_labels
    pairs = table.groupby(["prediction", "counterfactual_prediction"])["bios"].sum()
    widths = np.array([bar.get_width() for bar in axes.patches])
    assert len(axes.get_yticklabels()) == min(20, len(pairs))
    assert np.abs(widths).sum() == pairs.sort_values(ascending=False)[:20].sum()
    assert (widths > 0).any()
    assert (widths < 0).any()
    assert f"of {table['bios'].sum()}," in axes.get_xlabel()


def test_nothing_is_cut_off_with_long_names(scores: Scores) -> None:
    assert_nothing_is_cut(gaps_figure(scores.to_dict()))
    assert_nothing_is_cut(flips_figure(scores.to_dict()))


def test_comparison_shows_both_models() -> None:
    frame = predicted([f"She is no {i}." for i in range(400)], LONG)
    truth, genders = frame["profession"], frame["gender"]
    a = score(truth, genders, frame["before"], frame["after"], labels=LONG)
    b = score(truth, genders, frame["before"], frame["before"], labels=LONG)
    figure = plot_comparison(a, b, names=("the first " * 9, "the second " * 9))
    assert_nothing_is_cut(figure)
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    consistency = next(t for t in titles if t.startswith("prediction_consistency"))
    difference = 1 - a.metrics["prediction_consistency"]
    assert f"{difference:+.4f}" in consistency
    assert not any(title.startswith("ctf") for title in titles)  # no probabilities
    (large,) = (axes for axes in figure.axes if axes.get_label() == "gaps")
    assert len(large.get_yticklabels()) == int(a.occupations["scored"].sum())


@pytest.mark.parametrize("kind", ["no flips", "no counterfactuals", "nothing scored"])
def test_empty_figures_say_why(kind: str, tmp_path: Path) -> None:
    frame = predicted(["She sings."] * 40, ["poet", "dj"], flipped=0)
    if kind == "no counterfactuals":
        frame = frame.drop(columns=["after", "before_p", "after_p"])
    if kind == "nothing scored":
        frame = frame[frame["gender"] == "male"].reset_index(drop=True)
    scores = evaluated(frame, label_names=["poet", "dj"]).scores.to_dict()
    for draw in (gaps_figure, flips_figure):
        figure = draw(scores)
        assert_nothing_is_cut(figure)
        save_png(figure, tmp_path / "figure.png")
    said = flips_figure(scores).axes[0].texts[0].get_text()
    expected = "No counterfactual" if kind == "no counterfactuals" else "changed no prediction"
    assert expected in said


def test_svg_stands_alone(scores: Scores) -> None:
    one = svg(gaps_figure(scores.to_dict()), prefix="one-")
    two = svg(flips_figure(scores.to_dict()), prefix="two-")
    root = ElementTree.fromstring(one)
    assert "width" not in root.attrib
    assert "viewBox" in root.attrib
    ids = [re.findall(r'\bid="([^"]+)"', markup) for markup in (one, two)]
    assert not set(ids[0]) & set(ids[1])
    for markup, own in zip((one, two), ids, strict=True):
        referred = re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', markup)
        assert {a or b for a, b in referred} <= set(own)
        assert "http" not in re.sub(r'xmlns(:\w+)?="[^"]+"', "", markup)
    assert "currentColor" in one
    assert "var(--first)" in one
    assert "var(--second)" in one


def test_same_figure_same_bytes(scores: Scores, tmp_path: Path) -> None:
    files = []
    for name in ("a", "b"):
        figure = gaps_figure(scores.to_dict())
        save_png(figure, tmp_path / f"{name}.png")
        files.append(((tmp_path / f"{name}.png").read_bytes(), svg(figure, prefix="x-")))
    assert files[0] == files[1]


def test_user_settings_of_matplotlib_come_back(scores: Scores) -> None:
    import matplotlib as mpl

    before: dict[str, Any] = dict(mpl.rcParams)
    gaps_figure(scores.to_dict())
    assert dict(mpl.rcParams) == before
