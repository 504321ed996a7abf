"""Figures of equal content are drawn once for each worker.

Most tests evaluate one of a few models on the same bios and look at numbers, not at figures, and
the figures take two thirds of the time of a small evaluation. What is drawn is what would be
drawn: the first evaluation with some content draws it, and the later ones get the same bytes.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from biasbios_mlflow.report import files, page

# All that a figure is drawn from. It is handed nothing else: a figure that begins to show more
# fails here (KeyError) instead of showing what belongs to another evaluation.
_CONTENT = ("occupations", "flip_labels", "flips")
_OPTIONS = ("confidence",)


class _Figure:
    """A figure that is drawn when its bytes are asked for and not there yet."""

    def __init__(self, draw: Callable[[Mapping[str, Any]], Any], scores: Mapping[str, Any]) -> None:
        self._content = {name: scores[name] for name in _CONTENT}
        self._content["options"] = {name: scores["options"][name] for name in _OPTIONS}
        self._draw = draw
        self._drawn: Any = None
        self.key = (draw.__name__, json.dumps(self._content))

    def drawn(self) -> Any:
        if self._drawn is None:
            self._drawn = self._draw(self._content)
        return self._drawn


def draw_once(patch: pytest.MonkeyPatch) -> None:
    """Let reports keep the figures that they have drawn."""
    svg, save_png = page.svg, files.save_png
    kept: dict[tuple[str, ...], Any] = {}
    turn = threading.Lock()  # matplotlib's figures are not for several threads

    def once(key: tuple[str, ...], make: Callable[[], Any]) -> Any:
        with turn:
            if key not in kept:
                kept[key] = make()
            return kept[key]

    def svg_once(figure: Any, *, prefix: str) -> str:
        if not isinstance(figure, _Figure):
            return svg(figure, prefix=prefix)
        markup: str = once((*figure.key, prefix), lambda: svg(figure.drawn(), prefix=prefix))
        return markup

    def png_once(figure: Any, path: Path) -> None:
        if not isinstance(figure, _Figure):
            save_png(figure, path)
            return

        def make() -> bytes:
            save_png(figure.drawn(), path)
            return path.read_bytes()

        path.write_bytes(once((*figure.key, "png"), make))

    for name in ("gaps_figure", "parts_figure", "flips_figure"):
        draw = getattr(files, name)
        patch.setattr(files, name, lambda scores, draw=draw: _Figure(draw, scores))
    patch.setattr(files, "save_png", png_once)
    patch.setattr(page, "svg", svg_once)
