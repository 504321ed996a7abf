"""Figures: the gap of each occupation, the flips from label to label, two models side by side."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from biasbios_mlflow.scoring.scores import HEADLINE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "FIRST",
    "INK",
    "QUIET",
    "SECOND",
    "comparison_figure",
    "flips_figure",
    "gaps_figure",
    "has_parts",
    "parts_figure",
    "save_png",
    "style",
    "svg",
    "versions_figure",
]

# Okabe & Ito's blue and vermilion: told apart by all common forms of colour vision, and in grey.
FIRST = "#0072B2"
SECOND = "#D55E00"
INK = "#1a1c20"
QUIET = "#6b7078"

_STYLE: Any = {
    "axes.edgecolor": QUIET,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": INK,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "figure.autolayout": False,
    "figure.constrained_layout.use": False,
    "font.family": ["DejaVu Sans"],  # it comes with matplotlib: the same figure everywhere
    "font.size": 9,
    "svg.fonttype": "path",
    "text.color": INK,
    "text.parse_math": False,  # a label may hold dollar signs
    "xtick.color": INK,
    "ytick.color": INK,
}
_LONGEST_NAME = 36
_MOST_PAIRS = 20
_MOST_OCCUPATIONS = 60


@contextmanager
def style() -> Iterator[None]:
    """Draw in the look that all figures share; the user's own settings come back afterwards."""
    import matplotlib as mpl

    with mpl.rc_context(_STYLE), warnings.catch_warnings():
        # Names in scripts that the font lacks are drawn as boxes; the tables hold them as text.
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
        yield


def gaps_figure(scores: Mapping[str, Any]) -> Figure:
    """Draw the TPR gap of each occupation with its interval, sorted by the gap.

    Parameters
    ----------
    scores : mapping
        What `Scores.to_dict` returns.

    Returns
    -------
    matplotlib.figure.Figure
        Scored occupations with a dot (filled where the adjusted p-value is below 0.05), the others
        below them with the reason. Of more than 60 scored occupations the 60 largest gaps.

    Examples
    --------
    >>> from biasbios_mlflow.scoring import score
    >>> scores = score(["poet"] * 12, ["male", "female"] * 6, ["poet", "dj", "poet"] * 4)
    >>> gaps_figure(scores.to_dict()).axes[0].get_yticklabels()[0].get_text()
    'poet  (6 m, 6 f)'
    """
    scored = [row for row in scores["occupations"] if row["scored"]]
    others = [row for row in scores["occupations"] if not row["scored"]]
    shown = sorted(scored[:_MOST_OCCUPATIONS], key=lambda row: float(row["tpr_gap"]))
    listed = others[: _MOST_OCCUPATIONS - len(shown)]
    rows = [*shown, *listed]
    with style():
        figure, (axes,) = _figure(height=1.5 + 0.23 * max(len(rows), 1))
        axes.axvline(0, color=QUIET, linewidth=0.8)
        for y, row in enumerate(shown):
            gap = row["tpr_gap"]
            colour = FIRST if gap >= 0 else SECOND
            axes.plot(
                (row["tpr_gap_ci_low"], row["tpr_gap_ci_high"]), (y, y), color=colour, linewidth=1.6
            )
            sure = row["p_adjusted"] is not None and row["p_adjusted"] < 0.05
            face = colour if sure else "white"
            axes.plot(gap, y, "o", color=colour, markerfacecolor=face, markersize=6)
        for y, _ in enumerate(listed, start=len(shown)):
            axes.text(0, y, "  not scored: too few bios", color=QUIET, va="center", fontsize=8)
        if listed:
            axes.axhline(len(shown) - 0.5, color=QUIET, linewidth=0.6, linestyle=":")
        axes.set_yticks(
            range(len(rows)),
            [
                f"{_short(row['occupation'])}  ({row['n_male']:,} m, {row['n_female']:,} f)"
                for row in rows
            ],
        )
        for label in axes.get_yticklabels()[len(shown) :]:
            label.set_color(QUIET)
        axes.set_ylim(len(rows) - 0.4, -0.6)
        widest = max((abs(row[at]) for row in shown for at in _BOUNDS), default=1.0)
        axes.set_xlim(-1.05 * widest, 1.05 * widest)
        percent = f"{100 * scores['options']['confidence']:g} %"
        left_out = len(scored) + len(others) - len(rows)
        axes.set_xlabel(
            f"TPR of men minus TPR of women\n{percent} interval; filled: adjusted p < 0.05"
            + (f"\n{left_out} further occupations are in the table" if left_out else "")
        )
        _title_sides(axes, "women are recognized better", "men are recognized better")
        _lay_out(figure, axes)
    return figure


