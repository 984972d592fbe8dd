"""Between the core's vocabulary and the protocol's: URIs, positions, ranges, severities.

Answers are built as plain values in the shape of the wire: one of them may hold a hundred thousand ranges.
"""

from __future__ import annotations

import ntpath
import os
import posixpath
import re
from collections.abc import Iterable
from pathlib import PurePath
from typing import Literal, TypeAlias
from urllib.parse import quote, unquote_to_bytes

from lsprotocol import types

from vault_lsp.config import ConfigProblem
from vault_lsp.core.model import Finding, Heading, Severity
from vault_lsp.core.text import Encoding, Place, Point, Text

Wire: TypeAlias = dict[str, object]

SymbolName = Literal["note", "alias", "heading", "tag"]

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
#: Whether files are named as on Windows.
WINDOWS = os.name == "nt"

_DRIVE = re.compile(r"[A-Za-z]:")

_SEVERITIES = {
    Severity.ERROR: types.DiagnosticSeverity.Error.value,
    Severity.WARNING: types.DiagnosticSeverity.Warning.value,
    Severity.INFORMATION: types.DiagnosticSeverity.Information.value,
    Severity.HINT: types.DiagnosticSeverity.Hint.value,
}

_SYMBOL_KINDS: dict[str, int] = {
    "note": types.SymbolKind.File.value,
    "alias": types.SymbolKind.File.value,
    "heading": types.SymbolKind.String.value,
    "tag": types.SymbolKind.Key.value,
}


def file_of(uri: str, *, windows: bool = WINDOWS) -> str | None:
    """The absolute file that a `file:` URI names, without touching the disk; None for every other scheme.

    All spellings of one URI give the same file: percent-encoding, letter case of the hex digits and of a drive,
    `localhost`, doubled slashes and dot segments make no difference. The bytes of the name are kept.
    """
    match = _SCHEME.match(uri)
    if match is None or match[0].lower() != "file:":
        return None
    if not uri.isascii():
        try:
            uri.encode()
        except UnicodeEncodeError:
            return None  # a lone surrogate, which JSON can carry and no file name has
    rest = uri[match.end() :]
    host = ""
    if rest.startswith("//"):
        host, slash, rest = rest[2:].partition("/")
        rest = slash + rest
    path = os.fsdecode(unquote_to_bytes(rest))
    if not path or "\x00" in path:
        return None
    if windows and _DRIVE.match(path[1:]):
        path = path[1:]
    elif host and host.lower() != "localhost":
        path = f"//{unquote_to_bytes(host).decode('utf-8', 'replace')}{path}"
    return normal_file(path, windows=windows)


def normal_file(file: str, *, windows: bool = WINDOWS) -> str:
    """An absolute file name in its one normal form, by text alone."""
    if windows:
        drive, rest = ntpath.splitdrive(ntpath.normpath(file))
        return drive.upper() + rest
    normal = posixpath.normpath(file)
    return normal[1:] if normal.startswith("//") else normal  # POSIX keeps two leading slashes


def uri_of(file: str, *, windows: bool = WINDOWS) -> str:
    """The `file:` URI of an absolute file, percent-encoding all but letters, digits, `/` and `_.-~`."""
    if not windows:
        return f"file://{quote(os.fsencode(file), safe='/')}"
    encoded = quote(file.replace("\\", "/"), safe="/")
    if _DRIVE.match(file):
        return f"file:///{file[0].lower()}:{encoded[len('C%3A') :]}"
    return f"file:{encoded}"


def stem_of(uri: str) -> str:
    """A name for a document that is no file, such as `Untitled-1` of `untitled:Untitled-1`."""
    return PurePath(unquote_to_bytes(uri.partition(":")[2]).decode("utf-8", "replace")).name or "untitled"


def offset_of(text: Text, position: types.Position, encoding: Encoding) -> int:
    """Offset of a client's position; past a line's end it is the line's end, past the text its end."""
    return text.offset(position.line, position.character, encoding)


