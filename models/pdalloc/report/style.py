"""The one look of every figure: fonts, sizes, colours, and files that do not change.

Colours are those of Okabe and Ito (2008), which readers with colour-blindness can tell
apart. Fonts are embedded as Type 42 and no file holds a date: the same figure gives the
same bytes.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

COLUMN_WIDTH, PAGE_WIDTH = 3.4, 7.0
"""Inches: one column and the full width of a two-column page."""

BLACK, GREY, PALE = "#000000", "#6E6E6E", "#BDBDBD"
BLUE, VERMILLION, GREEN, ORANGE = "#0072B2", "#D55E00", "#009E73", "#E69F00"
SKY, PURPLE, YELLOW = "#56B4E9", "#CC79A7", "#F0E442"

ROLE_COLOURS: Mapping[str, str] = MappingProxyType({"prefill": BLUE, "decode": VERMILLION})

_GPU_COLOURS = {"a100": ORANGE, "h100": SKY, "h200": GREEN, "b200": PURPLE, "l40s": VERMILLION}
_SPARE_COLOURS = (BLUE, VERMILLION, YELLOW, GREY, PURPLE, GREEN, SKY, ORANGE)

RC: Mapping[Any, Any] = MappingProxyType(
    {
        "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans"],  # comes with matplotlib: the same on every machine
        "font.size": 7.5,
        "axes.labelsize": 7.5,
        "axes.titlesize": 7.5,
        "xtick.labelsize": 7.0,
        "ytick.labelsize": 7.0,
        "legend.fontsize": 7.0,
        "legend.frameon": False,
        "axes.linewidth": 0.6,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "xtick.major.width": 0.6,
        "ytick.major.width": 0.6,
        "xtick.major.size": 2.5,
        "ytick.major.size": 2.5,
        "lines.linewidth": 1.4,
        "lines.solid_capstyle": "butt",
        "figure.dpi": 100,
        "savefig.dpi": 300,
        "pdf.fonttype": 42,
        "ps.fonttype": 42,
    }
)
"""matplotlib settings, on top of its defaults (a user's matplotlibrc is left aside)."""

_METADATA: Mapping[str, dict[str, None]] = {
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


@contextmanager
def styled() -> Iterator[None]:
    """Draw and save figures in the style; settings are as before afterwards."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(RC)
        yield


def new_figure(width: float, height: float, rows: int = 1, columns: int = 1) -> tuple[Any, Any]:
    """(Figure, axes of shape (rows, columns)); sizes in inches. Use within :func:`styled`."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def figure_bytes(figure: Any, kind: str) -> bytes:
    """The file contents of ``figure`` as ``"png"`` or ``"pdf"``; equal figures, equal bytes."""
    buffer = io.BytesIO()
    with styled():
        figure.savefig(buffer, format=kind, metadata=dict(_METADATA[kind]))
    return buffer.getvalue()


def gpu_colours(gpus: Iterable[str]) -> dict[str, str]:
    """A colour per GPU name: the usual ones keep theirs in every figure."""
    names = list(dict.fromkeys(gpus))
    taken = [_GPU_COLOURS[name] for name in names if name in _GPU_COLOURS]
    spare = [colour for colour in _SPARE_COLOURS if colour not in taken]
    others = [name for name in names if name not in _GPU_COLOURS]
    extra = {name: spare[i % len(spare)] for i, name in enumerate(others)}
    return {name: _GPU_COLOURS.get(name, extra.get(name, GREY)) for name in names}


def name_end(axes: Any, x: float, y: float, name: str, **look: Any) -> Any:
    """Write the name of a curve that ends at (x, y): above the axes, or right of the point.

    Set the limits first; :func:`settle` then keeps names apart.
    """
    over = y >= axes.get_ylim()[1]
    look |= {"ha": "center", "va": "bottom"} if over else {"ha": "left", "va": "center"}
    offset = (0.0, 2.0) if over else (3.0, 0.0)
    paper = {"facecolor": "white", "edgecolor": "none", "pad": 0.4}
    return axes.annotate(
        name, (x, y), offset, textcoords="offset points", annotation_clip=False, bbox=paper, **look
    )


def settle(figure: Any) -> None:
    """Push the names of :func:`name_end` apart and freeze the layout of the figure."""
    figure.draw_without_rendering()
    for axes in figure.axes:
        for direction, alignment in ((0, "center"), (1, "left")):
            labels = [text for text in axes.texts if text.get_ha() == alignment]
            _push_apart(labels, direction, gap=3.0 if direction == 0 else 0.5)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")


def _push_apart(labels: list[Any], direction: int, gap: float) -> None:
    """Move labels along x (``direction`` 0) or y (1) until ``gap`` points lie between them.

    The sum of squared moves is least.
    """
    import numpy as np
    from scipy.optimize import isotonic_regression

    if len(labels) < 2:
        return
    dots = labels[0].figure.dpi / 72.0
    ends = [label.get_window_extent().get_points()[:, direction] / dots for label in labels]
    middle = np.array([end.mean() for end in ends])
    order = np.argsort(middle, kind="stable")
    size = np.array([end[1] - end[0] for end in ends])[order] + gap
    room = np.concatenate([[0.0], np.cumsum(0.5 * (size[1:] + size[:-1]))])
    placed = isotonic_regression(middle[order] - room).x + room
    for i, position in zip(order, placed, strict=True):
        offset = list(labels[i].get_position())
        offset[direction] += float(position - middle[i])
        labels[i].set_position(offset)


class LabelSpace:
    """Room for labels inside the axes: a label is drawn only where it covers nothing.

    Draw lines and patches, set limits and :func:`settle` the figure first.
    """

    def __init__(self, axes: Any, margin: float = 1.5) -> None:
        self.axes, self.margin = axes, margin
        lines = [line for line in axes.lines if line.get_visible()]
        self._paths = [line.get_transform().transform_path(line.get_path()) for line in lines]
        self._boxes = [artist.get_window_extent() for artist in (*axes.texts, *axes.patches)]

    def place(
        self,
        text: str,
        x: float,
        y: float,
        spots: Iterable[tuple[float, float]],
        force: bool = False,
        **look: Any,
    ) -> bool:
        """Draw ``text`` beside data point (x, y) at the first free one of ``spots``.

        A spot is the offset of the nearest corner or edge of the text in points: (3, -2)
        puts it to the right and below. Where none is free nothing is drawn, or with
        ``force`` the first spot is taken. Returns whether it was drawn.
        """
        tried = list(spots)
        if any(self._draw(text, x, y, spot, False, look) for spot in tried):
            return True
        return force and self._draw(text, x, y, tried[0], True, look)

    def _draw(
        self,
        text: str,
        x: float,
        y: float,
        spot: tuple[float, float],
        force: bool,
        look: dict[str, Any],
    ) -> bool:
        side = {-1: "right", 0: "center", 1: "left"}[_sign(spot[0])]
        level = {-1: "top", 0: "center", 1: "bottom"}[_sign(spot[1])]
        label = self.axes.annotate(
            text, (x, y), spot, textcoords="offset points", ha=side, va=level, **look
        )
        box = label.get_window_extent().padded(self.margin)
        if force or (self._inside(box) and self._free(box)):
            self._boxes.append(box)
            return True
        label.remove()
        return False

    def _inside(self, box: Any) -> bool:
        room = self.axes.get_window_extent().padded(self.margin)
        return bool((box.min >= room.min).all() and (box.max <= room.max).all())

    def _free(self, box: Any) -> bool:
        crossed = any(path.intersects_bbox(box, filled=False) for path in self._paths)
        return not crossed and not any(box.overlaps(other) for other in self._boxes)


def _sign(number: float) -> int:
    return (number > 0) - (number < 0)
