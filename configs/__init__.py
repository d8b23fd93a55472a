"""What Hydra composes; reading it makes Hydra know the teams of :mod:`troupe.setup.composition`."""

from .. import setup as setup
