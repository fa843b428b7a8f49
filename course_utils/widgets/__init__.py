"""The course's widgets: each answers a question of a chapter, with or without a kernel.

Display one as the last line of a cell. Its traits can be read and set from Python.
"""

from course_utils.widgets.attention_overlay import AttentionOverlay, PhotoOverlay
from course_utils.widgets.draw_digit import DrawDigit
from course_utils.widgets.parameter_calculator import ParameterCalculator
from course_utils.widgets.patch_size import PatchSize
from course_utils.widgets.patch_vector import PatchVector
from course_utils.widgets.position_similarity import PositionSimilarity
from course_utils.widgets.shuffling import Shuffling
from course_utils.widgets.through_encoder import ThroughEncoder

__all__ = [
    "AttentionOverlay",
    "DrawDigit",
    "ParameterCalculator",
    "PatchSize",
    "PatchVector",
    "PhotoOverlay",
    "PositionSimilarity",
    "Shuffling",
    "ThroughEncoder",
]
