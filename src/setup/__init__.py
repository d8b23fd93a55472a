"""From a configuration to the objects that train and evaluate."""

from .composition import register

register()
