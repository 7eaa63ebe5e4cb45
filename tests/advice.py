"""Advice in messages: every string of the packages that tells the user to type a setting or a command."""

import ast
import functools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "contrastive_encoders"
GAP = "\0"  # replaces what an f-string or a %-format inserts

VERB = (
    r"\b(?:set|say|pass|give|take|choose|use|name|add|try|run|install|reinstall|train|replace|compare|convert|lower|put"
    r"|read|log in|make room|or|else|slowly|anew|ones|steps|more)\b"
)
SETTING = rf"[A-Za-z_{GAP}][\w.{GAP}-]*="
LEAD = re.compile(rf"^[\w.{GAP}\[\]]+=[^:]*: ")  # KEY=VALUE of a refused setting
ADVICE = re.compile(rf"{VERB}[^.;]*?(?<![\w.]){SETTING}", re.IGNORECASE)
COMMAND = re.compile(
    rf"\bpython (?:-m )?[a-z]|\bcontrastive-encoders [a-z{GAP}][a-z-]*(?![a-z:-])|\bpip install "
    r"|`[a-z]+ [a-z]+ ?[a-z]*`"
)


SAYS = "asks|computes|keeps|makes|names|reads|records|shows|takes|writes"
SENTENCE = re.compile(rf"[.:;] ['`]?\+?{SETTING}\S* (?:{SAYS})\b")  # the KEY=VALUE that produces it again


class Advice(NamedTuple):
    """A string with advice. ``id`` is the module and the function, with a number if the function has several."""

    id: str
    place: str
    template: str

    @property
    def pattern(self) -> re.Pattern[str]:
        """Return a pattern that matches each message that the string becomes."""
        return re.compile(".*?".join(map(re.escape, self.template.split(GAP))), re.DOTALL)


def template_of(node: ast.AST) -> str | None:
    """Return the text of a string or an f-string, with `GAP` for each inserted value."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.sub(r"%(?:\.\d)?[sdf]", GAP, node.value)
    if isinstance(node, ast.JoinedStr):
        parts = (part.value if isinstance(part, ast.Constant) else GAP for part in node.values)
        return "".join(map(str, parts))
    return None


def _strings(node: ast.AST, inside: tuple[str, ...], in_function: bool) -> Iterator[tuple[str, int, str]]:
    """Yield the strings of functions and of module constants. Class fields have help texts and are skipped."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Assign | ast.AnnAssign) and not (inside and isinstance(child.value, ast.Call)):
            target = child.targets[0] if isinstance(child, ast.Assign) else child.target
            name = (target.id,) if isinstance(target, ast.Name) and not in_function else ()
            yield from _strings(child, (*inside, *name), True)
            continue
        if isinstance(child, ast.Expr) and template_of(child.value) is not None:
            continue  # a docstring
        template = template_of(child)
        if template is not None:
            if in_function:
                yield ".".join(inside), getattr(child, "lineno", 0), template
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            function = in_function or not isinstance(child, ast.ClassDef)
            yield from _strings(child, (*inside, child.name), function)
        else:
            yield from _strings(child, inside, in_function)


def is_advice(template: str) -> bool:
    text = LEAD.sub("", template)
    is_jinja = "{%" in template
    return not is_jinja and any(one.search(text) is not None for one in (ADVICE, COMMAND, SENTENCE))


@functools.cache
def advice() -> dict[str, Advice]:
    """Return every piece of advice of the packages, by id."""
    found: dict[str, Advice] = {}
    packages = sorted(path.parent for path in PACKAGE.glob("*/__init__.py"))  # also through symbolic links
    for path in sorted(path for package in packages for path in package.rglob("*.py")):
        relative = path.relative_to(ROOT)
        module = ".".join(relative.with_suffix("").parts)
        strings = [
            (f"{module}:{function}", line, template)
            for function, line, template in _strings(ast.parse(path.read_text(encoding="utf-8")), (), False)
            if is_advice(template)
        ]
        several = Counter(name for name, *_ in strings)
        number = Counter[str]()
        for name, line, template in strings:
            number[name] += 1
            id_ = f"{name}#{number[name]}" if several[name] > 1 else name
            found[id_] = Advice(id_, f"{relative}:{line}", template)
    return found


def followed(arguments: Sequence[str], advised: str) -> list[str]:
    """Return the arguments of a command after the advice was followed; ``~KEY`` removes arguments."""
    keys = {argument.lstrip("~+").partition("=")[0] for argument in advised.split()}
    kept = [argument for argument in arguments if argument.lstrip("+").partition("=")[0] not in keys]
    return [*kept, *(argument for argument in advised.split() if not argument.startswith("~"))]
