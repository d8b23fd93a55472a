"""The world of facts as an environment of verifiers."""

from troupe.envs.search import FactSearch
from troupe.envs.verifiers.environment import environment_of

FactsTaskset, FactsEnv = environment_of(FactSearch())
__all__ = ["FactsEnv", "FactsTaskset"]
