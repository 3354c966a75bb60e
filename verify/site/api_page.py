"""The interfaces of C, C++, Java and Python, from comments and docstrings in their sources: for the site."""

from __future__ import annotations

import ast
import re

from core.errors import ConfigError
from core.paths import ROOT
from verify.site import declared
from verify.site.declared import Declaration
from verify.site.text import plain

HEADER = ROOT / "runtime" / "include" / "slipway" / "slipway.h"
CPP = HEADER.with_suffix(".hpp")
JAVA = ROOT / "runtime" / "bindings" / "java" / "org" / "slipway"
PACKAGE = ROOT / "runtime" / "bindings" / "python" / "slipway_runtime"
_COMMENT = re.compile(r"/\*\*(.*?)\*/", re.DOTALL)
_BARE = re.compile(
    r"(?<!\*/\n)^(?:SLIPWAY_API [^;]+;|#define SLIPWAY_\w+ \d+$|typedef (?:enum|struct) \w+ \{)"
    r"|^typedef struct \w+ \w+;(?! */\*\*<).*",
    re.MULTILINE,
)
"""Functions, constants and types of the C header without a comment: it is behind a type that is only a name."""


def _clean(comment: str) -> str:
    """A comment's text as Markdown: paragraphs, parameters as a list."""
    lines = [re.sub(r"^\s*\* ?", "", line).rstrip() for line in comment.strip().splitlines()]
    text = "\n".join(lines)
    text, *tags = re.split(r"^@(?=param|return)", text, flags=re.MULTILINE)
    shown = _marked(text.strip())
    items = []
    for tag in tags:
        words = " ".join(tag.split())
        if found := re.match(r"param(\[out\])? (\w+) (.*)", words):
            out = " (result)" if found[1] else ""
            items.append(f"- `{found[2]}`{out}: {_marked(found[3])}")
        else:
            items.append(f"- Errors: {_marked(words.removeprefix('return '))}")
    return "\n\n".join(part for part in (shown, "\n".join(items)) if part)


def _marked(text: str) -> str:
    """Names of the interface as code."""
    parts = re.split(r"(`[^`]+`|\b(?:SLIPWAY|slipway)_\w+|\b\w+(?:(?:::|\.)\w+)*\(\)|\b\w+::\w+)", text)
    return "".join(
        part if part.startswith("`") else f"`{part}`" if index % 2 else plain(part) for index, part in enumerate(parts)
    )


def _overview(text: str, language: str) -> str:
    """A header's first comment."""
    found = _COMMENT.search(text)
    assert found is not None
    lines = [re.sub(r"^ \* ?", "", line) for line in found[1].splitlines()]
    text = "\n".join(line for line in lines if not line.startswith("@file")).strip()
    blocks = []
    for block in re.split(r"\n\s*\n", text.removeprefix("@brief ")):
        if block.startswith("    "):
            blocks.append(f"```{language}\n" + "\n".join(line[4:] for line in block.splitlines()) + "\n```")
        else:
            blocks.append(re.sub(r"\b(slipway_\w+|SLIPWAY_\w+)", r"`\1`", block))
    return "\n\n".join(blocks)


def c_markdown() -> str:
    """The C interface: the header, whose comments are its reference.

    Raises:
        ConfigError: a declaration has no comment.
    """
    text = HEADER.read_text(encoding="utf-8")
    _require(_BARE.findall(text), HEADER.name)
    return f"## C\n\n```c\n{text[text.index('/**') :].rstrip()}\n```\n"


def cpp_markdown() -> str:
    """The C++ interface."""
    text = CPP.read_text(encoding="utf-8")
    found = commented(text, CPP.name)
    parts = ["\n## C++\n\n", _overview(text, "cpp"), "\n"]
    functions = [one for one in found if not one.name]
    parts += [_type(one, "cpp", "slipway::") for one in found if one.name]
    return "".join([*parts, "\n### Functions of slipway::\n", *(_entry(one, "cpp") for one in functions)])


def java_markdown() -> str:
    """The Java interface: the package's public classes."""
    parts = ["\n## Java\n"]
    for path in sorted(JAVA.glob("*.java")):
        found = commented(path.read_text(encoding="utf-8"), path.name, java=True)
        parts += [_type(one, "java", "org.slipway.") for one in found]
    return "".join(parts)


def commented(text: str, name: str, *, java: bool = False) -> list[Declaration]:
    """What a C++ header or a Java file, of this name, declares for others.

    Raises:
        ConfigError: a declaration has no comment.
    """
    found = declared.together(declared.declarations(text, java=java))
    _require([f"line {line}: {code}" for line, code in declared.bare(found)], name)
    return found


