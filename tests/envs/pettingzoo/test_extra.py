"""Without the extra."""

import sys

import pytest

from troupe import envs
from troupe.errors import ConfigError
from troupe.setup.instantiation import instantiated


def test_the_absent_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("troupe.envs.pettingzoo")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(envs, "pettingzoo", raising=False)
    monkeypatch.setitem(sys.modules, "pettingzoo", None)  # how Python marks a module that cannot be imported
    with pytest.raises(ConfigError, match=r"env\._target_=.* cannot be imported: .*needs the extra \[pettingzoo\]"):
        instantiated("env", {"_target_": "troupe.envs.pettingzoo.world.PettingZooWorld"})
