"""Hooks put into a repository, and taken out: a marked block of shell that leaves all else in a file as it is.

An existing shell hook gets the block right after its first line: it runs detached, reads nothing, and so the rest of
the file keeps its arguments, its input and its exit code. At the end it might never run: scripts end in `exec`.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, NamedTuple

from vault_lsp.errors import HookRefused
from vault_lsp.hook import vault_of
from vault_lsp.repository import EVENTS, VAULT_SETTING, Event, Repository

State = Literal["installed", "outdated", "absent", "foreign", "other language", "not executable"]

_BEGIN = b"# >>> vault-lsp >>>\n"
_END = b"# <<< vault-lsp <<<"
#: Stands in the block of a file that held nothing before.
_ALONE = b"# This file was made by vault-lsp.\n"
_SHEBANG = b"#!/bin/sh\n"
_BLOCK = re.compile(re.escape(_BEGIN) + rb".*?^" + re.escape(_END) + rb"(?:\n|\Z)", re.DOTALL | re.MULTILINE)

#: What runs a script that our block is written in.
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "ksh", "mksh", "zsh", "busybox"})


class Hook(NamedTuple):
    """One hook of a repository: its file (behind a link, the file itself) and what is in it."""

    event: Event
    file: Path
    state: State


class Change(NamedTuple):
    """What was done to one hook, in a word; `advice` says what is left to a person."""

    event: Event
    file: Path
    done: str
    advice: str = ""


def look(repository: Repository) -> list[Hook]:
    """The hooks of all events, as they are now."""
    folder = repository.hooks
    return [_hook(folder, event) for event in EVENTS]


def install(repository: Repository, vault: Path | None = None, *, force: bool = False) -> list[Change]:
    """Put the block into the hooks of all events; once more changes nothing. Remembers `vault` for the repository.

    HookRefused where the folder of hooks is shared with other repositories, unless forced.
    """
    folder = repository.hooks
    _refuse_shared(repository, folder, force=force)
    if vault is not None:
        _remember(repository, vault)
    with _said(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return [_install(repository, _hook(folder, event), force=force) for event in EVENTS]


def uninstall(repository: Repository) -> list[Change]:
    """Take the block out of all hooks: other hooks are as before, byte for byte, and files of ours are gone."""
    changes = []
    for hook in look(repository):
        content = _content(hook.file)
        block = None if content is None else _BLOCK.search(content)
        if content is None or block is None:
            changes.append(Change(hook.event, hook.file, "not installed"))
            continue
        rest = _without(content, block)
        if _ALONE in block[0] and rest == _SHEBANG:
            with _said(hook.file):
                hook.file.unlink()
            changes.append(Change(hook.event, hook.file, "removed"))
        else:
            _write(hook.file, rest)
            changes.append(Change(hook.event, hook.file, "taken out"))
    if repository.setting(VAULT_SETTING) is not None:
        repository.git("config", "--unset-all", VAULT_SETTING)
    return changes


def template(event: Event) -> bytes:
    """The hook of an event as it is shipped."""
    here = Path(__file__).parent
    for folder in (here / "hooks", here.parent / "hooks"):
        with suppress(OSError):
            return (folder / event).read_bytes()
    raise HookRefused(f"the hook {event} isn't part of this installation")


def _hook(folder: Path, event: Event) -> Hook:
    file = folder / event
    with suppress(OSError, RuntimeError):
        file = file.resolve()
    return Hook(event, file, _state(file, event))


def _state(file: Path, event: Event) -> State:
    content = _content(file)
    if content is None:
        return "absent"
    if block := _BLOCK.search(content):
        if not os.access(file, os.X_OK):
            return "not executable"
        own = {_block(event, alone=alone).rstrip(b"\n") for alone in (True, False)}
        return "installed" if block[0].rstrip(b"\n") in own else "outdated"
    if not _is_shell(content):
        return "other language"
    return "foreign" if os.access(file, os.X_OK) else "not executable"


def _install(repository: Repository, hook: Hook, *, force: bool) -> Change:
    content = _content(hook.file)
    block = _block(hook.event, alone=content is None)
    if content is None:
        _write(hook.file, _SHEBANG + block, executable=True)
        return Change(hook.event, hook.file, "written")
    if hook.state == "installed":
        return Change(hook.event, hook.file, "already there")
    shared = not force and not _belongs(repository, hook.file)
    if shared:
        return Change(
            hook.event, hook.file, "left alone", "it is a link to a file outside the repository; --force writes to it"
        )
    if hook.state == "other language":
        command = f"vault-lsp hook run --detach {hook.event}"
        return Change(hook.event, hook.file, "left alone", f"it is no shell script; let it start: {command}")
    if hook.state == "not executable":
        return Change(hook.event, hook.file, "left alone", "git doesn't run it: it isn't executable (chmod +x)")
    if hook.state == "outdated":
        old = _BLOCK.search(content)
        assert old is not None
        block = _block(hook.event, alone=_ALONE in old[0])
        block = block if old[0].endswith(b"\n") else block.removesuffix(b"\n")
        _write(hook.file, content[: old.start()] + block + content[old.end() :])
        return Change(hook.event, hook.file, "renewed")
    first = content.find(b"\n") + 1 if content.startswith(b"#!") else 0
    if content.startswith(b"#!") and not first:
        _write(hook.file, content + b"\n" + block.removesuffix(b"\n"))
    else:
        _write(hook.file, content[:first] + block + content[first:])
    return Change(hook.event, hook.file, "added to the hook that was there")


def _block(event: Event, *, alone: bool) -> bytes:
    """The block of an event, which knows the Python that installs it."""
    shipped = _BLOCK.search(template(event))
    assert shipped is not None
    python = b"python=" + os.fsencode(shlex.quote(sys.executable)) + b"\n"
    block = re.sub(rb"^(\s*)python=''\n", lambda match: match[1] + python, shipped[0], count=1, flags=re.MULTILINE)
    return block.replace(_BEGIN, _BEGIN + _ALONE, 1) if alone else block


def _without(content: bytes, block: re.Match[bytes]) -> bytes:
    before = content[: block.start()]
    # At the end of a file without a last line end the one before the block was added with it.
    return (before if block[0].endswith(b"\n") else before.removesuffix(b"\n")) + content[block.end() :]


def _is_shell(content: bytes) -> bool:
    """Whether git lets a shell run the file. Without a first line that says otherwise it does."""
    if b"\0" in content:
        return False
    if not content.startswith(b"#!"):
        return True
    words = content[2:].partition(b"\n")[0].decode("utf-8", "replace").split()
    names = [os.path.basename(word) for word in words if not word.startswith("-") and "=" not in word]  # noqa: PTH119
    if names[:1] == ["env"]:
        names = names[1:]
    return bool(names) and names[0].removesuffix(".exe") in _SHELLS


def _refuse_shared(repository: Repository, folder: Path, *, force: bool) -> None:
    if not force and not _belongs(repository, folder):
        raise HookRefused(
            f"{folder}: core.hooksPath leads out of the repository, so its hooks may serve others as well; "
            "--force installs there all the same"
        )


def _belongs(repository: Repository, file: Path) -> bool:
    """Whether a file lies in the working tree or in git's own folder, whatever links lead there."""
    with suppress(OSError, RuntimeError):
        file = file.resolve()
    return file.is_relative_to(repository.top.resolve()) or file.is_relative_to(repository.common_dir)


