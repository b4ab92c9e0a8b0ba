"""The look that all figures share: plotly's JSON, colours, axes.

A figure is plotly's own JSON (`{"data": [...], "layout": {...}}`), written as plain dicts:
the page draws it in the browser, so that nothing has to be drawn or checked here at run time;
the tests check every figure against plotly's schema. Text and grid take their colours from the
page, which knows whether it is light or dark; the colours of data are mid-tones that keep a
contrast of 3:1 on both, and none carries a meaning that a shape or a label does not carry too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Json = Mapping[str, object]
Figure = dict[str, object]

BLUE = "#2c7fb8"
ORANGE = "#c8691c"
TEAL = "#12937a"
GREY = "#868d96"

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"


def figure(traces: Sequence[Json], layout: Json) -> Figure:
    """Traces in the common layout; keys of `layout` come on top."""
    return {
        "data": [dict(trace) for trace in traces],
        "layout": {
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "font": {"family": FONT, "size": 13},
            "hoverlabel": {
                "bgcolor": "#1f2a35",
                "bordercolor": "#1f2a35",
                "align": "left",
                "namelength": -1,
                "font": {"family": FONT, "size": 12, "color": "#ffffff"},
            },
            **layout,
        },
    }


def axis(title: str, extra: Json) -> dict[str, object]:
    """A quiet axis: thin grid, no box; keys of `extra` come on top."""
    return {
        "title": {"text": title, "standoff": 12, "font": {"size": 13}},
        "gridwidth": 1,
        "zeroline": False,
        "showline": False,
        "automargin": True,
        **extra,
    }
