"""Qwen3-Reranker by mlx-lm: a language model is asked whether a passage answers, and its yes is weighed against its no.

Everything of mlx happens on one thread: its streams, and so the arrays that wait in them, belong to the thread that
made them (https://github.com/ml-explore/mlx/issues/3727).
"""

from __future__ import annotations

import atexit
import logging
import queue
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

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

_T = TypeVar("_T")


class Qwen3Reranker:
    """A Qwen3 model in memory."""

    def __init__(self, name: str, folder: Path) -> None:
        """Load the model of a folder. Raises what mlx and its libraries do, ValueError for another tokenizer."""
        self._name = name
        self._held = [_thread.run(lambda: _Judge(folder))]
        weakref.finalize(self, _thread.submit, self._held.clear).atexit = False

    @property
    def name(self) -> str:
        """Name of the model, as it was chosen."""
        return self._name

    def scores(self, query: str, passages: Sequence[str]) -> list[float]:
        """Score of each passage, from 0 to 1: how likely is yes, if it is yes or no."""
        return _thread.run(lambda: self._held[0].scores(query, passages))


class Prompts:
    """Makes the token ids of the question whether a passage answers a query."""

    def __init__(self, folder: Path) -> None:
        """Read the tokenizer of a folder; ValueError if it isn't that of Qwen3."""
        from tokenizers import Tokenizer  # noqa: PLC0415 - only where it serves

        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        if any(len(self._ids(word)) != 1 for word in ("yes", "no", "<|im_start|>", "<|im_end|>")):
            raise ValueError("its tokenizer isn't that of Qwen3")
        self._before = self._ids(_BEFORE)
        self._after = self._ids(_AFTER)
        #: What is weighed: the tokens of no and of yes.
        self.answers = (*self._ids("no"), *self._ids("yes"))
        # From here on a note that spells a mark of the prompt has written text, and ends nothing.
        self._tokenizer.encode_special_tokens = True

    def prompt(self, query: str, passage: str) -> list[int]:
        """Ids of the whole prompt. What is too long of the query and of the passage is cut, never the words around."""
        room = _TOKENS - len(self._before) - len(self._after)
        asked = self._cut(readable(query, 16 * _QUERY_TOKENS), _QUERY_TOKENS)
        pair = _PAIR.format(instruction=_INSTRUCTION, query=asked, passage=readable(passage, 16 * _TOKENS))
        return [*self._before, *self._ids(pair)[:room], *self._after]

    def _cut(self, text: str, tokens: int) -> str:
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        return text if len(encoding.ids) <= tokens else text[: encoding.offsets[tokens][0]]

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids


class _Judge:
    """The model with its prompts, for one thread."""

    def __init__(self, folder: Path) -> None:
        self._prompts = Prompts(folder)
        # It complains on stderr that there is no PyTorch, which nobody needs.
        logging.getLogger("transformers").setLevel(logging.ERROR)
        from mlx_lm.utils import load_model  # noqa: PLC0415 - a second

        self._model: Any = load_model(folder)[0]

    def scores(self, query: str, passages: Sequence[str]) -> list[float]:
        prompts = [self._prompts.prompt(query, passage) for passage in passages]
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
        pairs = logits[:, mx.array(self._prompts.answers)].astype(mx.float32).tolist()
        return [sigmoid(yes - no) for no, yes in pairs]


class _Thread:
    """The one thread of mlx, from the first use to the end of the process.

    It never ends by itself: mlx aborts a process in which a thread that used it has ended, or is stopped at exit within
    a call. So it is put to rest before that.
    """

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._started = False
        self._resting = threading.Event()

    def run(self, job: Callable[[], _T]) -> _T:
        """Do a job on the thread, after those that others have given it. Raises what the job does."""
        answer: Future[_T] = Future()

        def answered() -> None:
            try:
                answer.set_result(job())
            except BaseException as error:  # noqa: BLE001 - handed on
                answer.set_exception(error)

        self.submit(answered)
        return answer.result()

    def submit(self, job: Callable[[], None]) -> None:
        """Do a job that can't fail at some time."""
        with self._lock:
            if not self._started:
                self._started = True
                threading.Thread(target=self._work, name="mlx", daemon=True).start()
                atexit.register(self._rest)
        self._jobs.put(job)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            del job  # with all that it holds, while the next is waited for
        self._resting.set()
        threading.Event().wait()

    def _rest(self) -> None:
        self._jobs.put(None)
        self._resting.wait(10)


_thread = _Thread()
