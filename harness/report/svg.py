"""A matplotlib figure as SVG text to be put into a page.

Colours become CSS variables, so that the page's light and dark styles apply; ids are made
unique in the page; nothing points outside; equal figures give equal bytes. No pyplot: nothing
global is kept.
"""

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from harness.report.palette import GRID, INK, MUTED, SURFACE, VARIABLES

# 310 SVG units wide: near the width of a phone, so that its text keeps its size there.
_WIDTH_IN = 4.3
_RC: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "bakeoff",
    "font.family": "sans-serif",
    "font.size": 9.5,
    "text.parse_math": False,
    "text.color": INK,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.facecolor": SURFACE,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.formatter.useoffset": False,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.minor.visible": False,
    "ytick.minor.visible": False,
    "lines.linewidth": 1.8,
    "lines.markersize": 6,
    "path.simplify": True,
}


@contextmanager
def drawing() -> Iterator[None]:
    """Within it figures get the page's style; matplotlib's own settings come back after it.

    A label in a script that the measuring font lacks only makes its box a guess: the reader's
    own font draws it, so matplotlib's warning about it says nothing.
    """
    with mpl.rc_context(_RC), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def new_figure(*, rows: int = 1, height_in: float = 3.0) -> tuple[Figure, list[Axes]]:
    """A figure of one panel above the other, `rows` of them sharing the time axis."""
    figure = Figure(figsize=(_WIDTH_IN, height_in), layout="constrained", facecolor=SURFACE)
    FigureCanvasSVG(figure)
    axes = figure.subplots(rows, 1, sharex=True, squeeze=False)
    return figure, [axes[row][0] for row in range(rows)]


def to_svg(figure: Figure, *, key: str, title: str) -> str:
    """The figure as an `<svg>` element for a page.

    Args:
        figure: drawn inside `drawing()`.
        key: unique in the page, letters, digits and `-`; prefixes every id.
        title: what the figure shows; read aloud by a screen reader.
    """
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"<style[^>]*>.*?</style>", "", text, flags=re.DOTALL)
    text = text.replace("xlink:href=", "href=")
    text = re.sub(r'\bid="([^"]+)"', rf'id="{key}-\1"', text)
    text = re.sub(r"url\(#([^)]+)\)", rf"url(#{key}-\1)", text)
    text = re.sub(r'href="#([^"]+)"', rf'href="#{key}-\1"', text)
    text = re.sub(r"font(-family)?: ([^;\"]*?)('[^\"]*?sans-serif)", _font, text)
    for color, variable in VARIABLES.items():
        text = text.replace(color, variable)
    return _relabelled(text, title).strip()


def _font(match: re.Match[str]) -> str:
    family, size = match.group(1), match.group(2)
    return "font-family: inherit" if family else f"font: {size}var(--sans)"


def _relabelled(text: str, title: str) -> str:
    box = re.search(r'viewBox="([^"]+)"', text)
    view = box.group(1) if box else "0 0 400 240"
    body = text[text.index(">") + 1 :]
    name = escape(title, quote=True)
    head = f'<svg class="figure" viewBox="{view}" role="img" aria-label="{name}">'
    return f"{head}<title>{name}</title>{body}"
