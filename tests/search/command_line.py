"""What tests are given to call the command line: the fixtures `tunebook` and `refusal`."""

from collections.abc import Callable

Tunebook = Callable[..., tuple[int, str, str]]  # exit code, standard output and standard error
Refusal = Callable[..., str]  # the message of what is refused as wrong usage
