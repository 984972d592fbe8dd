"""Rerankers: models that read a query and a passage together, and so judge better than vectors, and slower."""

from vault_lsp.rerank.loading import Loading
from vault_lsp.rerank.models import Choice, choose, load
from vault_lsp.rerank.reranker import Reranker, rerank

__all__ = ["Choice", "Loading", "Reranker", "choose", "load", "rerank"]
