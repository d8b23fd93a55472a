"""Workflows: programs of any framework whose calls of a language model are a team's messages."""

from .client import AgentClient, ClientForAgent, WorkflowResult
from .world import WorkflowWorld

__all__ = ["AgentClient", "ClientForAgent", "WorkflowResult", "WorkflowWorld"]
