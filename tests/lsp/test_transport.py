from __future__ import annotations

import os
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from vault_lsp.lsp.transport import Frames, PipeWriter, read_pipe


def frame(body: bytes) -> bytes:
    return b"Content-Length: %d\r\n\r\n" % len(body) + body


@given(st.lists(st.binary(max_size=40), max_size=6), st.lists(st.integers(0, 400), max_size=8))
def test_frames_are_the_same_however_the_bytes_arrive(bodies: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(map(frame, bodies))
    frames = Frames()
    edges = sorted({0, len(stream), *(min(cut, len(stream)) for cut in cuts)})
    assert [body for a, b in pairwise(edges) for body in frames.feed(stream[a:b])] == bodies


def test_other_headers_and_other_spellings_are_understood() -> None:
    header = b"Content-Type: application/vscode-jsonrpc; charset=utf-8\r\ncontent-length:2\r\n\r\n"
    assert Frames().feed(header + b"{}" + frame(b"[]")) == [b"{}", b"[]"]


def test_a_header_without_a_length_is_dropped_alone() -> None:
    assert Frames().feed(b"X-Nothing: 1\r\n\r\n" + frame(b"{}")) == [b"{}"]


def test_a_length_of_too_many_digits_is_no_length() -> None:
    assert Frames().feed(b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n" + frame(b"{}")) == [b"{}"]


def test_bytes_that_are_no_header_do_not_pile_up() -> None:
    frames = Frames()
    assert frames.feed(b"x" * 100_000) == []
    assert frames.feed(b"\r\n\r\n" + frame(b"{}")) == [b"{}"]


def test_a_writer_tells_once_when_the_reader_is_gone() -> None:
    source, sink = os.pipe()
    os.close(source)
    told: list[bool] = []
    writer = PipeWriter(sink, lambda: told.append(True))
    writer.write(b"a")
    writer.write(b"b")
    writer.close()
    os.close(sink)
    assert told == [True]


def test_a_frame_larger_than_the_pipe_is_written_whole() -> None:
    source, sink = os.pipe()
    bodies: list[bytes | None] = []
    reader = read_pipe(source, bodies.append)
    writer = PipeWriter(sink, lambda: None)
    writer.write(frame(b"x" * 300_000))
    writer.close()
    os.close(sink)
    reader.join(10)
    os.close(source)
    assert bodies == [b"x" * 300_000, None]
