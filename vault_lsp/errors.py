"""What can go wrong on purpose: every error that a surface turns into a message."""
# ruff: noqa: N818 - most of these are named for what is the case, as in `FileNotFound`

from __future__ import annotations

from typing import ClassVar


class VaultLspError(Exception):
    """Something a person can act on; its text is the whole message, `code` names it in JSON answers."""

    code: ClassVar[str] = "error"


class ConfigError(VaultLspError):
    """The configuration can't be used."""

    code = "config"


class VaultNotFound(VaultLspError):
    """There is no vault where one was named."""

    code = "vault-not-found"


class IndexBusy(VaultLspError):
    """Another process kept the index locked for too long."""

    code = "index-busy"


class IndexDamaged(VaultLspError):
    """The index can't be read or written, and a new one couldn't be made."""

    code = "index-damaged"


class IndexReadOnly(VaultLspError):
    """The index can be read but not written: no permission, no space, or a read-only disk."""

    code = "index-read-only"


class ModelUnavailable(VaultLspError):
    """A model can't be used: it isn't on this machine, is incomplete, or its package is missing."""

    code = "model-unavailable"


class VectorsUnavailable(VaultLspError):
    """Vectors can't be read or written now; everything else works. The text tells why."""

    code = "vectors-unavailable"


class GitError(VaultLspError):
    """Git said no, or isn't there."""

    code = "git"


class HookRefused(VaultLspError):
    """A hook can't be put where git would run it without touching what is somebody else's."""

    code = "hook-refused"


class NotFound(VaultLspError):
    """The vault has no such note, file or line."""

    code = "not-found"


class Cancelled(VaultLspError):
    """The caller no longer wants the answer."""

    code = "cancelled"


class NotInMemory(VaultLspError):
    """The answer needs the index or the disk, which the caller must not wait for."""

    code = "not-in-memory"
