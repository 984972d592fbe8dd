"""Qwen3-Reranker by mlx-lm: a language model is asked whether a passage answers, and its yes is weighed against its no.

Everything of mlx happens on one thread: its streams, and so the arrays that wait in them, belong to the thread that
made them (ml-explore/mlx#3727).
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import weakref
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from vault_lsp.rerank.reranker import readable, sigmoid

#: The words that the model was trained on.
_BEFORE = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
)
_PAIR = "<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {passage}"
_AFTER = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
_INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"

#: Tokens of the whole, and of the query in it. What is left holds any passage that the chunker makes.
_TOKENS = 1024
_QUERY_TOKENS = 256

#: Pairs of one run.
_BATCH = 8

if TYPE_CHECKING:
    Job: TypeAlias = tuple[str, Sequence[str], Future[list[float]]]
    Jobs: TypeAlias = queue.SimpleQueue[Job | None]


class Qwen3Reranker:
    """A Qwen3 model in memory, on a thread of its own that ends with it."""

    def __init__(self, name: str, folder: Path) -> None:
        """Load the model of a folder. Raises what mlx and its libraries do, ValueError for another tokenizer."""
        self._name = name
        self._jobs: Jobs = queue.SimpleQueue()
        ready: Future[None] = Future()
        threading.Thread(target=_serve, args=(folder, self._jobs, ready), name="mlx", daemon=True).start()
        ready.result()
        # Not at exit: mlx must not be taken down while the interpreter is.
        weakref.finalize(self, self._jobs.put, None).atexit = False

    @property
    def name(self) -> str:
        """Name of the model, as it was chosen."""
        return self._name

    def scores(self, query: str, passages: Sequence[str]) -> list[float]:
        """Score of each passage, from 0 to 1: how likely is yes, if it is yes or no."""
        answer: Future[list[float]] = Future()
        self._jobs.put((query, passages, answer))
        return answer.result()


class _Judge:
    """The model and its tokenizer, for one thread."""

    def __init__(self, folder: Path) -> None:
        # It complains on stderr that there is no PyTorch, which nobody needs.
        logging.getLogger("transformers").setLevel(logging.ERROR)
        from mlx_lm.utils import load_model  # noqa: PLC0415 - a second
        from tokenizers import Tokenizer  # noqa: PLC0415

        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        if any(len(self._ids(word)) != 1 for word in ("yes", "no", "<|im_start|>", "<|im_end|>")):
            raise ValueError("its tokenizer isn't that of Qwen3")
        self._before = self._ids(_BEFORE)
        self._after = self._ids(_AFTER)
        # From here on a note that spells a mark of the prompt has written text, and ends nothing.
        self._tokenizer.encode_special_tokens = True
        self._answers = [*self._ids("no"), *self._ids("yes")]
        self._model: Any = load_model(folder)[0]

    def scores(self, query: str, passages: Sequence[str]) -> list[float]:
        asked = self._cut(readable(query, 16 * _QUERY_TOKENS), _QUERY_TOKENS)
        prompts = [self._prompt(asked, readable(passage, 16 * _TOKENS)) for passage in passages]
        return [
            score for start in range(0, len(prompts), _BATCH) for score in self._judged(prompts[start : start + _BATCH])
        ]

    def _judged(self, prompts: Sequence[Sequence[int]]) -> list[float]:
        """Scores of one run. Padding stands after the end, which no token before it sees."""
        import mlx.core as mx  # noqa: PLC0415 - only where it serves

        longest = max(map(len, prompts))
        states = self._model.model(mx.array([[*prompt, *[0] * (longest - len(prompt))] for prompt in prompts]))
        last = states[mx.arange(len(prompts)), mx.array([len(prompt) - 1 for prompt in prompts])]
        # The vocabulary is large: only the last place of each prompt is weighed against it.
        tied = self._model.args.tie_word_embeddings
        logits = self._model.model.embed_tokens.as_linear(last) if tied else self._model.lm_head(last)
        pairs = logits[:, mx.array(self._answers)].astype(mx.float32).tolist()
        return [sigmoid(yes - no) for no, yes in pairs]

    def _prompt(self, query: str, passage: str) -> list[int]:
        room = _TOKENS - len(self._before) - len(self._after)
        body = self._ids(_PAIR.format(instruction=_INSTRUCTION, query=query, passage=passage))
        return [*self._before, *body[:room], *self._after]

    def _cut(self, text: str, tokens: int) -> str:
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        return text if len(encoding.ids) <= tokens else text[: encoding.offsets[tokens][0]]

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids


def _serve(folder: Path, jobs: Jobs, ready: Future[None]) -> None:
    """Load the model, then answer until told to end. Whatever fails is the asker's to know."""
    try:
        judge = _Judge(folder)
        ready.set_result(None)
        while (job := jobs.get()) is not None:
            query, passages, answer = job
            try:
                answer.set_result(judge.scores(query, passages))
            except BaseException as error:  # noqa: BLE001 - handed on
                answer.set_exception(error)
        del judge
    except BaseException as error:  # noqa: BLE001 - handed on
        ready.set_exception(error)
    finally:
        _leave()


def _leave() -> None:
    """End the streams of this thread: mlx aborts the process at its end if a thread left some behind."""
    with contextlib.suppress(ImportError):
        import mlx.core as mx  # noqa: PLC0415 - only where it serves

        mx.clear_streams()