def _require(bare: list[str], name: str) -> None:
    """Refuse declarations without a comment."""
    if bare:
        raise ConfigError(
            f"{name} has public declarations without a comment: {len(bare)}.", "\n".join(bare),
            "write what each is for, in /** ... */ above it, then ./inv self.docs",
        )  # fmt: skip


def _type(one: Declaration, language: str, of: str) -> str:
    """A class or enum with its members."""
    whole = one.code.endswith("}") or re.search("template|extends|implements", one.code)
    head = f"\n### {of}{one.name}\n" + (_entry(one, language) if whole else f"\n{_comment(one, language)}\n")
    inner = [_type(each, language, f"{of}{one.name}.") for each in one.members if each.name]
    return "".join([head, *(_entry(each, language) for each in one.members if not each.name), *inner])


def _entry(one: Declaration, language: str) -> str:
    code = one.code if one.code.endswith("}") else one.code.replace("\n", ";\n") + ";"
    return f"\n```{language}\n{code}\n```\n\n{_comment(one, language)}\n"


def _comment(one: Declaration, language: str) -> str:
    """A comment as Markdown: Javadoc's marks become ours."""
    text = one.comment
    if language == "java":
        text = re.sub(r"\{@link #?([^}]+)\}", lambda found: f"`{found[1].replace('#', '.')}`", text)
        text = re.sub(r"\{@code ((?:[^{}]|\{[^{}]*\})*)\}", r"`\1`", text).replace("<p>", "")
        text = re.sub(r"@throws (\w+)", r"@return `\1`:", text)
    return _clean(text)


def python_markdown() -> str:
    """The Python interface: what the package exports, with its docstrings."""
    package = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    assigned = [node for node in package.body if isinstance(node, ast.Assign)]
    names = next(ast.literal_eval(node.value) for node in assigned if _names(node) == ["__all__"])
    tree = ast.parse((PACKAGE / "_api.py").read_text(encoding="utf-8"))
    native = ast.parse((PACKAGE / "_native.py").read_text(encoding="utf-8"))
    known = {node.name: node for node in (*native.body, *tree.body) if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    parts = ["\n## Python\n\n", _docstring(package), "\n"]
    for name in names:
        node = known.get(name)
        if isinstance(node, ast.FunctionDef):
            parts.append(_callable(node, f"slipway_runtime.{name}"))
        elif node is not None:
            parts.append(f"\n### slipway_runtime.{name}\n\n{_docstring(node)}\n")
            fields = [each for each in node.body if isinstance(each, ast.AnnAssign)]
            if fields:
                parts.append("\n```python\n" + "\n".join(ast.unparse(each) for each in fields) + "\n```\n")
            functions = [each for each in node.body if isinstance(each, ast.FunctionDef) and each.name[0] != "_"]
            parts += [_callable(each, f"{name}.{each.name}", level=4) for each in functions]
    return "".join(parts)


def _names(node: ast.Assign) -> list[str]:
    return [target.id for target in node.targets if isinstance(target, ast.Name)]


def _callable(node: ast.FunctionDef, name: str, level: int = 3) -> str:
    is_property = any(isinstance(each, ast.Name) and each.id == "property" for each in node.decorator_list)
    arguments = ast.unparse(node.args)
    arguments = re.sub(r"^self(?:, )?", "", arguments)
    result = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    code = f"{name}: {ast.unparse(node.returns)}" if is_property and node.returns else f"{name}({arguments}){result}"
    return f"\n{'#' * level} {name}\n\n```python\n{code}\n```\n\n{_docstring(node)}\n"


def _docstring(node: ast.Module | ast.ClassDef | ast.FunctionDef) -> str:
    """A docstring as Markdown: ``Args:`` and ``Raises:`` as lists, code as code."""
    blocks = []
    for block in re.split(r"\n\s*\n", ast.get_docstring(node) or ""):
        lines = block.splitlines()
        if lines and lines[0] in {"Args:", "Raises:", "Returns:"}:
            rest = "\n".join(line.removeprefix("    ") for line in lines[1:])
            items = [" ".join(item.split()) for item in re.split(r"\n(?! )", rest)]
            blocks.append(f"{lines[0]}\n\n" + "\n".join(f"- {_code(item)}" for item in items))
        elif block.startswith("    "):
            blocks.append("```python\n" + "\n".join(line[4:] for line in lines) + "\n```")
        else:
            blocks.append(_code(block))
    return "\n\n".join(blocks).replace("\n```\n\n```python\n", "\n\n")  # a block with an empty line


def _code(text: str) -> str:
    """Docstrings mark code by two back ticks, names of ours by one."""
    return re.sub(r"``([^`]+)``", r"`\1`", text)


def markdown() -> str:
    """The page."""
    return c_markdown() + cpp_markdown() + java_markdown() + python_markdown()
