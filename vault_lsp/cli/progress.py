"""Progress of long work, for a person who sits at a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from vault_lsp.indexer import Progress


@contextmanager
def progress_bar() -> Iterator[Callable[[Progress], None]]:
    """A progress bar a phase on a terminal, for work that takes long enough to be noticed."""
    if not at_terminal():
        yield lambda _: None
        return
    bar = _Bar("")
    try:

        def show(progress: Progress) -> None:
            nonlocal bar
            if progress.phase != bar.phase:
                bar.close()
                bar = _Bar(progress.phase)
            bar.show(progress.done, progress.total)

        yield show
    finally:
        bar.close()


def at_terminal() -> bool:
    """Whether a person may be reading what stands beside the result."""
    return sys.stderr is not None and sys.stderr.isatty()


class _Bar:
    """The bar of one phase, which appears when the phase turns out to be a long one."""

    #: Phases whose steps are slow: even a few of them are worth a bar. Of these the rate is shown as well.
    SLOW = frozenset({"preparing model", "downloading", "embedding", "asking"})
    RATED = frozenset({"embedding", "asking"})

    def __init__(self, phase: str) -> None:
        self.phase = phase
        self._started = time.monotonic()
        self._first: int | None = None
        self._bar: Any = None

    def show(self, done: int, total: int) -> None:
        seconds = time.monotonic() - self._started
        if self._first is None:
            self._first = done
        if self._bar is None:
            if not total or (total < 50 and self.phase not in self.SLOW) or seconds < 0.3:
                return
            self._bar = click.progressbar(length=total, label=self.phase.capitalize(), file=sys.stderr)
            self._bar.__enter__()
        if self.phase in self.RATED:
            rate = (done - self._first) / seconds
            self._bar.label = f"{self.phase.capitalize()}, {rate:.{1 if rate < 10 else 0}f} a second"
        self._bar.length = total
        self._bar.update(done - self._bar.pos)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.__exit__(None, None, None)
            self._bar = None
