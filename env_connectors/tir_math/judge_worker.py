"""Checks answers with math-verify, one line of JSON in, one out; a process of its own that imports nothing of the project.

A check that takes too long is ended by the kernel's own clock, and the process with it: whoever asked starts another one.
It also ends when its input does, so that it never outlives the process that started it.
"""

import json
import logging
import os
import re
import resource
import signal
import sys

_MEMORY_MB = 1024  # of address space beyond what it has after the imports
_SPACE = re.compile(r"VmSize:\s+(\d+) kB")


def _as_latex(text: str) -> str:
    """Return an answer in LaTeX whose Python operators are written as LaTeX has them."""
    text = re.sub(r"\*\*\s*\(?(-?\w+)\)?", r"^{\1}", text.strip().strip("$"))
    text = re.sub(r"(?<![\\a-zA-Z])sqrt\(([^()]*)\)", r"\\sqrt{\1}", text)
    text = re.sub(r"(?<=\d)\s*\*\s*I(?!\w)|(?<![\\\w])I(?!\w)", "i", text)  # as sympy writes it
    text = re.sub(r"(?<![\\a-zA-Z])(pi|infty|theta)(?!\w)", r"\\\1 ", text).replace("*", " \\cdot ")
    boxed = re.fullmatch(r"\\boxed\{(.*)\}", text, re.DOTALL)
    return boxed[1] if boxed else text


def _limit() -> None:
    with open("/proc/self/status") as status:
        found = _SPACE.search(status.read())
    most = (int(found[1]) << 10) + (_MEMORY_MB << 20) if found else resource.RLIM_INFINITY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main() -> None:
    """Answer until the input ends."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # nothing that a library prints gets between the answers
    logging.disable(logging.CRITICAL)
    from math_verify import LatexExtractionConfig, parse, verify

    configs = [LatexExtractionConfig(boxed_match_priority=0)]
    _limit()
    out.write("ready\n")
    for line in sys.stdin:
        asked = json.loads(line)
        signal.setitimer(signal.ITIMER_REAL, asked["timeout_s"])  # the default action of SIGALRM is the end
        try:
            gold, given = (
                parse(f"\\boxed{{{_as_latex(asked[key])}}}", configs, parsing_timeout=None) for key in ("gold", "given")
            )
            told: dict[str, object] = {"equal": bool(verify(gold, given, timeout_seconds=None)), "read": len(given) > 1}
        except (Exception, RecursionError) as error:  # noqa: BLE001 - whatever a strange answer makes the library raise
            told = {"equal": False, "read": False, "error": f"{type(error).__name__}: {error}"[:200]}
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        out.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
