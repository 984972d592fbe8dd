"""What a job in a thread sees of the session: one snapshot that nobody changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lsprotocol import types

from vault_lsp.core.model import NotePath
from vault_lsp.core.text import Encoding, Point, Text
from vault_lsp.lsp import convert
from vault_lsp.lsp.lone import LoneView
from vault_lsp.lsp.session import ClientCapabilities, Document, Root, Settings
from vault_lsp.view import View


@dataclass(frozen=True, slots=True)
class Look:
    """All that a job in a thread sees: one snapshot of the vault, with the words of the client that asked."""

    view: View | LoneView
    path: NotePath
    document: Document | None
    root: Root | None
    client: ClientCapabilities
    settings: Settings
    #: The open buffers of the vault by their files.
    buffers: Mapping[str, Document]
    cancelled: Callable[[], bool]

    @property
    def encoding(self) -> Encoding:
        """The unit of the client's columns."""
        return self.client.encoding

    def point(self, position: types.Position) -> Point | None:
        """The point of a client's position, None past the text's end or where the text can't be read."""
        text = self.text()
        return None if text is None else convert.point_of(text, position, self.encoding)

    def text(self) -> Text | None:
        """The text of the note that was asked about: the buffer, else the file."""
        if self.document is not None:
            return self.document.text
        vault = self.root.vault if self.root else None
        return None if vault is None else vault.text(self.path)

    def uri(self, path: NotePath) -> str:
        """The URI of a note, spelled as the client spells it where it has the note open."""
        buffer = self.buffer(path)
        if buffer is not None:
            return buffer.uri
        return "" if self.root is None else convert.uri_of(self.root.file_of(path))

    def buffer(self, path: NotePath) -> Document | None:
        """The open buffer of a note."""
        return self.document if self.root is None else self.buffers.get(self.root.file_of(path))
