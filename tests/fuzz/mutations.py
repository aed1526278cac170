"""Changes valid documents a little: values of other types, sizes and places, and bytes."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Iterator, Sequence
from typing import Any

# So many changes are made to one document: few, so that a part of them is accepted
CHANGES = (1, 1, 1, 2, 2, 4)
Luck = random.Random
Place = tuple[Any, Any]  # a container, and the key or the index of one value in it

WORDS = (
    *("", " ", "none", "auto", "default", "digits", "kind", "finetune", "val_top5_accuracy", "lr-find"),
    *("2026-11-22", "1e-3", "no", "~", "~nobody-there", "../..", "/", "/dev/zero", "/proc/self", "a\0b"),
    *("s3://bucket/x", "file:///", "sqlite://", "http://[", "s3://u:p@b/c", "x" * 300, "y" * 5000),
    *("Blüte", "花", "\u202e", "\ud800", "\x1b[31m", "a\nb", "{}", "[]", "%s", "{0}", "__class__", "é" * 128),
)
KINDS = (
    *("none", "adamw", "sgd", "lamb", "lars", "rmsprop", "cosine", "step", "poly", "onecycle", "constant"),
    *("mixup", "cutmix", "erasing", "cutout", "gridmask", "resized", "pad", "randaugment", "autoaugment"),
    *("trivialaugment", "multi_scale", "progressive", "fixed", "adaptive", "norm", "ema", "geometric"),
    *("decayed", "stretch", "center_crop", "fp32", "bf16", "fp16", "xavier", "orthogonal", "asha", "random"),
    *("tpe", "qmc", "val_loss", "val_balanced_accuracy", "wide", "quick", "document", "horizontal"),
)
NUMBERS = (
    *(0, 1, -1, 2, 3, 8, 63, 2**31, 2**32, 2**53, 2**63, -(2**63), 10**23, 10**400, 0.0, -0.0, 0.5, 1.0),
    *(1e-9, 1e-320, 1e308, -1e308, math.inf, -math.inf, math.nan, 0.999999999999, 1.0000001, True, False),
)
TOKENS = (
    *(b"2026-11-22", b"!!binary ", b"!!python/name:os.system ", b"&a ", b"*a", b"<<: ", b"- ", b"? ", b": "),
    *(b"[", b"]", b"{", b"}", b"\t", b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"1e999", b".nan", b"0x", b"---\n"),
    *(
        b"%YAML 1.1\n",
        b"'",
        b'"',
        b"\r",
        b"|\n",
        b">\n",
        b"#",
        b"\xe2\x80\xa8",
        b"@",
        b"`",
        b"!",
        b"\\",
        b"\xc0",
    ),
    *(b"null", b"true", b"~", b"[" * 2000, b"a: {" * 50, b"9" * 5000, b"\n", b"  ", b"&a [*a, *a]"),
)


def tree(valid: Any, luck: Luck, *, names: tuple[str, ...] = ()) -> Any:
    """Return a copy of plain data with a few changes; `names` are keys that may be added."""
    changed = copy.deepcopy(valid)
    for _ in range(luck.choice(CHANGES)):
        if places := list(_places(changed)):
            leaves = [place for place in places if not isinstance(place[0][place[1]], dict | list)]
            some = leaves if leaves and luck.randrange(4) else places  # a changed section is mostly refused
            _change(luck.choice(some), places, luck, names)
    return changed


def crossed(valid: Sequence[Any], luck: Luck) -> Any:
    """Return a mixture of two valid documents, mostly with one number changed: much of it is accepted."""
    mixture = _mixed(luck.choice(valid), luck.choice(valid), luck)
    numbers = [place for place in _places(mixture) if type(place[0][place[1]]) in (int, float)]
    if numbers and luck.randrange(4):
        container, key = luck.choice(numbers)
        container[key] = _scaled(container[key], luck)
    return mixture


def _mixed(one: Any, other: Any, luck: Luck) -> Any:
    """Return each section from one of both, and mix two sections of the same kind."""
    if not (isinstance(one, dict) and isinstance(other, dict)) or one.keys() != other.keys():
        return copy.deepcopy(luck.choice((one, other)))
    if one.get("kind") != other.get("kind"):
        return copy.deepcopy(luck.choice((one, other)))
    return {key: _mixed(one[key], other[key], luck) for key in one}


def _scaled(value: float, luck: Luck) -> float:
    whole = isinstance(value, int)
    return luck.choice((value + 1, value - 1, value * 2, value // 2 if whole else value / 2, value * 10))


def content(valid: bytes, luck: Luck, tokens: tuple[bytes, ...] = TOKENS) -> bytes:
    """Return a file's content with a few changes of its bytes."""
    changed = valid
    for _ in range(luck.choice(CHANGES)):
        at, to = sorted((luck.randint(0, len(changed)), luck.randint(0, len(changed))))
        match luck.randrange(7):
            case 0:
                changed = changed[:at] + changed[at + luck.randint(1, 8) :]
            case 1:
                changed = changed[:at] + luck.choice(tokens) + changed[at:]
            case 2:
                changed = changed[:at] + luck.randbytes(luck.randint(1, 4)) + changed[at + 4 :]
            case 3 if changed:
                at = min(at, len(changed) - 1)
                changed = changed[:at] + bytes([changed[at] ^ 1 << luck.randrange(8)]) + changed[at + 1 :]
            case 4:
                changed = changed[:to] + changed[at : min(to, at + 4000)] + changed[to:]
            case 5 if luck.randrange(4) == 0:
                changed = changed[:at]
            case _:
                lines = changed.split(b"\n")
                lines.insert(luck.randint(0, len(lines)), luck.choice(lines))
                changed = b"\n".join(lines)
    return changed


