"""The script of a text decides which texts its vector is compared with."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vault_lsp.core.script import Script, script


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", Script.LATIN),
        ("42 %", Script.LATIN),
        ("A plain note.", Script.LATIN),
        ("Über Köpfe naïvement", Script.LATIN),
        ("今天修好了水管。", Script.HAN),
        ("用 Kubernetes 部署的时候，先检查 PersistentVolume 是否已经绑定好。", Script.HAN),
        ("The word 水 means water, and is the first that everybody learns.", Script.LATIN),
        ("今日は山へ行きました", Script.KANA),
        ("東京都庁舎の展望室", Script.KANA),
        ("오늘은 산에 갔다", Script.HANGUL),
        ("Сегодня идёт дождь", Script.CYRILLIC),
        ("Η θάλασσα", Script.GREEK),
        ("البحر كبير", Script.ARABIC),
        ("הים גדול", Script.HEBREW),
        ("समुद्र बड़ा है", Script.INDIC),
        ("ทะเลกว้าง", Script.THAI),
    ],
)
def test_the_script_that_says_most_counts(text: str, expected: Script) -> None:
    assert script(text) == expected


@given(st.text())
def test_every_text_has_a_script(text: str) -> None:
    assert script(text) in Script
