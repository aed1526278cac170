"""The environments of the searches that `search_quality.py --peers` compares with.

    python benchmarks/peer_environments.py [neps smac ...]

Each is made with uv in the cache folder, from the pinned list in benchmarks/offline/peers/ beside the program
that it runs; one that is there is left as it is.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

from uv import find_uv_bin

from offline.peer_arms import PEERS, folder_of, pins


def make(environment: str) -> None:
    """Make an environment, unless it is there."""
    folder = folder_of(environment)
    if (folder / "bin" / "python").exists():
        print(f"{environment}: {folder}")
        return
    uv = find_uv_bin()
    # Made aside: a folder of this name is whole.
    aside = folder.with_suffix(".part")
    subprocess.run([uv, "venv", "--clear", "--relocatable", "--python", sys.executable, aside], check=True)
    python = str(aside / "bin" / "python")
    subprocess.run([uv, "pip", "sync", "--python", python, pins(environment)], check=True)
    aside.rename(folder)
    print(f"{environment}: {folder}")


def main() -> None:
    known = sorted({arm.environment for arm in PEERS.values() if arm.environment})
    parser = argparse.ArgumentParser(description="Make the environments of other searches.")
    parser.add_argument("names", nargs="*", help=f"of {', '.join(known)}; all of them if none is named")
    names = parser.parse_args().names
    if unknown := sorted({*names} - {*known}):
        parser.error(f"expected environments, got {', '.join(unknown)}; known: {', '.join(known)}")
    for name in names or known:
        make(name)


if __name__ == "__main__":
    main()