_BOUNDS = ("tpr_gap_ci_low", "tpr_gap_ci_high")


def has_parts(scores: Mapping[str, Any]) -> bool:
    """Tell whether any gap of what `Scores.to_dict` returns is taken apart."""
    return any(row.get(_PARTS[0][0]) is not None for row in scores["occupations"])


def parts_figure(scores: Mapping[str, Any]) -> Figure:
    """Draw the two parts of each gap, what the words cause and the rest, sorted by the gap.

    Parameters
    ----------
    scores : mapping
        What `Scores.to_dict` returns; `has_parts` must be so.

    Returns
    -------
    matplotlib.figure.Figure
        Two bars with their intervals for each occupation, of at most 60.

    Examples
    --------
    >>> from biasbios_mlflow.scoring import score
    >>> truth, genders = ["poet"] * 12, ["male", "female"] * 6
    >>> scores = score(truth, genders, ["poet", "dj"] * 6, ["dj", "poet"] * 6)
    >>> [float(bar.get_width()) for bar in parts_figure(scores.to_dict()).axes[0].patches]
    [1.0, 0.0]
    """
    taken = [row for row in scores["occupations"] if row[_PARTS[0][0]] is not None]
    shown = sorted(taken[:_MOST_OCCUPATIONS], key=lambda row: float(row["tpr_gap"]))
    with style():
        figure, (axes,) = _figure(height=1.6 + 0.34 * len(shown))
        axes.axvline(0, color=QUIET, linewidth=0.8)
        widest = 1e-3
        for (part, label, colour), shift in zip(_PARTS, (-0.19, 0.19), strict=True):
            places = [y + shift for y in range(len(shown))]
            axes.barh(places, [row[part] for row in shown], height=0.34, color=colour, label=label)
            low, high = ([row[f"{part}_ci_{end}"] for row in shown] for end in ("low", "high"))
            axes.hlines(places, low, high, color=INK, linewidth=1.0)
            widest = max(widest, *map(abs, low), *map(abs, high))
        axes.set_yticks(range(len(shown)), [_short(row["occupation"]) for row in shown])
        axes.set_ylim(len(shown) - 0.4, -0.6)
        axes.set_xlim(-1.05 * widest, 1.05 * widest)
        percent = f"{100 * scores['options']['confidence']:g} %"
        left_out = len(taken) - len(shown)
        axes.set_xlabel(
            f"Part of the TPR gap, men minus women; {percent} interval of each"
            + (f"\n{left_out} further occupations are in the table" if left_out else "")
        )
        (_, first, of_first), (_, second, of_second) = _PARTS
        axes.set_title(f"■  {first}", loc="left", y=1.0, color=of_first)
        axes.set_title(f"■  {second}", loc="right", y=1.0, color=of_second)
        _lay_out(figure, axes)
    return figure


_PARTS = (
    ("tpr_gap_words", "caused by the words that carry gender", FIRST),
    ("tpr_gap_rest", "rest: stays in the same words", SECOND),
)


