"""Run acceptance cases for the language server: `lsp_cases.py FILE [ID…]`.

FILE is a YAML list of cases: files with a cursor `<|>`, what to do there, and what the answer has to be; its head
explains the fields. Cases told in steps run as written out in `lsp_scenarios.py`. Prints id, result and reason; exits
1 when a case fails.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml
from client import FailedError, Json, Target, environment, expect, report
from lsp_scenarios import SCENARIOS, Scene

from vault_lsp.core.parse import parse
from vault_lsp.core.text import Text

CURSOR = "<|>"

LATER = {
    "rename": "rename",
    "prepareRename": "rename",
    "willRename": "rename",
    "hover": "hover",
    "completion": "completion",
    "codeAction": "code actions",
    "folding": "folding",
    "semanticTokens": "semantic tokens",
}

#: Cases whose subject is part of a later feature although their kind of request is there.
LATER_CASES = {
    "F07": "tags among the workspace symbols are a choice of the client, not made here",
    "I01": "isolated notes belong to the health report",
    "I02": "duplicate ids and aliases belong to the health report",
    "I08": "a rule for headings with an indent or no text isn't planned",
}

#: Answers that the project's decisions settle otherwise than the case, with what holds instead.
DECIDED: dict[str, Json] = {
    # An alias resolves, with a hint to write [[Name|Alias]].
    "A19": {"diagnostics": [{"at": "log.md:0", "text": "[[vino]]", "kind": "alias-link"}]},
    # The first H1 is the title, before the front matter's.
    "G04": {"titles": {"a.md": "From heading", "b.md": "Only heading", "c.md": "c"}},
    # A wikilink is never decoded.
    "C20": {
        "diagnostics": [
            {"at": "x.md:0", "text": "[[Sweet%20Fig]]", "kind": "broken-link"},
            {"at": "x.md:0", "text": "[[#Part%201]]", "kind": "broken-heading"},
        ]
    },
    # .gitignore counts only where the config says so; hidden folders never do.
    "H11": {"files": ["build/x.md", "ok.md", "y.tmp.md"]},
}

#: Rules that a case's neutral kinds don't name and that say nothing about whether its links are sound.
UNNAMED = frozenset({"legacy-property"})


def definition(scene: Scene, case: Json) -> None:
    found = scene.client.definition(*scene.cursor())
    check_targets(found, case["expect"])


def references(scene: Scene, case: Json) -> None:
    path, line, character = scene.cursor()
    answer = scene.client.references(path, line, character, declaration=case["decl"])
    check_targets([scene.client.target(item) for item in answer], case["expect"])


def check_targets(found: Sequence[Target], wanted: Json) -> None:
    shown = [f"{target.path}:{target.line}" for target in found]
    if "first" in wanted:
        expect(shown[:1] == [wanted["first"]], f"first of {shown}, not {wanted['first']}")
    else:
        expect(Counter(shown) == Counter(wanted["targets"]), f"{shown}, not {wanted['targets']}")


def diagnostics(scene: Scene, case: Json) -> None:
    """Each finding has its kind and covers the text named, or a part of it; there are no others."""
    path = case["file"]
    left = [item for item in scene.client.diagnostics(path) if item.get("code") not in UNNAMED]
    text = Text(scene.texts[path])
    for wanted in case["expect"]["diagnostics"]:
        match = next((item for item in left if fits(scene, text, item, wanted)), None)
        expect(match is not None, f"no {wanted['kind']} on {wanted['text']!r}: {told(left)}")
        left.remove(match or {})
    expect(not left, f"findings too many: {told(left)}")


def fits(scene: Scene, text: Text, item: Json, wanted: Json) -> bool:
    if item["code"] != wanted["kind"] or item["range"]["start"]["line"] != int(wanted["at"].rpartition(":")[2]):
        return False
    start, end = (
        text.offset(item["range"][side]["line"], item["range"][side]["character"], "utf-16")
        for side in ("start", "end")
    )
    if start is None or end is None or not text.source[start:end]:
        return False
    if text.source[start:end] not in wanted["text"]:
        return False
    told_there = item["message"]
    for entry in item.get("relatedInformation") or []:
        there = scene.client.target(entry["location"])
        told_there += f" {entry['message']} {there.path}:{there.line}"
    return all(name in told_there for name in wanted.get("related", []))


def told(found: Iterable[Json]) -> list[str]:
    return [f"{item['code']} {item['range']['start']['line']}:{item['range']['start']['character']}" for item in found]


def symbols(scene: Scene, case: Json) -> None:
    wanted = case["expect"]
    found = scene.client.symbols(case["query"])
    targets = [scene.client.target(item["location"]) for item in found]
    shown = [
        f"{item['name']} in {item.get('containerName')} at {t.path}:{t.line}"
        for item, t in zip(found, targets, strict=True)
    ]
    for due in wanted.get("symbols", []):
        match = [
            item
            for item, target in zip(found, targets, strict=True)
            if item["name"] == due["name"]
            and f"{target.path}:{target.line}" == due["at"]
            and due.get("container") in (None, item.get("containerName"))
        ]
        expect(match, f"{due} is not among {shown}")
    if "titles" in wanted:
        titles = {target.path: item["name"] for item, target in zip(found, targets, strict=True) if item["kind"] == 1}
        expect(titles == wanted["titles"], f"titles {titles}")
    if "files" in wanted:
        expect(sorted({target.path for target in targets}) == wanted["files"], f"files {shown}")


def outline(scene: Scene, case: Json) -> None:
    def tree(items: Sequence[Json]) -> list[str]:
        return [
            f"{item['name']} > [{', '.join(tree(item['children']))}]" if item.get("children") else item["name"]
            for item in items
        ]

    [path] = scene.texts
    shown = tree(scene.client.outline(path))
    expect(shown == case["expect"]["tree"], f"{shown}")


def links(scene: Scene, case: Json) -> None:
    """The links that the parser finds, in any order."""
    found = [link for path, text in scene.notes() for link in parse(path, Text(text)).links]
    shown = [link.target for link in found]
    expect(Counter(shown) == Counter(case["expect"]["links"]), f"links {shown}")
    if "embeds" in case["expect"]:
        expect(sum(link.embed for link in found) == case["expect"]["embeds"], f"embeds of {shown}")


def tags(scene: Scene, case: Json) -> None:
    found = [tag.name for path, text in scene.notes() for tag in parse(path, Text(text)).tags]
    expect(Counter(found) == Counter(case["expect"]["tags"]), f"tags {found}")


def slug(scene: Scene, case: Json) -> None:
    """Anchors of headings as GitHub makes them; a count in brackets means a repeated heading."""
    pairs: dict[str, str] = case["pairs"]
    repeated = any("(2nd)" in name for name in pairs)
    names = [name.partition(" (")[0] for name in pairs] if repeated else list(pairs)
    for group in [names] if repeated else [[name] for name in names]:
        note = parse(scene.path("slugs.md"), Text("".join(f"# {name}\n\n" for name in group)))
        found = [heading.slug for heading in note.headings]
        due = list(pairs.values()) if repeated else [pairs[name] for name in group]
        expect(found == due, f"{group}: {found}, not {due}")


def steps(scene: Scene, case: Json) -> None:
    expect(case["id"] in SCENARIOS, "the steps of this case are not written out")
    SCENARIOS[case["id"]](scene)


DO: dict[str, Callable[[Scene, Json], None]] = {
    "definition": definition,
    "references": references,
    "diagnostics": diagnostics,
    "symbols": symbols,
    "docSymbols": outline,
    "links": links,
    "tags": tags,
    "slug": slug,
    "steps": steps,
}


def outcome(case: Json) -> tuple[str, str, str]:
    """Write the files of one case into a temporary folder and run it."""
    name, level = case["id"], case.get("level", "")
    if case["do"] in LATER or name in LATER_CASES:
        return name, "later", f"{level}: {LATER_CASES.get(name) or LATER[case['do']]}"
    folder = Path(tempfile.mkdtemp(prefix=f"case-{name}-")).resolve()
    scene = None
    try:
        scene = Scene(folder, lay_out(folder, case), environment(folder / "index", folder / "bin"), roots(folder, case))
        DO[case["do"]](scene, {**case, "expect": DECIDED.get(name, case.get("expect"))})
    except FailedError as reason:
        return name, "fail", f"{level}: {reason}"
    except Exception as error:  # noqa: BLE001  one case must not hide the others
        return name, "fail", f"{level}: {type(error).__name__}: {error}"
    else:
        return name, "pass", f"{level}, as decided otherwise" if name in DECIDED else level
    finally:
        if scene is not None:
            scene.close()
        shutil.rmtree(folder, ignore_errors=True)


def lay_out(folder: Path, case: Json) -> dict[str, str]:
    """Write the files and return their texts, the cursor still in."""
    texts = SCENARIO_FILES.get(case["id"]) or case.get("files") or {}
    homes = {path: root for root, paths in grouped(case).items() for path in paths}
    (folder / "vault").mkdir()
    for path, text in texts.items():
        file = folder / homes.get(path, "vault") / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.replace(CURSOR, ""), encoding="utf-8", newline="")
    return texts


def grouped(case: Json) -> dict[str, list[str]]:
    """Workspace folder → its files, where a case has several folders."""
    parts = (entry.partition(": ") for entry in case.get("roots", []))
    return {root: paths.split(", ") for root, _, paths in parts}


def roots(folder: Path, case: Json) -> list[Path]:
    return [folder / root for root in grouped(case)] or [folder / "vault"]


#: Files that a case describes instead of spelling them out.
SCENARIO_FILES: dict[str, dict[str, str]] = {
    "H08": {f"n{number}.md": f"[[n{number - 100}]]\n" if number >= 100 else "x\n" for number in range(200)},
    "H10": {
        "a.md": "".join("## Deep\n" if number == 11_500 else "line\n" for number in range(12_000)),
        "b.md": "[[a#Deep]]\n",
    },
}


def main(arguments: Sequence[str]) -> int:
    if not arguments:
        print(__doc__)
        return 2
    cases: list[Any] = yaml.safe_load(Path(arguments[0]).read_text(encoding="utf-8"))
    wanted = set(arguments[1:])
    return report([outcome(case) for case in cases if not wanted or case["id"] in wanted])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
