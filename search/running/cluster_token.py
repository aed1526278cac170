"""Finds the token that Ray's clusters ask for, has Ray send it, and explains a refusal."""

from __future__ import annotations

import os
from pathlib import Path

MODE, TOKEN, TOKEN_PATH = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
DEFAULT_FILE = "~/.ray/auth_token"
NO_TOKEN = (
    f"the cluster asks for a token: set {TOKEN} to it, or put it into {DEFAULT_FILE} "
    "(`ray get-auth-token` on the head prints it)"
)


def token_source() -> str | None:
    """Returns the variable or file that holds a token, in Ray's order; None where there is none."""
    if os.environ.get(TOKEN):
        return TOKEN
    file = Path(os.environ.get(TOKEN_PATH) or DEFAULT_FILE).expanduser()
    return str(file) if file.is_file() else None


def token_to_send() -> str | None:
    """Returns the token that Ray sends; None where it sends none."""
    source = token_source()
    if source is None or os.environ.get(MODE) != "token":
        return None
    return os.environ[TOKEN] if source == TOKEN else Path(source).read_text(encoding="utf-8").strip()


def send_token() -> None:
    """Have Ray send the token where there is one: a client with an address does not do so by itself.

    A cluster that asks for none ignores it.
    """
    if MODE not in os.environ and token_source() is not None:
        os.environ[MODE] = "token"


def why_refused() -> str:
    """Returns in one line why a cluster refuses the token, and what to do."""
    source = token_source()
    if source is None:
        return NO_TOKEN
    if os.environ.get(MODE) != "token":
        mode = f"{MODE}={os.environ.get(MODE, '')}"
        return f"the cluster asks for a token, and {mode} stops Ray sending the one in {source}: unset it"
    return f"the cluster refuses the token in {source}: set {TOKEN} to the cluster's own"