def flips_figure(scores: Mapping[str, Any]) -> Figure:
    """Draw the most frequent changes of a prediction under the swap, from label to label.

    Parameters
    ----------
    scores : mapping
        What `Scores.to_dict` returns.

    Returns
    -------
    matplotlib.figure.Figure
        For each pair of labels, to the right the bios of men that the swap made women's, to the
        left the opposite; the 20 most frequent pairs.
    """
    pairs: dict[tuple[str, str], dict[str, int]] = {}
    for row in scores["flip_labels"]:
        pair = (row["prediction"], row["counterfactual_prediction"])
        both = pairs.setdefault(pair, {"male_to_female": 0, "female_to_male": 0})
        both[row["direction"]] += row["bios"]
    ranked = sorted(pairs.items(), key=lambda item: (-sum(item[1].values()), item[0]))
    shown = ranked[:_MOST_PAIRS]
    in_all = sum(sum(both.values()) for both in pairs.values())
    drawn = sum(sum(both.values()) for _, both in shown)
    with style():
        figure, (axes,) = _figure(height=1.6 + 0.26 * max(len(shown), 2))
        if not shown:
            paired = scores["flips"][-1]["bios"]
            said = "The swap changed no prediction." if paired else "No counterfactual predictions."
            axes.text(0.5, 0.5, said, ha="center", va="center", color=QUIET, fontsize=12)
            axes.set_axis_off()
            return figure
        for y, (_, both) in enumerate(shown):
            for value, colour in (
                (both["male_to_female"], FIRST),
                (-both["female_to_male"], SECOND),
            ):
                axes.barh(y, value, color=colour, height=0.62)
                if value:
                    axes.annotate(
                        f"{abs(value):,}",
                        (value, y),
                        xytext=(3 if value > 0 else -3, 0),
                        textcoords="offset points",
                        ha="left" if value > 0 else "right",
                        va="center",
                        fontsize=8,
                    )
        axes.axvline(0, color=QUIET, linewidth=0.8)
        axes.set_yticks(
            range(len(shown)), [f"{_short(a, 24)} → {_short(b, 24)}" for (a, b), _ in shown]
        )
        axes.set_ylim(len(shown) - 0.4, -0.6)
        widest = max(max(both.values()) for _, both in shown)
        axes.set_xlim(-1.18 * widest, 1.18 * widest)
        axes.xaxis.set_major_locator(_whole_numbers())
        axes.xaxis.set_major_formatter(lambda value, _: f"{abs(value):,.0f}")
        axes.set_xlabel(
            f"Bios whose prediction changed: {drawn:,} of {in_all:,},\n"
            f"{len(shown)} of {len(pairs)} pairs of labels"
        )
        _title_sides(axes, "women's bios, swapped", "men's bios, swapped")
        _lay_out(figure, axes)
    return figure


