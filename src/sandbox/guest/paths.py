"""The files that a program may read: standard library, shared libraries, imported packages."""

from __future__ import annotations

import glob
import os
import sys
import sysconfig
from collections.abc import Sequence

_NOT_STANDARD = {"site-packages", "dist-packages"}


def standard_library() -> list[str]:
    """Files and folders that may be read.

    The folder of installed packages often lies inside the standard library and stays closed.  So does a list of the
    library's own folder, for a rule of Landlock holds for all folders below; imports use the list that the worker has.
    """
    folders = sorted({sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")})
    readable = [os.path.join(f, name) for f in folders for name in os.listdir(f) if name not in _NOT_STANDARD]
    triplet = sysconfig.get_config_var("MULTIARCH") or "none"
    readable += [f"/lib/{triplet}", f"/usr/lib/{triplet}", "/lib64", "/usr/lib64", "/etc/ld.so.cache"]
    readable += glob.glob("/usr/lib/*.so*") + glob.glob(os.path.join(sys.base_prefix, "lib", "*.so*"))
    return [*readable, "/usr/share/zoneinfo", "/dev/urandom"]


def package_folders(site: Sequence[str]) -> list[str]:
    """The folders and modules in ``site`` of the imported packages, and their shared libraries (``NAME.libs``)."""
    found = set()
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        folder = next((s for s in site if file and file.startswith(s + os.sep)), None)
        if file is None or folder is None:
            continue
        top = os.path.join(folder, os.path.relpath(file, folder).split(os.sep)[0])
        found |= {top, os.path.join(folder, f"{name.partition('.')[0]}.libs")}
    return sorted(path for path in found if os.path.exists(path))
