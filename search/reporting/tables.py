"""Prints tables for a person: columns where the screen is wide enough, otherwise a block of lines per row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from trainable.terminal import visible_lines

# below this many columns of the screen, sentences side by side would be a few letters wide
STACKED_BELOW = 100
INDENT = 4

TableRow = Sequence[str | Text]


@dataclass(frozen=True)
class Rows:
    """A table of things: the first `head` columns name each thing, the others describe it.

    Cells are plain text: brackets, as those of `optimizer.lr[sgd]`, are no style. Columns without content are
    left out. Those that are `whole` are never broken over lines.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[TableRow, ...]
    head: int = 1
    whole: Set[str] = frozenset()
    caption: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if options.max_width >= STACKED_BELOW:
            yield self._table()
            return
        if self.title:
            yield Text(self.title, style="italic")
        for row in self.rows:
            yield from self._block(row, console, options.max_width)
        if self.caption:
            yield Text(self.caption, style="dim italic")

    def _table(self) -> Table:
        """Return a table with the columns that have content in any row."""
        table = Table(title=self.title or None, caption=self.caption or None)
        table.title_justify = table.caption_justify = "left"
        table.header_style, table.box, table.pad_edge = "bold", None, False
        shown = [at for at in range(len(self.columns)) if any(str(row[at]) for row in self.rows) or at == 0]
        for at in shown:
            table.add_column(self.columns[at], overflow="fold", no_wrap=self.columns[at] in self.whole)
        for row in self.rows:
            table.add_row(*(_text(row[at]) for at in shown))
        return table

    def _block(self, row: TableRow, console: Console, width: int) -> Iterator[Padding | Text]:
        name, *more = (_text(each) for each in row[: self.head])
        name.stylize("bold")
        line = Text("  ").join([name, *(each for each in more if each)])
        first, *rest = line.wrap(console, max(width - INDENT, 1))
        yield first
        yield from (Padding(each, (0, 0, 0, INDENT)) for each in rest)
        for column, cell in zip(self.columns[self.head :], row[self.head :], strict=True):
            if str(cell):
                yield Padding(Text(f"{column}: ").append_text(_text(cell)), (0, 0, 0, INDENT))


def _text(cell: str | Text) -> Text:
    return cell.copy() if isinstance(cell, Text) else Text(visible_lines(cell))