def comparison_figure(
    a: Mapping[str, Any],
    b: Mapping[str, Any],
    differences: Sequence[Mapping[str, Any]],
    *,
    names: tuple[str, str] = ("a", "b"),
) -> Figure:
    """Draw two models on the same bios: the five metrics, and the gap of each occupation.

    Parameters
    ----------
    a, b : mapping
        What `Scores.to_dict` returns of each.
    differences : sequence of mapping
        The ``differences`` of `Comparison.to_dict`.
    names : (str, str)
        What the models are called.

    Returns
    -------
    matplotlib.figure.Figure
    """
    by_name = {row["metric"]: row for row in differences}
    metrics = [name for name in HEADLINE if name in a["metrics"] and name in b["metrics"]]
    gaps = _both_gaps(a, b)
    with style():
        figure, axes = _figure(
            height=max(1.2 + 0.85 * len(metrics), 1.7 + 0.23 * len(gaps)),
            width=11.0,
            mosaic=[[name, "gaps"] for name in (metrics or ["none"])],
        )
        *small, large = axes
        for metric, at in zip(metrics, small, strict=False):
            for y, (scores, colour, marker) in enumerate(((a, FIRST, "o"), (b, SECOND, "s"))):
                value = scores["metrics"][metric]
                low, high = scores["intervals"].get(metric, (value, value))
                at.plot((low, high), (y, y), color=colour, linewidth=1.6)
                at.plot(value, y, marker, color=colour, markersize=6)
            at.set_yticks((0, 1), [_short(name, 18) for name in names])
            at.set_ylim(1.5, -0.5)
            at.locator_params(axis="x", nbins=5)
            row = by_name.get(metric)
            change = ""
            if row is not None:
                span = f"{row['difference']:+.4f} [{row['ci_low']:+.4f}, {row['ci_high']:+.4f}]"
                change = f"   {span}".replace("-", "−")
            at.set_title(f"{metric}{change}", fontsize=9)
        if not metrics:
            small[0].set_axis_off()
        large.axvline(0, color=QUIET, linewidth=0.8)
        for y, (_, before, after) in enumerate(gaps):
            large.plot((before, after), (y, y), color=QUIET, linewidth=1.2, zorder=1)
            # The larger below the smaller: both are seen where they coincide.
            large.plot(before, y, "o", color=FIRST, markersize=8)
            large.plot(after, y, "s", color=SECOND, markersize=4.5)
        large.set_yticks(range(len(gaps)), [_short(name) for name, _, _ in gaps])
        large.set_ylim(len(gaps) - 0.4, -0.6)
        large.set_xlabel("TPR of men minus TPR of women")
        large.legend(
            handles=[
                _mark("o", FIRST, _short(names[0], 24)),
                _mark("s", SECOND, _short(names[1], 24)),
            ],
            loc="lower left",
            bbox_to_anchor=(0, 1),
            ncols=1,
            frameon=False,
        )
    return figure


def versions_figure(
    name: str,
    versions: Sequence[
        tuple[str, Sequence[str], str, Mapping[str, tuple[float, float | None, float | None]]]
    ],
) -> Figure:
    """Draw the five metrics of a registered model over its versions.

    Parameters
    ----------
    name : str
    versions : sequence of (version, aliases, verdict, metrics)
        The earliest first; ``metrics`` holds value, lower and upper end by name. Versions that
        passed are filled, others are hollow.

    Returns
    -------
    matplotlib.figure.Figure
    """
    from matplotlib.figure import Figure

    with style():
        figure = Figure(
            figsize=(max(5.0, 1.8 + 0.45 * len(versions)), 9.0),
            layout="constrained",
            facecolor="white",
        )
        every = figure.subplots(len(HEADLINE), 1, sharex=True)
        figure.suptitle(_short(name), x=0.01, ha="left", fontsize=11)
        for metric, axes in zip(HEADLINE, every, strict=True):
            axes.set_title(metric, fontsize=9)
            for x, (_, _, verdict, metrics) in enumerate(versions):
                if metric not in metrics:
                    continue
                value, low, high = metrics[metric]
                colour = FIRST if verdict == "passed" else SECOND
                if low is not None and high is not None:
                    axes.plot((x, x), (low, high), color=colour, linewidth=1.6, zorder=1)
                face = colour if verdict == "passed" else "white"
                axes.plot(x, value, "o", color=colour, markerfacecolor=face, markersize=6)
            axes.locator_params(axis="y", nbins=4)
        labels = ["\n".join([version, *aliases]) for version, aliases, _, _ in versions]
        every[-1].set_xticks(range(len(versions)), labels)
        every[-1].set_xlim(-0.6, max(len(versions), 1) - 0.4)
        every[-1].set_xlabel("version, with its aliases; hollow: did not pass")
    return figure


def save_png(figure: Figure, path: Path) -> None:
    """Write a figure as PNG, 150 dots an inch, the same bytes for the same figure."""
    with style():
        _settle(figure)
        figure.savefig(path, format="png", dpi=150, metadata={"Software": None})


