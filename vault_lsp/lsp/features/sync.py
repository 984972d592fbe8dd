"""Buffers and files: what the client opens, types, saves, creates, renames and deletes.

All handlers are plain functions: a coroutine would let a later change overtake an earlier one.
"""

from __future__ import annotations

from lsprotocol import types

from vault_lsp.core.text import Text
from vault_lsp.lsp.server import VaultServer
from vault_lsp.lsp.session import Document, without_surrogates

#: What a client should tell about: any file can be a link's target, and folders move with their notes.
EVERY_FILE = types.FileOperationRegistrationOptions(
    filters=[types.FileOperationFilter(pattern=types.FileOperationPattern(glob="**/*"), scheme="file")]
)


def register(ls: VaultServer) -> None:
    """Registers the notifications of this file."""
    ls.feature(types.TEXT_DOCUMENT_DID_OPEN)(did_open)
    ls.feature(types.TEXT_DOCUMENT_DID_CHANGE)(did_change)
    ls.feature(types.TEXT_DOCUMENT_DID_SAVE, types.SaveOptions(include_text=False))(did_save)
    ls.feature(types.TEXT_DOCUMENT_DID_CLOSE)(did_close)
    ls.feature(types.WORKSPACE_DID_CREATE_FILES, EVERY_FILE)(did_create_files)
    ls.feature(types.WORKSPACE_DID_RENAME_FILES, EVERY_FILE)(did_rename_files)
    ls.feature(types.WORKSPACE_DID_DELETE_FILES, EVERY_FILE)(did_delete_files)
    ls.feature(types.WORKSPACE_DID_CHANGE_WATCHED_FILES)(did_change_watched_files)


def did_open(ls: VaultServer, params: types.DidOpenTextDocumentParams) -> None:
    """From now on the buffer is the truth about the note."""
    item = params.text_document
    document = Document(item.uri, item.version, Text(without_surrogates(item.text)))
    ls.session.put(document)
    ls.adopt(document)
    ls.checks.opened(document)


def did_change(ls: VaultServer, params: types.DidChangeTextDocumentParams) -> None:
    """The next version of a buffer; whole texts and ranges are understood alike."""
    old = ls.session.document(params.text_document.uri)
    if old is None:
        return
    new = old.changed(params.text_document.version, params.content_changes, ls.session.client.encoding)
    ls.session.put(new)
    ls.checks.changed(new)


def did_save(ls: VaultServer, params: types.DidSaveTextDocumentParams) -> None:
    """The file holds what the buffer says: the index follows."""
    document = ls.session.document(params.text_document.uri)
    if document is not None:
        document.edited = False
    ls.touch([params.text_document.uri])


def did_close(ls: VaultServer, params: types.DidCloseTextDocumentParams) -> None:
    """The disk is the truth again, also when the buffer was never saved."""
    document = ls.session.document(params.text_document.uri)
    if document is None:
        return
    ls.session.drop(document)
    ls.checks.closed(document)
    ls.touch([document.uri])


def did_create_files(ls: VaultServer, params: types.CreateFilesParams) -> None:
    """Files or folders made in the editor."""
    ls.touch(file.uri for file in params.files)


def did_rename_files(ls: VaultServer, params: types.RenameFilesParams) -> None:
    """Files or folders renamed in the editor; an old and a new name each may be a folder's."""
    ls.touch(uri for file in params.files for uri in (file.old_uri, file.new_uri))


def did_delete_files(ls: VaultServer, params: types.DeleteFilesParams) -> None:
    """Files or folders deleted in the editor."""
    ls.touch(file.uri for file in params.files)


def did_change_watched_files(ls: VaultServer, params: types.DidChangeWatchedFilesParams) -> None:
    """Changes on disk that the client saw. The kind of a change is a hint like all else: the disk is asked."""
    ls.touch(event.uri for event in params.changes)
