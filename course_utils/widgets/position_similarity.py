"""Chapter 4: which places a position table holds to be alike."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import traitlets
from numpy.typing import NDArray
from safetensors.torch import load
from torch import Tensor

from course_utils import plots
from course_utils.checkpoints import load_digit_model
from course_utils.data import embedded
from course_utils.figures import Figure
from course_utils.positions import resize_positions
from course_utils.widgets.base import CourseWidget

STEPS = 4096  # a row of length 1 goes to the page in whole numbers of this size
PRETRAINED_STEPS = 256  # as tools/make_position_maps.py wrote them


class PositionSimilarity(CourseWidget):
    """Compare the position row of one patch with those of all others.

    The numbers are cosine similarities, between -1 and 1. By default there are four
    tables: that of the course's digit model and that of a pretrained ViT, each as it
    was trained and interpolated to another grid.

    Args:
        tables: name → (position table, grid) of your own: the table (1, N, D) or, with
            a row for [CLS] in front, (1, 1 + N, D), and the grid (h, w) of its patches.
        table: the name of the table to begin with; the first by default.
        cell: the patch to begin with, in reading order from 0; by default the one in
            the middle.

    Raises:
        ValueError: if a table does not fit its grid, if there is no table of a name,
            or if the table has no such patch.
    """

    module = "position_similarity.js"

    tables = traitlets.Dict(read_only=True).tag(sync=True)
    table = traitlets.Unicode().tag(sync=True)
    cell = traitlets.Int(0).tag(sync=True)

    def __init__(
        self,
        tables: Mapping[str, tuple[Tensor, tuple[int, int]]] | None = None,
        *,
        table: str | None = None,
        cell: int | None = None,
    ) -> None:
        if tables is None:
            compared = _default_tables()
        else:
            compared = {name: _own_table(name, *own) for name, own in tables.items()}
        if not compared:
            raise ValueError(
                "tables is empty; give at least one, as {'name': (table, (h, w))}"
            )
        super().__init__()
        self._compared = compared
        packed = {
            name: {
                "rows": grid[0],
                "columns": grid[1],
                "steps": steps,
                "values": base64.b64encode(zlib.compress(rows.tobytes(), 9)).decode(),
            }
            for name, (rows, grid, steps) in compared.items()
        }
        self.set_trait("tables", packed)
        self._placed = ("", 0)
        self.table = next(iter(packed)) if table is None else table
        h, w = self._grid(self.table)
        self.cell = h // 2 * w + w // 2 if cell is None else cell

    def _grid(self, name: str) -> tuple[int, int]:
        if name not in self.tables:
            raise ValueError(
                f"there is no table {name!r}; choose from {', '.join(self.tables)}"
            )
        return self.tables[name]["rows"], self.tables[name]["columns"]

    @traitlets.validate("table")
    def _known(self, proposal: Any) -> str:
        self._grid(proposal.value)
        return proposal.value

    @traitlets.validate("cell")
    def _on_the_grid(self, proposal: Any) -> int:
        if self.table:
            h, w = self._grid(self.table)
            if not 0 <= proposal.value < h * w:
                raise ValueError(
                    f"cell is {proposal.value}; the table {self.table!r} has {h}x{w} "
                    f"patches, 0 to {h * w - 1}"
                )
        return proposal.value

    @traitlets.observe("table", "cell")
    def _keep_the_place(self, change: Any) -> None:
        """Move to the same place of the picture when the grid alone changes."""
        (table, cell), self._placed = self._placed, (self.table, self.cell)
        if table and table != self.table and cell == self.cell:
            (h, w), (rows, columns) = self._grid(table), self._grid(self.table)
            row = (2 * (cell // w) + 1) * rows // (2 * h)
            column = (2 * (cell % w) + 1) * columns // (2 * w)
            self.cell = row * columns + column

    @property
    def similarities(self) -> NDArray[np.float64]:
        """The picked patch's similarities, (h, w): what the widget shows."""
        rows, grid, steps = self._compared[self.table]
        lengths = rows.astype(np.float64) / steps  # (D, N)
        cosines = (lengths[:, self.cell] @ lengths).clip(-1, 1)  # (N,)
        cosines[self.cell] = 1  # rounding aside
        return cosines.reshape(grid)

    def figure(self) -> Figure:
        """Draw the map of the picked patch."""
        _, w = self._grid(self.table)
        row, column = divmod(self.cell, w)
        return plots.show_maps(
            self.similarities[None],
            [f"{self.table}: row {row}, column {column}"],
            vmin=-1,
            vmax=1,
            label="cosine similarity",
            caption=f"How like the position row of the patch in row {row}, column "
            f"{column}, counted from 0, each row of the table “{self.table}” is. On "
            "the course's site and in a notebook this figure answers: pick another "
            "patch, or another table.",
        )


_Compared = tuple[NDArray[np.int16], tuple[int, int], int]
"""The rows, scaled to a length of steps, as columns (D, N); grid; steps."""


def _default_tables() -> dict[str, _Compared]:
    tables: dict[str, _Compared] = {}
    pretrained = load(embedded("pretrained-positions.safetensors"))
    for side, name in [(37, "pretrained"), (16, "pretrained resized")]:
        rows = pretrained[f"{side}x{side}"].numpy()
        tables[name] = rows, (side, side), PRETRAINED_STEPS
    digits = load_digit_model("positions").state_dict()["pos_embed"]  # (1, 17, 64)
    tables["digits"] = _own_table("digits", digits, (4, 4))
    larger = resize_positions(digits, (4, 4), (6, 6))
    tables["digits resized"] = _own_table("digits resized", larger, (6, 6))
    return tables


def _own_table(name: str, table: Tensor, grid: tuple[int, int]) -> _Compared:
    h, w = grid
    prefix = table.shape[1] - h * w if table.ndim == 3 else 0
    if table.ndim != 3 or len(table) != 1 or prefix not in (0, 1):
        raise ValueError(
            f"the table {name!r} has the shape {tuple(table.shape)}; a {h}x{w} grid "
            f"needs (1, {h * w}, D), or (1, {h * w + 1}, D) with a row for [CLS]"
        )
    rows = table[0, prefix:].detach().double().cpu()  # (N, D)
    lengths = rows.norm(dim=-1, keepdim=True)  # (N, 1)
    fine = lengths.isfinite() & (lengths > 0)
    if not fine.all():
        bad = int(fine.int().argmin())
        raise ValueError(
            f"the row of patch {bad} in the table {name!r} has the length "
            f"{lengths[bad].item():g}; only rows with finite numbers, not all zero, "
            "have a direction to compare"
        )
    columns = (rows / lengths * STEPS).round().to(torch.int16).T  # (D, N)
    return columns.contiguous().numpy(), grid, STEPS
