"""Tests that Ray's token is found where Ray looks, is sent along, and is asked for where it is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from search.running.cluster_token import send_token, token_source, token_to_send, why_refused


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.setenv(name, "")  # so that what a test sets is removed after it, too
        monkeypatch.delenv(name)
    return tmp_path


def test_without_a_token_none_is_sent() -> None:
    send_token()
    assert (token_source(), token_to_send()) == (None, None)
    assert why_refused().startswith("the cluster asks for a token: set RAY_AUTH_TOKEN")


def test_it_is_read_from_the_variable_then_from_a_file(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / ".ray").mkdir()
    (home / ".ray" / "auth_token").write_text("of the home\n")
    send_token()
    assert token_to_send() == "of the home"
    (home / "other").write_text("of a file")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(home / "other"))
    assert token_to_send() == "of a file"
    monkeypatch.setenv("RAY_AUTH_TOKEN", "of the variable")
    assert (token_to_send(), token_source()) == ("of the variable", "RAY_AUTH_TOKEN")
    assert why_refused().startswith("the cluster refuses the token in RAY_AUTH_TOKEN")


def test_a_wish_to_send_none_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "a")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    send_token()
    assert token_to_send() is None
    assert "RAY_AUTH_MODE=disabled" in why_refused()
