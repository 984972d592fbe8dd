"""The findings of a whole vault are those of its notes, whichever way they are read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support import vault as files_of
from tests.support import write
from vault_lsp.audit import audit
from vault_lsp.core.rules import RULES, HealthConfig
from vault_lsp.service import Vault

_GOVERNED = HealthConfig(
    profile="governed", prefer="markdown", note_type_tags=("log",), domain_tags=("java",), ignore_key="quiet"
)
_NOTES = """\
=== a.md
---
aliases: [Fig, plot]
tag: log, java
---
# A
[[b]] [[gone]] [[b#No]] [[b#^no]] [x][y] ^one ^one

[y]: b.md
[y]: c.md
[unused]: b.md

text ^one

more ^one
=== sub/b.md
---
quiet: [missing-tags]
x: [
---
[[plot]] [[Fig]] #jvaa
=== other/b.md
---
quiet: true
---
[[gone]]
=== fig.md
=== README.md
[gone](gone.md)
"""


@pytest.mark.parametrize("config", [HealthConfig(), _GOVERNED])
def test_an_audit_has_the_findings_of_every_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: HealthConfig
) -> None:
    monkeypatch.setenv("VAULT_LSP_INDEX_DIR", str(tmp_path / "index"))
    opened = Vault.open(write(tmp_path / "vault", dict(files_of(_NOTES).files)))
    try:
        opened.reconcile()
        with opened.view() as view:
            one_by_one = [finding for path in view.paths() for finding in view.findings(path, config)]
            at_once = audit(view, config)
            paths = view.paths()
            whole = [view.note(path) for path in paths]
            bare = sorted(view.for_rules(), key=lambda note: note.path)
    finally:
        opened.close()
    of_notes = [finding for finding in at_once if RULES[finding.rule].scope == "note"]
    assert of_notes == one_by_one
    assert len({finding.rule for finding in of_notes}) > 8
    assert bare == [replace(note, headings=(), anchors=()) for note in whole if note is not None]