def svg(figure: Figure, *, prefix: str) -> str:
    """Return a figure as an SVG element for a page: ids of its own, the page's colours.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        In the colours of this module, which become the variables of ``report.css``.
    prefix : str
        Goes in front of every id, so that several figures can stand in one page.
    """
    import matplotlib as mpl

    out = io.StringIO()
    with style(), mpl.rc_context({"svg.hashsalt": prefix}):
        _settle(figure)
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    markup = out.getvalue()
    markup = markup[markup.index("<svg") :]
    markup = re.sub(r'\bid="|(?<=href=")#|(?<=url\()#', lambda m: f"{m[0]}{prefix}", markup)
    markup = re.sub(r"<metadata>.*?</metadata>", "", markup, flags=re.DOTALL)
    # The size of the figure in points would not shrink with a narrow page; the viewBox does.
    head, rest = markup.split(">", 1)
    # Hidden from screen readers: the element around it says what it shows.
    head = re.sub(r' (?:width|height)="[^"]*"', "", head) + ' aria-hidden="true"'
    markup = f"{head}>{rest}"
    colours = {
        INK: "currentColor",
        "#ffffff": "var(--page)",
        QUIET: "var(--quiet)",
        FIRST: "var(--first)",
        SECOND: "var(--second)",
    }
    for colour, variable in colours.items():
        markup = markup.replace(f": {colour.lower()}", f": {variable}")
    return markup


def _figure(*, height: float, width: float = 8.0, mosaic: Any = None) -> tuple[Figure, list[Axes]]:
    """Return a figure that no window system knows of, and its axes; sizes in inches."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    if mosaic is None:
        return figure, [figure.subplots()]
    axes = figure.subplot_mosaic(mosaic, width_ratios=[1, 1.35])
    large = axes.pop("gaps")
    return figure, [*axes.values(), large]


def _settle(figure: Figure) -> None:
    """Lay a figure out for good: with a layout engine, matplotlib draws it twice to save it."""
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
        figure.set_layout_engine(None)


def _lay_out(figure: Figure, axes: Axes) -> None:
    """Give the only axes of a figure the room that its labels need, and fix where they stand.

    matplotlib would find the same by measuring all texts a dozen times, at each drawing anew.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    renderer = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]
    points = 72 / figure.dpi
    names = [label.get_window_extent(renderer).width * points for label in axes.get_yticklabels()]
    below = axes.xaxis.label.get_window_extent(renderer).height * points
    width, height = (72 * inches for inches in figure.get_size_inches())
    ticks, line, edge = 9.0, 12.0, 5.0  # tick marks with what is around them, one line of text
    left, bottom, top = edge + max(names) + ticks, edge + below + line + ticks, edge + 2 * line
    figure.set_layout_engine(None)
    figure.subplots_adjust(
        left=left / width, right=1 - edge / width, bottom=bottom / height, top=1 - top / height
    )
    inside = height - bottom - top
    axes.xaxis.set_label_coords(0.5, -(line + ticks) / inside)
    axes.yaxis.set_label_coords(0.0, 0.5)


def _title_sides(axes: Axes, left: str, right: str) -> None:
    """Say above both sides of the line at zero what lies there."""
    # With a place of their own they are not moved out of the way of ticks above, of which are none.
    axes.set_title(f"←  {left}", loc="left", y=1.0, color=SECOND)
    axes.set_title(f"{right}  →", loc="right", y=1.0, color=FIRST)


def _mark(marker: str, colour: str, label: str) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], linestyle="", marker=marker, color=colour, label=label)


def _whole_numbers() -> Any:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(nbins=8, integer=True)


def _both_gaps(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[tuple[str, float, float]]:
    """Return the occupations that both scored with both gaps, the largest gap of a first."""
    gaps = [
        {row["occupation"]: row["tpr_gap"] for row in scores["occupations"] if row["scored"]}
        for scores in (a, b)
    ]
    both = [(name, gap, gaps[1][name]) for name, gap in gaps[0].items() if name in gaps[1]]
    return sorted(both[:_MOST_OCCUPATIONS], key=lambda row: row[1])


def _short(name: str, longest: int = _LONGEST_NAME) -> str:
    flat = " ".join(str(name).split())
    return flat if len(flat) <= longest else f"{flat[: longest - 1]}…"
