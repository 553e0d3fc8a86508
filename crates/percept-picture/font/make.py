"""Makes the embedded fonts: the glyphs of Roboto that pictures need, without hints and layout tables, and four arrows.

    pip install fonttools font-roboto==0.0.1
    python make.py
"""
from pathlib import Path

from font_roboto import Roboto, RobotoMedium
from fontTools.pens.ttGlyphPen import TTGlyphPen
from fontTools.subset import Options, Subsetter
from fontTools.ttLib import TTFont

# Latin with accents, Greek, figures above and below the line, punctuation, and the signs of mathematics that Roboto has.
RANGES = [
    (0x20, 0x7E), (0xA0, 0x17F), (0x391, 0x3C9), (0x2013, 0x2014), (0x2018, 0x201E), (0x2022, 0x2022),
    (0x2026, 0x2026), (0x2030, 0x2030), (0x2032, 0x2033), (0x2070, 0x2089), (0x20AC, 0x20AC), (0x2122, 0x2122),
    (0x2206, 0x2206), (0x2212, 0x2212), (0x221A, 0x221A), (0x221E, 0x221E), (0x2248, 0x2248), (0x2260, 0x2260),
    (0x2264, 0x2265),
]
ARROWS = {0x2192: (1, 0), 0x2190: (-1, 0), 0x2191: (0, 1), 0x2193: (0, -1)}
ADVANCE, MIDDLE_HEIGHT, REACH, HEAD = 1400, 660, 560, 330


def arrow(pen, along, thickness):
    """A shaft and a head of two strokes, which points to `along` around the middle of a small letter's height."""
    half = thickness / 2
    slant = thickness * 0.7071
    outline = [
        (-REACH, half), (REACH - HEAD / 2, half), (REACH - HEAD - slant, HEAD), (REACH - HEAD, HEAD + slant),
        (REACH + slant, 0), (REACH - HEAD, -HEAD - slant), (REACH - HEAD - slant, -HEAD), (REACH - HEAD / 2, -half),
        (-REACH, -half),
    ]
    dx, dy = along
    points = [(ADVANCE / 2 + x * dx - y * dy, MIDDLE_HEIGHT + x * dy + y * dx) for x, y in outline]
    pen.moveTo(tuple(round(v) for v in points[0]))
    for point in points[1:]:
        pen.lineTo(tuple(round(v) for v in point))
    pen.closePath()


def make(source, target, thickness):
    font = TTFont(source)
    options = Options()
    options.hinting = False
    options.layout_features = []
    options.drop_tables += ["GDEF", "GPOS", "GSUB", "LTSH", "hdmx", "VDMX", "gasp"]
    options.name_IDs = [0, 1, 2, 4, 5, 6, 13, 14]
    options.glyph_names = False
    options.notdef_outline = True
    subsetter = Subsetter(options)
    subsetter.populate(unicodes=[code for low, high in RANGES for code in range(low, high + 1)])
    subsetter.subset(font)
    for code, along in ARROWS.items():
        name = f"arrow{code:x}"
        pen = TTGlyphPen(None)
        arrow(pen, along, thickness)
        font["glyf"][name] = pen.glyph()
        font["hmtx"][name] = (ADVANCE, 0)
        for table in font["cmap"].tables:
            if table.isUnicode():
                table.cmap[code] = name
    font["post"].formatType = 3.0
    font["name"].setName("Version 2.138; 2017; a subset with arrows added for percept", 5, 3, 1, 0x409)
    font.recalcTimestamp = False
    font.save(target)


here = Path(__file__).parent
make(Roboto, here / "Roboto-Regular.ttf", 150)
make(RobotoMedium, here / "Roboto-Medium.ttf", 190)
