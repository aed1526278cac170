"""A search for a notebook: its picture, and the answer where a cell shows it.

import tunebook

tunebook.show("searches/digits-1").trials_frame()
"""

from __future__ import annotations

from base64 import b64encode
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from search.learning.search import Search as JudgedSearch
from search.reporting.picture import picture_of
from search.reporting.terminal import headline
from trainable.errors import UserError
from trainable.extras import NotInstalled, needing_run
from trainable.recipe.yamlfile import write_whole
from trainable.terminal import visible_lines

if TYPE_CHECKING:
    import pandas


class Picture(NamedTuple):
    """A picture that a notebook shows."""

    png: bytes

    def _repr_png_(self) -> bytes:
        return self.png

    def __repr__(self) -> str:
        return f"<Picture, a PNG of {len(self.png):,} bytes: .save(FILE) writes it>"

    def save(self, file: str | Path) -> None:
        """Write the picture, as a PNG, whole or not at all."""
        write_whole(Path(file), self.png)


class Search(JudgedSearch):
    """A search that exists, by its folder or its URI, as Python and notebooks show it.

    `best` is the best trial, `trials` are all, `trials_frame()` a table of pandas, `plot()` the curves.
    """

    def trials_frame(self) -> pandas.DataFrame:
        """Return one row per trial: its state and epochs, its last metrics, its values by dotted path."""
        with needing_run("trials_frame()"):
            return super().trials_frame()

    def plot(self) -> Picture:
        """Return the trials' curves: the best stands out, the documented recipe is dashed."""
        with needing_run("plot()"):
            return Picture(picture_of(self.progress))

    def __repr__(self) -> str:
        """Return the search in one line, also of a folder that holds none."""
        try:
            words = self.progress.score_in_words
            score = f", best {words}" if words else ""
            name = self.progress.search or self.folder.name
            return visible_lines(f"<Search {name}: {self.state}, {len(self.trials)} trials{score}>")
        except UserError as error:
            return visible_lines(f"<Search {self.folder}: {error}>")

    def _repr_html_(self) -> str:
        """Return the answer and the curves, whole in themselves."""
        try:
            why = self.progress.outcome_reason
            warned = [f"before you trust the answer: {each.brief}" for each in self.progress.cautions]
            best = f"trial {self.best.numbered_sentence}" if self.best is not None else ""
            lines = [*warned, *filter(None, [why, best]), headline(self.progress)]
            curves = self._curves_html()
        except UserError as error:
            return f"<p>{escape(visible_lines(str(error)))}</p>"
        title = escape(visible_lines(f"{self.progress.search}: {self.state}"))
        said = "".join(f"<p>{escape(visible_lines(each))}</p>" for each in lines)
        return f"<h4>{title}</h4>{said}{curves}"

    def _curves_html(self) -> str:
        try:
            image = b64encode(self.plot().png).decode()
        except NotInstalled as missing:
            return f"<p>{escape(str(missing))}</p>"
        return f'<img alt="learning curves" src="data:image/png;base64,{image}">'
