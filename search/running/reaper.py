"""Ends what programs of others, such as a private Ray, leave behind when the process that started them is
killed: their processes, and their folder.

    python -IS reaper.py FOLDER WORDS     waits for the end of its standard input, which ends with the driver

It runs as a script of its own, so it imports nothing but Python's library. Ray itself ends most of its
processes with the driver, but not its agents (Ray 2.60: both were still there 20 s after the driver). And
where Ray's head dies, Ray's C++ code ends the driver, which then can say nothing: so the reaper says WORDS
where a process that the driver named on the input ended before it, and the driver did not say DONE.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import time

# All processes of a program that is to end with ours inherit this variable; its value is their folder
VARIABLE = "TUNEBOOK_MARKED_BY"
DONE = b"done"
TRIES = 50
PAUSE_SECONDS = 0.1


def processes_of(folder: str) -> list[int]:
    """Return the processes that were started with the folder's variable, or write a log in the folder."""
    others = (int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid())
    return [pid for pid in others if belongs(pid, folder)]


def belongs(pid: int, folder: str) -> bool:
    """Tell whether a process is one of the folder's.

    A process that gives itself a title, as Ray's agents and trials do, may overwrite the variables that it
    was started with. Those of Ray write their output into its folder.
    """
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            if f"{VARIABLE}={folder}".encode() in file.read().split(b"\0"):
                return True
        outputs = [os.readlink(f"/proc/{pid}/fd/{number}") for number in (1, 2)]
    except OSError:  # it has ended, has closed its output, or is another person's
        return False
    return any(path.startswith(f"{folder}/") for path in outputs)


def end_processes(folder: str) -> None:
    """Kill the processes of a folder, also those that they start meanwhile."""
    for _ in range(TRIES):
        if not (found := processes_of(folder)):
            return
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(PAUSE_SECONDS)


def remove(folder: str) -> None:
    """End the processes of a folder and remove it."""
    end_processes(folder)
    shutil.rmtree(folder, ignore_errors=True)


def was_ended_with_another(pipe: int) -> bool:
    """Wait for the driver's end, and return whether a process that it needs had ended before, of which it had
    no time to speak."""
    other_first, done = False, False
    waiting = select.poll()
    waiting.register(pipe, select.POLLIN)
    while True:
        ready = [number for number, _ in waiting.poll()]
        if pipe not in ready:
            other_first = True
            for number in ready:
                waiting.unregister(number)
            continue
        if not (words := os.read(pipe, 4096)):
            return other_first and not done
        for word in words.split():
            if word == DONE:
                done = True
                continue
            try:
                waiting.register(os.pidfd_open(int(word)), select.POLLIN)
            except ProcessLookupError:
                other_first = True
            except OSError:  # before Linux 5.3
                continue


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # they are for the driver; this process outlives it
    if was_ended_with_another(sys.stdin.fileno()):
        os.write(2, os.fsencode(sys.argv[2]) + b"\n")
    remove(sys.argv[1])
