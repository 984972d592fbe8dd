"""What Obsidian reads in running text beyond Markdown: tags, block ids, comments, odd wikilinks, undefined labels.

Each function looks at the runs of a note's text: spans of the source that are neither code, maths, HTML nor the
inside of a link's destination.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from vault_lsp.core.frontmatter import is_tag
from vault_lsp.core.text import Span


class Run(NamedTuple):
    """Running text of one block; `block` numbers the blocks of the note."""

    start: int
    end: int
    block: int


_TAG = re.compile(r"#([^\s\u2000-\u206f\u2e00-\u2e7f'!\"#$%&()*+,.:;<=>?@^`{|}~\[\]\\]+)")
_BLOCK_ID = re.compile(r"(?<![^\s\])])\^([A-Za-z0-9-]+)[ \t]*\Z")
_BARRED = re.compile(r"\[\[(\|[^\[\]\r\n]*)\]\]")
_UNDEFINED = re.compile(r"(?<![\w\]\\!)])\[([^\[\]\r\n]{2,200})\]\[([^\[\]\r\n]*)\]")
_QUOTE_MARKS = re.compile(r"[\s>]*\Z")
_LINE = re.compile(r"[\r\n]")


def tags(source: str, runs: Sequence[Run]) -> Iterator[tuple[str, Span]]:
    """Tags of the text with the span of `#tag`. Only white space, a line's start or emphasis may come before."""
    for run in runs:
        if source.find("#", run.start, run.end) < 0:
            continue
        tag_end = -1
        for match in _TAG.finditer(source, run.start, run.end):
            at = match.start()
            if at != tag_end and not _may_open_tag(source, at, run.start):
                continue
            name = match[1].rstrip("/")
            if is_tag(name):
                tag_end = at + 1 + len(name)
                yield name, Span(at, tag_end)


def block_id(source: str, run: Run) -> tuple[str, Span] | None:
    """The block id at the end of a block's last run."""
    caret = source.rfind("^", run.start, run.end)
    if caret < 0:
        return None
    match = _BLOCK_ID.search(source[max(run.start, caret - 1) : run.end])
    if match is None:
        return None
    start = max(run.start, caret - 1) + match.start()
    return match[1], Span(start, start + 1 + len(match[1]))


def comments(source: str, runs: Sequence[Run]) -> list[Span]:
    """Spans of `%% … %%`.

    Both marks stand in one block, or the first one opens a line: then it holds until the next mark. A mark without a
    partner is text, as in `100%% sure`.
    """
    if "%%" not in source:
        return []
    found: list[Span] = []
    opened: tuple[int, Run] | None = None
    for run in runs:
        at = source.find("%%", run.start, run.end)
        while at >= 0:
            if opened is not None and (opened[1].block == run.block or _opens_line(source, opened[0])):
                found.append(Span(opened[0], at + 2))
                opened = None
            else:
                opened = (at, run)
            at = source.find("%%", at + 2, run.end)
    return found


def barred_links(source: str, runs: Sequence[Run]) -> Iterator[tuple[str, Span]]:
    """Wikilinks without a name before the bar, `[[|x]]`: Obsidian takes the bar for a part of the name."""
    if "[[|" not in source:
        return
    for run in runs:
        for match in _BARRED.finditer(source, run.start, run.end):
            if source[match.start() - 1 : match.start()] != "\\":
                yield match[1], Span(*match.span())


def undefined_labels(source: str, runs: Sequence[Run]) -> Iterator[tuple[str, Span]]:
    """Full and collapsed references that Markdown left as text, for it knows no such label."""
    if "][" not in source:
        return
    for run in runs:
        if source.find("][", run.start, run.end) < 0:
            continue
        for match in _UNDEFINED.finditer(source, run.start, run.end):
            label = match[2] or match[1]
            if not label.startswith("^") and label.strip():
                yield label, Span(*match.span())


def _may_open_tag(source: str, at: int, run_start: int) -> bool:
    if at == 0:
        return True
    before = source[at - 1]
    if before.isspace() or before == "_":
        return True
    if at != run_start:
        return False
    # At a run's start the character before is Markdown's: a mark of emphasis, of a table or of a quote.
    if before == ">":
        return _opens_line(source, at)
    return before in "*~|="


def _opens_line(source: str, at: int) -> bool:
    start = at
    while start > 0 and source[start - 1] not in "\r\n":
        start -= 1
        if source[start] not in " \t>":
            return False
    return True
