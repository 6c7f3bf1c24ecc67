"""How candidates are told apart in every figure: colour, marker and dash together.

The colours here are placeholders with unique hex codes; `svg.py` turns each into a CSS variable
whose light and dark values stand in `page.css`. Hues after Okabe and Ito's set for colour-blind
readers (jfly.uni-koeln.de/color), darkened or lightened there to a contrast of 3:1 and more.
"""

from dataclasses import dataclass
from html import escape

INK = "#010101"
MUTED = "#020202"
GRID = "#030303"
SURFACE = "#040404"
LIMIT = "#050505"
BAND = "#060606"

_SERIES = ("#0a0001", "#0a0002", "#0a0003", "#0a0004", "#0a0005", "#0a0006", "#0a0007")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_DASHES = ("", "6 3", "2 2", "8 3 2 3", "10 4", "1 3", "4 2 1 2")
_SHAPES = {
    "o": '<circle cx="17" cy="7" r="4"/>',
    "s": '<rect x="13" y="3" width="8" height="8"/>',
    "^": '<path d="M17 2l5 9H12z"/>',
    "D": '<path d="M17 2l5 5-5 5-5-5z"/>',
    "v": '<path d="M17 12l5-9H12z"/>',
    "P": '<path d="M15 2h4v3h3v4h-3v3h-4V9h-3V5h3z"/>',
    "X": '<path d="M14 2l3 3 3-3 2 2-3 3 3 3-2 2-3-3-3 3-2-2 3-3-3-3z"/>',
}

VARIABLES = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    GRID: "var(--grid)",
    SURFACE: "var(--surface)",
    LIMIT: "var(--limit)",
    BAND: "var(--band)",
    **{color: f"var(--c{i})" for i, color in enumerate(_SERIES, start=1)},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """One candidate's look. `color` is a placeholder of `VARIABLES`; `dash` in points."""

    color: str
    marker: str
    dash: str

    @property
    def linestyle(self) -> str | tuple[int, tuple[float, ...]]:
        """The dash as matplotlib takes it."""
        return (0, tuple(float(d) for d in self.dash.split())) if self.dash else "-"

    def swatch(self) -> str:
        """A small SVG of line and marker for the legend in the page."""
        color = VARIABLES[self.color]
        dash = escape(self.dash, quote=True)
        line = f'<path d="M0 7h34" stroke-width="2" stroke-dasharray="{dash}"/>'
        return (
            '<svg class="swatch" viewBox="0 0 34 14" aria-hidden="true" '
            f'style="stroke:{color};fill:{color}">{line}{_SHAPES[self.marker]}</svg>'
        )


def style_of(position: int) -> Style:
    """The look of the candidate at this position; after 7 colours the dash goes on alone."""
    count = len(_SERIES)
    shift = position // count
    return Style(
        color=_SERIES[position % count],
        marker=_MARKERS[(position + shift) % count],
        dash=_DASHES[(position + shift) % count],
    )
