"""Java's .properties format, as far as configuration files use it."""

from __future__ import annotations

import re

_SPACE = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    """Keys and values of a properties file: comments, continued lines, escapes, `=`, `:` or space as separator."""
    return dict(_split(line) for line in _logical_lines(text))


def _logical_lines(text: str) -> list[str]:
    lines: list[str] = []
    continued = ""
    for raw in re.split(r"\r\n|\r|\n", text):
        line = raw.lstrip(_SPACE)
        if not continued and (not line or line[0] in "#!"):
            continue
        line = continued + line
        trailing_backslashes = len(line) - len(line.rstrip("\\"))
        if trailing_backslashes % 2:
            continued = line[:-1]
            continue
        continued = ""
        lines.append(line)
    return [*lines, continued] if continued else lines


def _split(line: str) -> tuple[str, str]:
    end = 0
    while end < len(line) and line[end] not in "=:" + _SPACE:
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(_SPACE)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_SPACE)
    return _unescape(line[:end]), _unescape(rest)


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out = []
    characters = iter(text)
    for character in characters:
        if character != "\\":
            out.append(character)
            continue
        escaped = next(characters, "")
        if escaped == "u":
            digits = "".join(next(characters, "") for _ in range(4))
            if not re.fullmatch("[0-9a-fA-F]{4}", digits):
                raise ValueError(f"\\u{digits} is not a character: four hexadecimal digits must follow \\u")
            out.append(chr(int(digits, 16)))
        else:
            out.append(_ESCAPES.get(escaped, escaped))
    return "".join(out).encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # joins surrogate pairs
