"""What holds for every test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="session")
def no_model_unless_a_test_asks() -> Iterator[None]:
    """To convert a model of eighty megabytes costs seconds: only the tests of embedding do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VAULT_LSP_EMBEDDING", "none")
        yield
