"""What a C++ header or a Java file declares for others, with the comment before each declaration."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

_COMMENT = re.compile(r"/\*\*(?!<)(.*?)\*/", re.DOTALL)
_BEHIND = re.compile(r"[ \t]*/\*\*<(.*?)\*/", re.DOTALL)
_SKIPPED = re.compile(r"\s+|//[^\n]*|/\*(?!\*[^<]).*?\*/|#(?:[^\n\\]|\\.)*|[;}]", re.DOTALL)
_ACCESS = re.compile(r"(public|protected|private):")
_TOKEN = re.compile(r"""//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|.""", re.DOTALL)
"""A comment, a text or a character: brackets in the first two do not count."""
_TYPE = re.compile(r"\b(enum|class|struct|interface)\s+(?:class\s+)?(?:\[\[.*?\]\]\s*)?(\w+)")
_TEMPLATE = re.compile(r"\btemplate\s*<[^>]*>")


@dataclass
class Declaration:
    """A type, function or field that others may use."""

    code: str
    """Without a body; of an enum with its constants and their comments."""
    comment: str
    """What stands between the comment's marks; empty if there is none."""
    line: int
    """In the file, from 1."""
    name: str = ""
    """Of a type; empty for others."""
    members: list[Declaration] = field(default_factory=list)


def declarations(text: str, *, java: bool = False) -> list[Declaration]:
    """What a file declares for others: in C++ outside of ``private:``, in Java with the word ``public``.

    A method of Java that overrides another and has no comment has the other's, and is left out.
    """
    return list(_scope(text, 0, len(text), java=java))


def together(found: list[Declaration]) -> list[Declaration]:
    """The same with a function and its ``const`` twin behind it as one declaration: the comment is of both."""
    joined: list[Declaration] = []
    for one in found:
        last = joined[-1] if joined else None
        twin = last and not one.comment and "(" in one.code and _plain(one.code) == _plain(last.code)
        if last and twin:
            last.code = f"{last.code}\n{one.code}"
        else:
            joined.append(replace(one, members=together(one.members)))
    return joined


def _plain(code: str) -> str:
    return re.sub(r"\s*\bconst\b\s*", "", code)


def bare(found: list[Declaration], of: str = "") -> Iterator[tuple[int, str]]:
    """Line and code of each declaration without a comment. Constants of an enum need none."""
    for one in found:
        if not one.comment.strip():
            yield one.line, of + one.code.partition("\n")[0]
        yield from bare(one.members, f"{one.name}: ")


def _scope(text: str, at: int, end: int, *, java: bool, hidden: bool = False) -> Iterator[Declaration]:
    """The declarations between two places of a text."""
    comment = ""
    while at < end:
        if match := _SKIPPED.match(text, at, end):
            at = match.end()
        elif match := _COMMENT.match(text, at, end):
            comment, at = match[1], match.end()
        elif not java and (match := _ACCESS.match(text, at, end)):
            hidden, comment, at = match[1] != "public", "", match.end()
        else:
            begin, opening = at, _stop(text, at, end)
            head = text[begin:opening]
            at = _closing(text, opening, end)
            if match := _BEHIND.match(text, at, end):
                comment, at = match[1], match.end()
            plain = _TEMPLATE.sub("", head)
            kind = None if "(" in plain else _TYPE.search(plain)
            if re.search(r"\bnamespace\b", head):
                yield from _scope(text, opening + 1, at - 1, java=java)
            elif re.search(r"\bpublic\b", head) if java else not hidden and "friend " not in head:
                one = Declaration(_signature(head), comment, text.count("\n", 0, begin) + 1)
                inside = opening + 1
                if kind is not None:
                    one.name = kind[2]
                    if kind[1] == "enum":
                        inside = _stop(text, inside, at - 1) if java else at - 1
                        shown = text[begin : min(inside, at - 1)].rstrip()
                        one.code = _aligned(text, begin, f"{shown}\n}}")
                    one.members = list(_scope(text, inside, at - 1, java=java, hidden=kind[1] == "class" and not java))
                if comment or "@Override" not in head:
                    yield one
            comment = ""


def _stop(text: str, at: int, end: int) -> int:
    """Where the head of a declaration ends: its brace, or its semicolon."""
    depth, value = 0, False
    while at < end:
        token = _TOKEN.match(text, at, end)
        assert token is not None
        word = token.group()
        if not depth and (word == ";" or (word == "{" and not value)):
            return at
        if word in {"(", "{"}:
            depth += 1
        elif word in {")", "}"}:
            depth -= 1
        value = word == "=" or (value and word.isspace())  # = {} is a value, no body
        at = token.end()
    return end


def _closing(text: str, at: int, end: int) -> int:
    """Behind the brace that belongs to the one here, or behind the semicolon here."""
    depth = 0
    while at < end:
        token = _TOKEN.match(text, at, end)
        assert token is not None
        depth += {"{": 1, "}": -1}.get(token.group(), 0)
        at = token.end()
        if not depth:
            break
    return at


def _signature(head: str) -> str:
    """A head on one line, without annotations and without what a constructor begins with."""
    code = " ".join(re.sub(r"@(?:Override|SuppressWarnings\(.*?\))\s", "", head).split())
    return re.sub(r"\) : \w.*", ")", code)


def _aligned(text: str, begin: int, code: str) -> str:
    """Code without the blanks that its first line begins with."""
    blanks = begin - (text.rfind("\n", 0, begin) + 1)
    return re.sub(rf"\n {{{blanks}}}", "\n", code) if blanks else code
