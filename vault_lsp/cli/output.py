"""What commands print: results on stdout, as text or JSON, and everything else on stderr."""

from __future__ import annotations

import json
import os
import re
import sys
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, ClassVar

import click

from vault_lsp.errors import VaultLspError

if TYPE_CHECKING:
    from vault_lsp.core.model import Link, NotePath, Resolution
    from vault_lsp.core.text import Place


class ReaderGone(Exception):  # noqa: N818 - the reader of stdout closed it: no error
    """The reader of our output closed it, as `head` does."""


class Interrupted(VaultLspError):  # noqa: N818 - what is the case, as all of these
    """The user pressed Ctrl-C."""

    code: ClassVar[str] = "interrupted"


class Unwritable(VaultLspError):  # noqa: N818
    """The result can't be written where stdout leads."""

    code: ClassVar[str] = "output"


#: Characters that would break a line, or steer a terminal.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

_LONGEST = 600


def shown(text: str) -> str:
    """A text on one line of a terminal: control characters and undecodable bytes are escaped."""
    return _UNSAFE.sub(_escaped, text)


def message_line(message: str) -> str:
    """A message on one line; of one that somebody's argument made endless only both ends."""
    line = shown(message)
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST // 2]} … {line[-_LONGEST // 2 :]}"


def say(line: str) -> None:
    """Print one line of the result."""
    if sys.stdout is not None:
        with _writing():
            sys.stdout.write(line + "\n")


def say_bytes(data: bytes) -> None:
    """Print a file's own bytes."""
    if sys.stdout is not None:
        with _writing():
            sys.stdout.flush()
            sys.stdout.buffer.write(data)


def finish() -> None:
    """Hand on all that was printed, while an error can still be told."""
    if sys.stdout is not None:
        with _writing():
            sys.stdout.flush()


def mute() -> None:
    """Send what is left in stdout nowhere, so that Python doesn't stumble over it once more at its exit."""
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def warn(message: str) -> None:
    """Tell something beside the result."""
    with suppress(OSError):
        click.echo(f"vault-lsp: {message_line(message)}", err=True)


def print_json(value: Mapping[str, Any]) -> None:
    """Print one JSON object on one line. A character that isn't one (half a surrogate pair) stays an escape."""
    say(json.dumps(value, ensure_ascii=False))


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as lines of equal columns, the first one to the left and all others to the right."""
    widths = [max(map(_columns, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *rest in rows:
        cells = [first + " " * (widths[0] - _columns(first))]
        cells += [" " * (width - _columns(cell)) + cell for cell, width in zip(rest, widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return lines


def warn_skipped(skipped: Mapping[NotePath, str]) -> None:
    """Name the files that could not be indexed, each with its reason."""
    for path, reason in skipped.items():
        warn(f"skipped {path}: {reason}")


def print_inspected(seen: Mapping[str, Any]) -> None:
    """Print what `inspect` found as text: one line an item, with its line number."""
    say(f"{shown(seen['path'])}: {shown(seen['title'])}")
    for alias in seen["aliases"]:
        say(f"  alias    {shown(alias)}")
    for key, value in seen["frontmatter"].items():
        say(f"  property {shown(key)}: {shown(json.dumps(value, ensure_ascii=False))}")
    for heading in seen["headings"]:
        say(f"  {heading['line']:>5}  {'#' * heading['level']} {shown(heading['text'])}")
    for tag in seen["tags"]:
        say(f"  {tag['line']:>5}  #{shown(tag['name'])}")
    for block in seen["blocks"]:
        say(f"  {block['line']:>5}  ^{shown(block['id'])}")
    for link in seen["links"]:
        say(f"  {link['line']:>5}  {link['kind']} {shown(link['target'])} → {leads(link)}")
    for problem in seen["problems"]:
        say(f"  {problem['line']:>5}  {problem['rule']}: {shown(problem['message'])}")


def leads(link: Mapping[str, Any]) -> str:
    """Where a link leads, and what is wrong with it, as text."""
    where = [shown(link["resolved"] or ".")] if link["resolved"] is not None else []
    return ", ".join([*where, *([link["problem"]] if link["problem"] else [])]) or "nothing"


def link_json(link: Link, resolution: Resolution, problem: str | None) -> dict[str, Any]:
    """A link as `inspect` and `links` give it: 1-based places that count code points, ends exclusive."""
    from vault_lsp.core.model import Found

    return {
        "kind": link.kind,
        "target": link.target,
        "path": link.path,
        "subpath": link.subpath,
        "display": link.display,
        "embed": link.embed,
        **span_json(link.place),
        "resolved": resolution.path if isinstance(resolution, Found) else None,
        "problem": problem,
    }


def start_json(place: Place) -> dict[str, int]:
    """Line and column of a place's beginning."""
    return {"line": place.start.line + 1, "column": place.start.utf32 + 1}


def span_json(place: Place) -> dict[str, int]:
    """Both ends of a place."""
    return {**start_json(place), "end_line": place.end.line + 1, "end_column": place.end.utf32 + 1}


@contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        mute()
        raise ReaderGone from None
    except OSError as error:
        mute()
        raise Unwritable(f"the result can't be written: {(error.strerror or str(error)).lower()}") from error


def _columns(text: str) -> int:
    """Columns that a text takes on a terminal."""
    return sum(
        0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in text
    )


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    # An undecodable byte of a file name stands as a lone surrogate.
    return f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else ascii(match[0])[1:-1]