def point_of(text: Text, position: types.Position, encoding: Encoding) -> Point | None:
    """The point of a client's position, None past the last line."""
    if position.line >= len(text.line_starts):
        return None
    return text.point(offset_of(text, position, encoding))


def wire_position(point: Point, encoding: Encoding) -> Wire:
    """A `Position`."""
    return {"line": point.line, "character": point.column(encoding)}


def wire_range(place: Place, encoding: Encoding) -> Wire:
    """A `Range`."""
    return {"start": wire_position(place.start, encoding), "end": wire_position(place.end, encoding)}


def wire_location(uri: str, place: Place, encoding: Encoding) -> Wire:
    """A `Location`."""
    return {"uri": uri, "range": wire_range(place, encoding)}


def wire_diagnostic(finding: Finding, encoding: Encoding, related: Iterable[Wire] | None) -> Wire:
    """A `Diagnostic`. `related` holds `DiagnosticRelatedInformation`, None for a client that doesn't know it."""
    diagnostic: Wire = {
        "range": wire_range(finding.place, encoding),
        "severity": _SEVERITIES.get(finding.severity, types.DiagnosticSeverity.Warning.value),
        "code": finding.rule,
        "source": "vault-lsp",
        "message": finding.message,
    }
    if related is not None and (listed := list(related)):
        diagnostic["relatedInformation"] = listed
    if finding.rule == "unused-definition":
        diagnostic["tags"] = [types.DiagnosticTag.Unnecessary.value]
    return diagnostic


def wire_config_problem(problem: ConfigProblem) -> Wire:
    """A `Diagnostic` of the config: a warning to the end of its line."""
    return {
        "range": {
            "start": {"line": problem.line - 1, "character": problem.column - 1},
            "end": {"line": problem.line, "character": 0},
        },
        "severity": types.DiagnosticSeverity.Warning.value,
        "code": "config",
        "source": "vault-lsp",
        "message": problem.message,
    }


def symbol_kind(name: str) -> int:
    """`SymbolKind` of a core symbol: notes and aliases are files, headings strings, tags keys."""
    return _SYMBOL_KINDS.get(name, types.SymbolKind.String.value)


def wire_outline(headings: Iterable[Heading], end: Point, encoding: Encoding) -> list[Wire]:
    """Headings as nested `DocumentSymbol`s: each lies under the nearest heading above it of a lower level.

    A symbol's range is its whole section. Headings without text are left out: an empty name is not allowed.
    """
    roots: list[Wire] = []
    open_: list[tuple[int, Wire]] = []

    def close(level: int, at: Point) -> None:
        while open_ and open_[-1][0] >= level:
            symbol = open_.pop()[1]
            symbol["range"] = {"start": symbol["start"], "end": wire_position(at, encoding)}
            del symbol["start"]

    for heading in headings:
        if not heading.text.strip():
            continue
        close(heading.level, heading.place.start)
        symbol: Wire = {
            "name": heading.text,
            "kind": types.SymbolKind.String.value,
            "selectionRange": wire_range(heading.place, encoding),
            "start": wire_position(heading.place.start, encoding),
            "children": [],
        }
        siblings = open_[-1][1]["children"] if open_ else roots
        assert isinstance(siblings, list)
        siblings.append(symbol)
        open_.append((heading.level, symbol))
    close(0, end)
    return roots


def wire_flat_symbols(headings: Iterable[Heading], uri: str, encoding: Encoding) -> list[Wire]:
    """Headings as `SymbolInformation` for clients without nested symbols; the container is the heading above."""
    symbols: list[Wire] = []
    above: list[tuple[int, str]] = []
    for heading in headings:
        if not heading.text.strip():
            continue
        while above and above[-1][0] >= heading.level:
            above.pop()
        symbol: Wire = {
            "name": heading.text,
            "kind": types.SymbolKind.String.value,
            "location": wire_location(uri, heading.place, encoding),
        }
        if above:
            symbol["containerName"] = above[-1][1]
        symbols.append(symbol)
        above.append((heading.level, heading.text))
    return symbols
