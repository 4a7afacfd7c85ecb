"""Count the lines that MLTCP adds to each base, in the sources in ``kernel/``.

Two counts, without blank lines, comments and lines of only brackets:

*added*      lines of ``kernel/tcp_mltcp_NAME.c`` that its base's module would not have. The base's module is the
             testbed's (``tcp_dcqcn.c``), or the parts of every congestion control: operations filled with the base's
             functions, registration, description.
*executed*   these, and the lines of ``mltcp.h``, ``mltcp_tcp.h`` and ``mltcp_module.h`` in the functions it
             calls, directly or not (and the structures and constants they use).
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from testbed.core.environment import ROOT

KERNEL = Path(ROOT) / "kernel"
BASES = {"mltcp_reno": "Reno", "mltcp_cubic": "CUBIC", "mltcp_dctcp": "DCTCP", "mltcp_dcqcn": "DCQCN"}
# Names that the module of any base has, independent of its functions.
FRAME = re.compile(
    r"#include <|#include \"(cubic|dctcp)|module_(init|exit)|MODULE_|\.owner|\.name|\.flags|BUILD_BUG_ON"
    r"|CC_MODULE|struct tcp_congestion_ops"
)


def code(text: str) -> list[str]:
    """Return the lines with code."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.DOTALL)
    lines = (" ".join(line.split()) for line in text.splitlines())
    return [line for line in lines if re.search(r"\w", line)]


def added(name: str) -> int:
    """Return the lines of a module that its base's module does not have."""
    lines = code((KERNEL / f"tcp_{name}.c").read_text())
    base = KERNEL / f"tcp_{BASES[name].lower()}.c"
    if base.exists():
        # Renaming is no addition, nor is that the base's state lies within another structure.
        plain = Counter(_same(line) for line in code(base.read_text()))
        return sum((Counter(_same(line) for line in lines) - plain).values())
    kept = [line for line in lines if not FRAME.search(line)]
    return len([line for line in kept if not _of_the_base(line)])


def _same(line: str) -> str:
    return (
        line.replace("mltcp_dcqcn", "dcqcn")
        .replace("struct dcqcn *ca", "struct dcqcn_flow *ca")
        .replace("ca->base.", "ca->")
        .replace("&ca->base", "ca")
    )


def _of_the_base(line: str) -> bool:
    """An operation that is the base's own function."""
    return re.fullmatch(r"\.\w+ = (?!mltcp_)\w+,", line) is not None


def functions(*headers: str) -> dict[str, tuple[int, set[str]]]:
    """Each function of the headers: its lines, and the names in it."""
    found = {}
    for header in headers:
        text = re.sub(r"/\*.*?\*/", "", (KERNEL / header).read_text(), flags=re.DOTALL)
        for match in re.finditer(r"^static inline [^;{]*?(\w+)\([^;{]*\)\n\{.*?^\}", text, re.DOTALL | re.MULTILINE):
            found[match[1]] = (len(code(match[0])), set(re.findall(r"\w+", match[0])) - {match[1]})
    return found


def executed(name: str) -> int:
    """Lines added, and those of the algorithm behind them."""
    known = functions("mltcp.h", "mltcp_tcp.h", "mltcp_module.h")
    text = (KERNEL / f"tcp_{name}.c").read_text()
    todo, reached = [f for f in known if re.search(rf"\b{f}\(", text)], set[str]()
    while todo:
        one = todo.pop()
        if one not in reached:
            reached.add(one)
            todo += [f for f in known[one][1] if f in known]
    structures = re.findall(
        r"^(?:struct|enum) \w+ \{.*?^\};", (KERNEL / "mltcp.h").read_text(), re.DOTALL | re.MULTILINE
    )
    return added(name) + sum(known[f][0] for f in reached) + sum(len(code(s)) for s in structures)
