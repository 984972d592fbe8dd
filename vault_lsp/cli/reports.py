"""Findings for other programs: JSON of ours, SARIF 2.1.0, and annotations of GitHub's workflow log."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from vault_lsp import __version__
from vault_lsp.cli import output
from vault_lsp.core.model import Severity
from vault_lsp.core.rules import RULES

if TYPE_CHECKING:
    from vault_lsp.core.model import Finding
    from vault_lsp.core.text import Place

#: Severities that are shown, the worst first.
SHOWN = (Severity.ERROR, Severity.WARNING, Severity.INFORMATION, Severity.HINT)

_SARIF_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning"}
_GITHUB_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning"}


def counted(found: Iterable[Finding]) -> dict[str, int]:
    """How many findings of each severity."""
    counts = Counter(finding.severity for finding in found)
    return {severity.value: counts[severity] for severity in SHOWN}


def finding_json(finding: Finding) -> dict[str, Any]:
    """A finding as `health --json` gives it: 1-based places that count code points, ends exclusive."""
    return {
        "rule": finding.rule,
        "severity": finding.severity.value,
        "path": finding.path,
        **output.span_json(finding.place),
        "message": finding.message,
        "related": [
            {"path": each.path, "line": each.place.start.line + 1, "message": each.message} for each in finding.related
        ],
        "fixable": finding.fixable,
    }


def fingerprints(found: Iterable[Finding]) -> Iterator[str]:
    """What tells a finding from others also when lines move: its rule, note and subject, counted where they repeat."""
    seen: Counter[tuple[str, str, str]] = Counter()
    for finding in found:
        key = (finding.rule, finding.path, finding.subject)
        seen[key] += 1
        yield hashlib.sha256("\0".join((*key, str(seen[key]))).encode("utf-8", "surrogatepass")).hexdigest()


def sarif(found: Sequence[Finding], root: Path) -> dict[str, Any]:
    """The findings as a log of SARIF 2.1.0, with paths below the vault's root."""
    rules = list(RULES)
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "vault-lsp",
                        "version": __version__,
                        "rules": [
                            {"id": name, "shortDescription": {"text": rule.description}} for name, rule in RULES.items()
                        ],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "originalUriBaseIds": {"VAULT": {"uri": root.as_uri() + "/"}},
                "results": [
                    {
                        "ruleId": finding.rule,
                        "ruleIndex": rules.index(finding.rule),
                        "level": _SARIF_LEVELS.get(finding.severity, "note"),
                        "message": {"text": finding.message},
                        "locations": [_location(finding.path, finding.place)],
                        "relatedLocations": [
                            {**_location(each.path, each.place), "message": {"text": each.message}}
                            for each in finding.related
                        ],
                        "partialFingerprints": {"subject/v1": fingerprint},
                    }
                    for finding, fingerprint in zip(found, fingerprints(found), strict=True)
                ],
            }
        ],
    }


def github(finding: Finding) -> str:
    """A finding as a command of a workflow's log, which GitHub shows beside the line."""
    span = output.span_json(finding.place)
    where = {"file": finding.path, "line": span["line"], "endLine": span["end_line"], "title": finding.rule}
    if span["line"] == span["end_line"]:
        # GitHub takes columns of one line only, and ends there are inclusive.
        where |= {"col": span["column"], "endColumn": max(span["column"], span["end_column"] - 1)}
    told = ",".join(f"{name}={_property(str(value))}" for name, value in where.items())
    return f"::{_GITHUB_COMMANDS.get(finding.severity, 'notice')} {told}::{_data(finding.message)}"


def _location(path: str, place: Place) -> dict[str, Any]:
    span = output.span_json(place)
    uri = quote(path.encode("utf-8", "surrogateescape"))
    return {
        "physicalLocation": {
            "artifactLocation": {"uri": uri, "uriBaseId": "VAULT"},
            "region": {
                "startLine": span["line"],
                "startColumn": span["column"],
                "endLine": span["end_line"],
                "endColumn": span["end_column"],
            },
        }
    }


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