def odd(luck: Luck, depth: int = 0) -> Any:
    """Return a value that nobody expects."""
    match luck.randrange(8):
        case 0:
            return None
        case 1 | 2 | 3:
            return luck.choice(NUMBERS)
        case 4 if depth < 3:
            return [odd(luck, depth + 1) for _ in range(luck.randint(0, 3))]
        case 5 if depth < 3:
            return {luck.choice(WORDS): odd(luck, depth + 1) for _ in range(luck.randint(0, 3))}
        case 6 if depth == 0 and luck.randrange(20) == 0:
            return _nested(luck.choice((31, 40, 200)))
        case _:
            return luck.choice(WORDS)


def _nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def _places(node: Any) -> Iterator[Place]:
    waiting = [node]
    while waiting:
        each = waiting.pop()
        keys = list(each) if isinstance(each, dict) else range(len(each)) if isinstance(each, list) else ()
        for key in keys:
            yield each, key
            waiting.append(each[key])


def _change(place: Place, places: list[Place], luck: Luck, names: tuple[str, ...]) -> None:
    container, key = place
    if not _is_there(place):
        return  # an earlier change took it away
    match luck.randrange(10):
        case 0:
            container.pop(key)
        case 1 if _is_there(other := luck.choice(places)):
            container[key] = copy.deepcopy(other[0][other[1]])
        case 2 if isinstance(container, dict):
            name = luck.choice(names) if names and luck.randrange(3) else luck.choice(WORDS)
            container[name] = odd(luck)
        case 3 if isinstance(container, list):
            container.append(copy.deepcopy(container[key]))
        case 4 | 5 | 6 | 7 | 8:
            container[key] = _near(container[key], luck)
        case _:
            container[key] = odd(luck)


def _is_there(place: Place) -> bool:
    container, key = place
    return key in container if isinstance(container, dict) else key < len(container)


def _near(value: Any, luck: Luck) -> Any:
    """Return a value of the same kind, mostly, so that much of what is changed is still accepted."""
    match value:
        case bool():
            return not value
        case int() if abs(value) < 1e18:
            return luck.choice((value + 1, value - 1, value * 2, value // 2, value * 10, -value, value / 2))
        case float():
            return luck.choice((value / 2, value * 2, value / 10, value + 1, 0.0, 1.0, -value, str(value)))
        case str():
            return luck.choice((*KINDS, value + "x", value.upper(), [value]))
        case list():
            return luck.choice((value[::-1], value[:-1], value * 2, [*value, odd(luck, 2)]))
        case None:
            return luck.choice((1, 8, 0.5, True, "default"))
        case _:
            return odd(luck)
