"""What families of models want to see before a text, and what a model's own files say of how it is used."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from vault_lsp.embed.embedder import Pooling
from vault_lsp.embed.source import MAX_TOKENS


class Prefixes(NamedTuple):
    """What is put before a query and before a passage."""

    query: str
    passage: str


_RETRIEVE = "Represent this sentence for searching relevant passages: "
_INSTRUCT = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"

#: By a pattern for the name, the first that fits.
_FAMILIES = (
    (r"e5-[\w-]*instruct", Prefixes(f"{_INSTRUCT} ", "")),
    (r"(^|[/_-])e5(-|$)", Prefixes("query: ", "passage: ")),
    (r"bge-(small|base|large)-zh", Prefixes("为这个句子生成表示以用于检索相关文章：", "")),
    (r"bge-(small|base|large)-en", Prefixes(_RETRIEVE, "")),
    (r"mxbai-embed", Prefixes(_RETRIEVE, "")),
    (r"arctic-embed-[\w-]*v2", Prefixes("query: ", "")),
    (r"arctic-embed", Prefixes(_RETRIEVE, "")),
    (r"nomic-embed", Prefixes("search_query: ", "search_document: ")),
    (r"qwen3-embedding", Prefixes(_INSTRUCT, "")),
    (r"embeddinggemma", Prefixes("task: search result | query: ", "title: none | text: ")),
    (r"stella-en", Prefixes(f"{_INSTRUCT} ", "")),
)


def prefixes(name: str) -> Prefixes:
    """Prefixes of a model by its name; none for a family that wants none or that isn't known."""
    return next((found for pattern, found in _FAMILIES if re.search(pattern, name.lower())), Prefixes("", ""))


def prompts(folder: Path) -> Prefixes | None:
    """Prefixes that a folder's `config_sentence_transformers.json` names; None where it names none."""
    named = _read(folder / "config_sentence_transformers.json").get("prompts")
    if not isinstance(named, dict) or not named:
        return None
    texts = {key: value for key, value in named.items() if isinstance(value, str)}
    return Prefixes(texts.get("query", ""), texts.get("passage", texts.get("document", "")))


def pooling(folder: Path) -> Pooling:
    """How a folder's `1_Pooling/config.json` makes one vector of many; the mean where it doesn't say."""
    modes = _read(folder / "1_Pooling/config.json")
    if modes.get("pooling_mode_cls_token") is True:
        return "cls"
    return "last" if modes.get("pooling_mode_lasttoken") is True else "mean"


def max_tokens(folder: Path) -> int:
    """Tokens that a model takes, as far as its files say, and MAX_TOKENS at most."""
    named = (
        _read(folder / "tokenizer_config.json").get("model_max_length"),
        _read(folder / "sentence_bert_config.json").get("max_seq_length"),
    )
    return min([limit for limit in named if isinstance(limit, int) and limit > 2] + [MAX_TOKENS])


def _read(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
