"""Answers from memory: what an earlier question has brought in, looked at on the loop without disk or index.

A definition in an open buffer, or its findings, mostly need nothing else, and the way through a thread would take
longer than the answer. Whatever is missing raises `NotInMemory`, and the question goes the ordinary way.
"""

from __future__ import annotations

from collections.abc import Mapping

from vault_lsp.lsp.look import Look
from vault_lsp.lsp.session import Document, Root, Session
from vault_lsp.view import View

#: Characters of a text that is parsed in less time, about half a millisecond, than it takes to have it done.
_SHORT = 8_000


class Memory:
    """The looks at open buffers that are good for one state of the session. Only the loop uses it."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._state: object = None
        self._views: dict[Root, tuple[View, Mapping[str, Document]]] = {}

    def look(self, uri: str) -> Look | None:
        """A look at an open buffer of a settled vault; None where something must be read first."""
        session = self._session
        document = session.document(uri)
        root = session.root_of(document.file) if document is not None else None
        if document is None or document.file is None or root is None or not root.settled:
            return None
        if session.state != self._state:
            self._state, self._views = session.state, {}
        held, path = self._views.get(root) or self._view(root), root.known_path(document.file)
        if held is None or path is None:
            return None
        self._views[root] = held
        view, buffers = held
        return Look(view, path, document, root, session.client, session.settings, buffers, lambda: False)

    def _view(self, root: Root) -> tuple[View, Mapping[str, Document]] | None:
        overlay = {}
        documents = self._session.buffers_in(root)
        for each in documents:
            if each.file is None or root.vault is None or not root.knows(each.file):
                return None  # not asked about before
            path = root.known_path(each.file)
            if path is None:
                continue  # no note of the vault
            if each.parsed is None and len(each.text) > _SHORT:
                return None
            overlay[path] = each.note(path, root.vault.parse)
        if root.vault is None:
            return None
        return root.vault.memory(overlay), {each.key: each for each in documents}
