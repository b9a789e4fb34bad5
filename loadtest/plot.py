"""Line charts as SVG, for the documents: a few lines over a shared axis, drawn the same by every run. No library needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 720, 400
LEFT, RIGHT, TOP, BOTTOM = 60, 250, 40, 50
COLOURS = ("#1b6ca8", "#d1495b", "#3a7d44", "#b07c10", "#6a4c93", "#555555", "#2a9d8f", "#9c4221")

Points = Sequence[tuple[float, float]]


def lines(
    title: str,
    across: str,
    up: str,
    series: Mapping[str, Points],
    *,
    least: float,
    most: float,
    mark: float | None = None,
) -> str:
    """The chart. `series`: points by name; `least`, `most`: of the upward axis; `mark`: a dashed level."""
    rightmost = max(x for points in series.values() for x, _ in points)

    def at(x: float, y: float) -> str:
        return f"{LEFT + x / rightmost * (WIDTH - LEFT - RIGHT):.1f},{_height(y, least, most):.1f}"

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="22" font-size="15">{escape(title)}</text>',
        f'<text x="{(LEFT + WIDTH - RIGHT) // 2}" y="{HEIGHT - 12}" text-anchor="middle">{escape(across)}</text>',
        f'<text transform="translate(16 {HEIGHT // 2}) rotate(-90)" text-anchor="middle">{escape(up)}</text>',
    ]
    for step in range(6):
        level, x = least + (most - least) * step / 5, rightmost * step / 5
        out.append(f'<polyline points="{at(0, level)} {at(rightmost, level)}" stroke="#dddddd" fill="none"/>')
        out.append(f'<text x="{LEFT - 6}" y="{_height(level, least, most) + 4:.1f}" text-anchor="end">{level:g}</text>')
        out.append(f'<text x="{at(x, 0).split(",")[0]}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{x:g}</text>')
    if mark is not None:
        out.append(
            f'<polyline points="{at(0, mark)} {at(rightmost, mark)}" stroke="#888888" fill="none" stroke-dasharray="6 4"/>'
        )
    for number, (name, points) in enumerate(series.items()):
        colour, y = COLOURS[number % len(COLOURS)], TOP + 16 * number + 8
        path = " ".join(at(x, min(most, max(least, value))) for x, value in points)
        out.append(f'<polyline points="{path}" stroke="{colour}" stroke-width="2" fill="none"/>')
        out.append(f'<text x="{WIDTH - RIGHT + 12}" y="{y}" fill="{colour}">{escape(name)}</text>')
    return "\n".join([*out, "</svg>", ""])


def _height(y: float, least: float, most: float) -> float:
    return HEIGHT - BOTTOM - (y - least) / (most - least) * (HEIGHT - TOP - BOTTOM)
