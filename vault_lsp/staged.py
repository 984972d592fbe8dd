"""What the next commit is about: its notes, and the links elsewhere that it breaks."""

from __future__ import annotations

from typing import NamedTuple

from vault_lsp.core.model import Finding, NotePath
from vault_lsp.core.text import Place
from vault_lsp.repository import Repository
from vault_lsp.service import Vault
from vault_lsp.view import View


class Staged(NamedTuple):
    """The notes that a commit adds or changes, and links of other notes to files that it takes away."""

    notes: frozenset[NotePath]
    lost: dict[NotePath, list[Place]]

    def concerns(self, path: NotePath) -> bool:
        """Whether a finding of the file at this path may matter."""
        return path in self.notes or path in self.lost

    def holds(self, finding: Finding) -> bool:
        """Whether a finding is about what is staged."""
        return finding.path in self.notes or any(
            place.start <= finding.place.start < place.end for place in self.lost.get(finding.path, ())
        )


def staged(vault: Vault, view: View, repository: Repository) -> Staged:
    """What is staged in a repository, as the vault has it. GitError where git can't tell."""
    kept, gone = repository.staged()
    lost: dict[NotePath, list[Place]] = {}
    for path in filter(None, map(vault.path_of, gone)):
        for each in view.lost_links(path):
            lost.setdefault(each.source, []).append(each.link.place)
    return Staged(frozenset(filter(None, map(vault.path_of, kept))), lost)
