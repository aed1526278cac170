"""Finds the token that Ray's clusters ask for, has Ray send it, and explains a refusal."""

from __future__ import annotations

import os
from pathlib import Path

from trainable.errors import UserError

MODE, TOKEN, TOKEN_PATH = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
DEFAULT_FILE = "~/.ray/auth_token"
ANSWER_SECONDS = 5.0
# the first request that Ray's own clients send to a head
FIRST_QUESTION = "/ray.rpc.NodeInfoGcsService/GetClusterId"
NO_TOKEN = (
    f"the cluster asks for a token: set {TOKEN} to it, or put it into {DEFAULT_FILE} "
    "(`ray get-auth-token` on the head prints it)"
)


def token_source() -> str | None:
    """Return the variable or file that holds a token, in Ray's order; None where there is none."""
    if os.environ.get(TOKEN):
        return TOKEN
    file = Path(os.environ.get(TOKEN_PATH) or DEFAULT_FILE).expanduser()
    return str(file) if file.is_file() else None


def token_to_send() -> str | None:
    """Return the token that Ray sends; None where it sends none."""
    source = token_source()
    if source is None or os.environ.get(MODE) != "token":
        return None
    return os.environ[TOKEN] if source == TOKEN else Path(source).read_text(encoding="utf-8").strip()


def send_token(address: str | None = None) -> None:
    """Have Ray send the token where there is one: a client with an address does not do so by itself.

    Not to the cluster at `address` if that asks for none: this process would then ask the cluster's own for
    one, and Ray would take it for dead. Raises UserError for what is the address of no cluster.
    """
    if address is not None:
        _check_address(address)
    if MODE in os.environ or token_source() is None:
        return
    head = None if address is None else head_of(address)
    if head is None or not accepts(head, None):
        os.environ[MODE] = "token"


def head_of(address: str) -> str | None:
    """Return HOST:PORT of a cluster's head; None where there is none, or the address is of another kind.

    `auto` is what Ray means by it: RAY_ADDRESS, else the cluster that was last started on this machine.
    """
    written = os.environ.get("RAY_ADDRESS", "") if address == "auto" else address
    if written:
        return written if "://" not in written else None
    file = Path(os.environ.get("RAY_TMPDIR", "/tmp")) / "ray" / "ray_current_cluster"
    return file.read_text(encoding="utf-8").strip() if file.is_file() else None


def _check_address(address: str) -> None:
    """Raise UserError for what is the address of no cluster, whether it would answer or not."""
    if "://" in address:
        raise UserError(
            f"--address {address}: expected `auto` or HOST:PORT of a cluster's head; a dashboard's "
            "address is for `tunebook submit`"
        )
    _, colon, port = (head_of(address) or ":0").rpartition(":")
    if not colon or not port.isdigit():
        raise UserError(f"--address {address}: expected `auto` or HOST:PORT, such as 10.0.0.1:6379")


def accepts(head: str, token: str | None) -> bool | None:
    """Say whether the head at HOST:PORT takes a token, or none; None where nothing answers.

    Ray itself would try again for 20 seconds and then report an instance that has crashed.
    """
    import grpc

    with grpc.insecure_channel(head) as channel:
        sent = [("authorization", f"Bearer {token}")] if token else []
        try:
            channel.unary_unary(FIRST_QUESTION)(b"", timeout=ANSWER_SECONDS, metadata=sent)
        except grpc.RpcError as error:
            return False if error.code() is grpc.StatusCode.UNAUTHENTICATED else None
    return True


def why_refused() -> str:
    """Return in one line why a cluster refuses the token, and what to do."""
    source = token_source()
    if source is None:
        return NO_TOKEN
    if os.environ.get(MODE) != "token":
        mode = f"{MODE}={os.environ.get(MODE, '')}"
        return f"the cluster asks for a token, and {mode} stops Ray sending the one in {source}: unset it"
    return f"the cluster refuses the token in {source}: set {TOKEN} to the cluster's own"
