"""Environments of verifiers (its version 1 interface) as worlds, and worlds as theirs.  Needs the extra
``[verifiers]``.
"""

try:
    import verifiers.v1.harnesses as _harnesses
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "troupe.envs.verifiers needs the extra [verifiers], in an environment of its own: see docs/worlds/verifiers.md",
        name=error.name,
    ) from error
from pathlib import Path

# Where verifiers looks for a harness by its name: so it finds ours, `troupe_chat`, in every process that has a world.
_HERE = str(Path(__file__).parent / "harnesses")
if _HERE not in _harnesses.__path__:
    _harnesses.__path__.append(_HERE)
