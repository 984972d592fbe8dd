"""The session as a whole: initialize, folders, settings, commands."""

from __future__ import annotations

import asyncio
import logging

from lsprotocol import types
from pygls.exceptions import JsonRpcException

from vault_lsp.lsp import convert
from vault_lsp.lsp.parent import alive, watch_parent
from vault_lsp.lsp.server import VaultServer
from vault_lsp.lsp.session import ClientCapabilities, folders_of

log = logging.getLogger(__name__)

REINDEX = "vault-lsp.reindex"
STATUS = "vault-lsp.status"

_ASK_SECONDS = 10.0


def register(ls: VaultServer) -> None:
    """Registers what begins a session, its settings and its commands."""
    ls.feature(types.INITIALIZE)(initialize)
    ls.feature(types.INITIALIZED)(initialized)
    ls.feature(types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS)(did_change_workspace_folders)
    ls.feature(types.WORKSPACE_DID_CHANGE_CONFIGURATION)(did_change_configuration)
    ls.command(REINDEX)(reindex)
    ls.command(STATUS)(status)


def initialize(ls: VaultServer, params: types.InitializeParams) -> None:
    """Reads what the client can do and begins to open its folders."""
    ls.session.client = ClientCapabilities.of(params.capabilities)
    ls.configure(params.initialization_options)
    # A client in another container names a process that we can't see.
    if params.process_id is not None and alive(params.process_id):
        ls.spawn(watch_parent(ls, params.process_id), "parent")
    folders = folders_of(params)
    for uri, folder in folders:
        ls.add_root(uri, folder)
    if not folders:
        ls.adopt_single_files()


def initialized(ls: VaultServer, _params: types.InitializedParams) -> None:
    """The client can be asked from now on."""
    ls.spawn(_register_dynamically(ls), "registration")
    if ls.session.client.configuration:
        ls.spawn(_fetch_settings(ls), "settings")


def did_change_workspace_folders(ls: VaultServer, params: types.DidChangeWorkspaceFoldersParams) -> None:
    """Folders that go and come; one that does both in one event stays."""
    for folder in params.event.removed:
        ls.remove_root(convert.file_of(folder.uri))
    for folder in params.event.added:
        if (file := convert.file_of(folder.uri)) is not None:
            ls.add_root(folder.uri, file)


def did_change_configuration(ls: VaultServer, params: types.DidChangeConfigurationParams) -> None:
    """New settings, sent along by some clients and to be asked for from others."""
    if ls.session.client.configuration:
        ls.spawn(_fetch_settings(ls), "settings")
    else:
        ls.configure(params.settings)


async def reindex(ls: VaultServer, *_arguments: object) -> None:
    """Compares every vault with its disk now; answers when it is done."""
    await asyncio.gather(*(keeper.rebuild() for keeper in ls.keepers.values()))


async def status(ls: VaultServer, *_arguments: object) -> list[dict[str, object]]:
    """What each vault of the session holds."""
    return [await keeper.status() for keeper in ls.keepers.values()]


async def _register_dynamically(ls: VaultServer) -> None:
    client = ls.session.client
    wanted = []
    if client.watches_files:
        # A plain glob: it is matched in every workspace folder, which is all that we want to know about.
        watchers = [types.FileSystemWatcher(glob_pattern="**/*")]
        options: object = types.DidChangeWatchedFilesRegistrationOptions(watchers=watchers)
        wanted.append(types.Registration("vault-lsp-files", types.WORKSPACE_DID_CHANGE_WATCHED_FILES, options))
    if client.registers_configuration:
        options = {"section": "vaultLsp"}
        wanted.append(types.Registration("vault-lsp-settings", types.WORKSPACE_DID_CHANGE_CONFIGURATION, options))
    if wanted:
        try:
            await ls.protocol.ask(
                types.CLIENT_REGISTER_CAPABILITY, types.RegistrationParams(registrations=wanted), _ASK_SECONDS
            )
        except (TimeoutError, JsonRpcException) as error:
            log.info("the client registers nothing: %r", error)


async def _fetch_settings(ls: VaultServer) -> None:
    asked = types.ConfigurationParams(items=[types.ConfigurationItem(section="vaultLsp")])
    try:
        answer = await ls.protocol.ask(types.WORKSPACE_CONFIGURATION, asked, _ASK_SECONDS)
    except (TimeoutError, JsonRpcException) as error:
        log.info("the client has no settings for us: %r", error)
        return
    if isinstance(answer, (list, tuple)) and answer:
        ls.configure(answer[0])
