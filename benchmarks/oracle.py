"""Compare the parser with a dump of Obsidian's own metadata cache.

    python benchmarks/oracle.py DUMP.jsonl

Each line of the dump is `{"filePath", "fileContents", "cachedMetadata", "getAllTags", "parseFrontMatterTags"}`;
positions are line, column and offset in UTF-16 units. Prints, for each kind of item, in how many notes all of them
agree, and every difference. Exits with 1 when there is one.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from vault_lsp.core.model import Link, Note, NotePath
from vault_lsp.core.parse import parse
from vault_lsp.core.text import Place, Text

Row = tuple[object, ...]

KINDS = (
    "links",
    "embeds",
    "headings",
    "tags",
    "blocks",
    "frontmatterLinks",
    "frontmatter",
    "getAllTags",
    "parseFrontMatterTags",
)


def main(dump: Path) -> int:
    agreeing = dict.fromkeys(KINDS, 0)
    items = dict.fromkeys(KINDS, 0)
    notes = exempt = whole = 0
    with dump.open(encoding="utf-8") as lines:
        for line in lines:
            entry = json.loads(line)
            notes += 1
            text = Text(entry["fileContents"])
            note = parse(NotePath(entry["filePath"]), text)
            theirs, ours = obsidian(entry), product(note, text)
            skipped = {"getAllTags", "parseFrontMatterTags"} if legacy(note) else set()
            exempt += bool(skipped)
            good = True
            for kind in KINDS:
                items[kind] += len(theirs[kind])
                if theirs[kind] == ours[kind] or kind in skipped:
                    agreeing[kind] += 1
                    continue
                good = False
                print(f"{entry['filePath']}: {kind}\n  Obsidian {theirs[kind]}\n  ours     {ours[kind]}")
            whole += good
    for kind in KINDS:
        print(f"{kind:<21} {agreeing[kind]} of {notes} notes agree ({items[kind]} items)")
    print(f"all of it             {whole} of {notes} notes agree")
    print(f"exempt from the tag lists for legacy properties: {exempt}")
    return 0 if notes and whole == notes else 1


def obsidian(entry: dict[str, Any]) -> dict[str, Any]:
    """What Obsidian recorded, as rows that can be compared."""
    cache = entry["cachedMetadata"]
    properties = cache.get("frontmatter")
    return {
        "links": [(item["link"], item["original"], *position(item)) for item in cache.get("links", [])],
        "embeds": [(item["link"], item["original"], *position(item)) for item in cache.get("embeds", [])],
        "headings": [(item["level"], item["heading"], *position(item)) for item in cache.get("headings", [])],
        "tags": [(item["tag"], *position(item)) for item in cache.get("tags", [])],
        # A block there is the whole block; the id stands at its end.
        "blocks": [(key, *position(item)[3:]) for key, item in cache.get("blocks", {}).items()],
        "frontmatterLinks": [(item["link"], item["original"]) for item in cache.get("frontmatterLinks", [])],
        "frontmatter": {key: value for key, value in (properties or {}).items() if key != "position"},
        "getAllTags": entry.get("getAllTags") or [],
        "parseFrontMatterTags": entry.get("parseFrontMatterTags") or [],
    }


def product(note: Note, text: Text) -> dict[str, Any]:
    """The same rows of our note."""
    body = [link for link in note.links if link.kind != "frontmatter"]
    opened = body_line(note, text)
    front = [f"#{tag.name}" for tag in note.tags if tag.place.start.line < opened]
    return {
        "links": [link_row(link, text) for link in body if not link.embed],
        "embeds": [link_row(link, text) for link in body if link.embed],
        "headings": [(item.level, item.raw, *row(item.place, text)) for item in note.headings if item.linkable],
        "tags": [(f"#{tag.name}", *row(tag.place, text)) for tag in note.tags if tag.place.start.line >= opened],
        "blocks": [(block.id.lower(), *row(block.place, text)[3:]) for block in note.blocks],
        "frontmatterLinks": [link_row(link, text)[:2] for link in note.links if link.kind == "frontmatter"],
        "frontmatter": dict(note.frontmatter or {}),
        "getAllTags": [f"#{tag.name}" for tag in note.tags],
        "parseFrontMatterTags": front,
    }


def legacy(note: Note) -> bool:
    """Whether the note uses properties that this product still reads and Obsidian no longer does."""
    return any(problem.rule == "legacy-property" for problem in note.problems)


def body_line(note: Note, text: Text) -> int:
    """The first line behind the front matter."""
    if note.frontmatter is None:
        return 0
    line = 1
    while text.line(line).rstrip() != "---":
        line += 1
    return line + 1


def link_row(link: Link, text: Text) -> Row:
    start, end = (text.offset(point.line, point.utf32, "utf-32") for point in (link.place.start, link.place.end))
    target = link.target if link.kind == "wikilink" else link.path + link.subpath
    return (target, text.source[start:end], *row(link.place, text))


def position(item: dict[str, dict[str, dict[str, int]]]) -> Row:
    start, end = item["position"]["start"], item["position"]["end"]
    return (start["line"], start["col"], start["offset"], end["line"], end["col"], end["offset"])


def row(place: Place, text: Text) -> Row:
    rows: list[int] = []
    for point in place:
        offset = text.offset(point.line, point.utf32, "utf-32")
        rows += [point.line, point.utf16, len(text.source[:offset].encode("utf-16-le")) // 2]
    return tuple(rows)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(Path(sys.argv[1])))
