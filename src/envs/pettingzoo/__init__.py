"""Worlds for PettingZoo, and PettingZoo's text games as worlds.  Needs the extra ``[pettingzoo]``."""

try:
    import pettingzoo as _pettingzoo  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "troupe.envs.pettingzoo needs the extra [pettingzoo]: "
        ".venv/bin/pip install -c constraints.txt -e '.[pettingzoo]'",
        name=error.name,
    ) from error