def _remember(repository: Repository, vault: Path) -> None:
    """Record the vault where it isn't the one that would be found: from the top of whichever working tree is used."""
    if repository.setting(VAULT_SETTING) is not None:
        repository.git("config", "--unset-all", VAULT_SETTING)
    if vault_of(repository) == vault and "VAULT_LSP_VAULT" not in os.environ:
        return
    top = repository.top.resolve()
    try:
        named = os.path.relpath(vault, top) if vault.is_relative_to(top) or top.is_relative_to(vault) else str(vault)
    except ValueError:  # another drive
        named = str(vault)
    repository.git("config", VAULT_SETTING, named)


def _content(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise HookRefused(f"{file}: {(error.strerror or str(error)).lower()}") from error


def _write(file: Path, content: bytes, *, executable: bool = False) -> None:
    """Put a file in the place of another at once, with the permissions of the one before."""
    with _said(file):
        descriptor, temporary = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(content)
            if executable:
                mask = os.umask(0)
                os.umask(mask)
                Path(temporary).chmod((0o777 & ~mask) | stat.S_IXUSR | stat.S_IRUSR)
            else:
                Path(temporary).chmod(stat.S_IMODE(file.stat().st_mode))
            Path(temporary).replace(file)
        except BaseException:
            with suppress(OSError):
                Path(temporary).unlink()
            raise


@contextmanager
def _said(file: Path) -> Iterator[None]:
    """Turns an error of the system into one that a person is told."""
    try:
        yield
    except OSError as error:
        raise HookRefused(f"{file}: {(error.strerror or str(error)).lower()}") from error
