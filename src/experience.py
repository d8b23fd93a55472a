"""Troupe's data types: episodes with advantages, and the samples and batches of a learner.

Shape glossary, used in every docstring:

====  =====================================================================
``B``  candidates in a batch
``C``  tokens of the longest completion in a batch
``T``  tokens of a packed batch
``K``  candidates of one node, sampled from one prompt
``V``  vocabulary
====  =====================================================================

Log-probabilities are natural logarithms (nats).  Nothing here knows an engine, a world or a network.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

if TYPE_CHECKING:  # whose import takes seconds: a configuration is checked without it
    import torch
    from torch import Tensor

from pydantic import Field

from .errors import Natural, NotNegative, Positive, check_fields, whole_characters

Split = Literal["train", "validation", "test"]
FinishReason = Literal["stop", "length"]
Topology = Literal["tree", "chain", "joint", "replay", "forest"]
"""The shape of the episodes that a sampler gives; credit rules declare which ones they can judge."""
Weighting = Literal["message", "episode"]
"""How much a message counts in the loss, see :mod:`.routing`; credit rules declare it."""
FaultKind = Literal["world", "sandbox", "engine"]
"""What an episode may be lost to: a world's code or service, the sandbox of its programs, a request to an engine."""
Message = Mapping[str, str]
"""One chat message: ``{"role": ..., "content": ...}``."""
LARGEST_VOCABULARY = 1 << 24
"""Tokens, of a model that is loaded, and of ids that files hold."""


@dataclass(frozen=True)
class Failure:
    """Why an episode is lost."""

    kind: FaultKind
    message: str
    error: Exception | None = field(default=None, compare=False, repr=False)
    """The exception, in the process in which it was raised."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Without the exception, which may not be fit for other processes."""
        return Failure, (self.kind, self.message)


@dataclass(frozen=True)
class Task:
    """One problem instance of a world."""

    task_id: str
    """Stable: it derives from the content."""
    split: Split
    data: Mapping[str, Any]
    """Whatever the world needs to reset to this task."""
    world: str = ""
    """Name of the world, where several are played at once."""
    role: str = ""
    """The team's place in the game, where a world has several, such as a seat: role baselines tell them apart."""


@dataclass(frozen=True)
class Sampling:
    """How an engine draws tokens.  Raises ``ValueError``, naming the key, for a value out of range."""

    temperature: NotNegative = 1.0
    """0 is greedy."""
    top_p: Annotated[float, Field(gt=0, le=1), "in (0, 1]"] = 1.0
    """In (0, 1]; 1 truncates nothing."""
    top_k: Natural = 0
    """0 truncates nothing."""
    max_tokens: Positive = 64
    """Upper bound of a completion's length, end-of-sequence included."""
    stop: tuple[str, ...] = ()
    """Strings that end a completion as soon as its text contains one."""

    def __post_init__(self) -> None:
        check_fields(self, "sampling.")


@dataclass(frozen=True)
class Request:
    """``n`` completions of one prompt by one policy."""

    policy: str
    prompt_ids: tuple[int, ...]
    n: int
    sampling: Sampling
    seed: int
    """Fixes the draws of this request, whatever shares its batch."""
    key: tuple[int | str, ...] = ()
    """Orders requests under lockstep."""
    deadline: float | None = None
    """``time.monotonic()`` seconds after which the request fails; None: never."""
    on_token: Callable[[int, int, float], None] | None = field(default=None, compare=False)
    """Told each token of the first completion as it is drawn: its place, id and log-probability; from place 0 again
    where decoding begins anew.  In any thread.  An engine that does not decode here never calls it."""


@dataclass(frozen=True)
class Completion:
    """What an engine sampled.  Raises ``ValueError`` where tokens do not fit log-probabilities or versions."""

    token_ids: tuple[int, ...]
    """As sampled, never re-tokenised; end-of-sequence included where it was sampled.  Empty for a remote or
    scripted policy, whose completions are text alone."""
    logprobs: tuple[float, ...]
    """One per token: nats under the distribution actually sampled from, after temperature and truncation."""
    text: str
    """Without special tokens, in whole characters."""
    finish_reason: FinishReason
    policy: str
    version: int
    """Of the weights that sampled it; where there were several, of those of its first token, the oldest."""
    versions: tuple[int, ...] = ()
    """One per token, where weights were loaded between two of them; empty: all are of ``version``."""
    scripted: bool = False
    """Whether no model generated it: it is the message of a demonstrator, or of nobody."""
    waited: float | None = field(default=None, compare=False)
    """Seconds in the engine's queue before the prompt was read; None where the engine does not tell."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", whole_characters(self.text))
        if len(self.token_ids) != len(self.logprobs):
            raise ValueError(f"{len(self.token_ids)} tokens but {len(self.logprobs)} log-probs (policy {self.policy})")
        if self.versions and (len(self.versions) != len(self.token_ids) or self.versions[0] != self.version):
            raise ValueError(
                f"{len(self.token_ids)} tokens, the first of version {self.version}, but the versions "
                f"{self.versions} (policy {self.policy})"
            )

    @property
    def text_only(self) -> bool:
        """Whether its tokens are unknown, and its prompt's too, so that no policy can be trained on it."""
        return not self.token_ids


class MessageText(str):
    """The text of a completion as a world is handed it: one that passes messages on to a program tells it how each
    ended, and what it cost.  To all others it is a text.
    """

    is_cut: bool = False
    """Whether the limit of tokens ended it."""
    prompt_tokens: int | None = None
    """None: not known, as of a remote policy's."""
    completion_tokens: int | None = None
    tokens: tuple[tuple[str, float], ...] = ()
    """The text of each token and its log-probability, where the world asks for them."""

    @classmethod
    def of(cls, completion: Completion, prompt_tokens: int, tokens: tuple[tuple[str, float], ...] = ()) -> MessageText:
        text = cls(completion.text)
        text.tokens = tokens
        text.is_cut = completion.finish_reason == "length"
        if not completion.text_only:
            text.prompt_tokens, text.completion_tokens = prompt_tokens, len(completion.token_ids)
        return text


@dataclass
class Candidate:
    """A completion with its rewards.  As a key it stands for itself, not for others that are equal."""

    __hash__ = object.__hash__

    completion: Completion
    local: float
    """The agent's role-specific reward."""
    team: float
    """What ``alpha`` weighs: the team's reward, or the outcome of the message itself (``algorithm.reward.team``)."""
    reward: float
    """The mix ``alpha * team + local + own_outcome + overlong``."""
    continued: bool = False
    """Whether the episode went on from it."""
    advantage: float | None = None
    """Set by the credit rule; None before."""
    info: Mapping[str, float] = field(default_factory=dict)
    """Numbers of the world for the metrics."""
    overlong: float = 0.0
    """The penalty of its length, in [-1, 0]."""
    own_outcome: float = 0.0
    """The outcome of the message itself, where it is paid beside the team's (``algorithm.reward.team=both``)."""
    reference_logprobs: tuple[float, ...] | None = None
    """One per token, nats: of its policy's weights at the run's start; None where no credit rule asks for them."""
    penalties: tuple[float, ...] = ()
    """One per token: what its advantage loses there; set by credit rules that judge tokens.  Empty: nothing."""


@dataclass
class Node:
    """The K candidates sampled from ONE prompt: a (task, agent, turn, parent)."""

    task_id: str
    agent: str
    turn: int
    prompt_ids: tuple[int, ...]
    candidates: list[Candidate]
    parent: int | None = None
    """Index, in the episode's nodes, of the node whose continued candidate led here."""
    state: Hashable | None = None
    """The world's ``state_key`` at the prompt."""
    anchor: Hashable | None = None
    """The agent's ``anchor_key`` at the prompt."""
    path: tuple[int, ...] = ()
    """The joint actions that led here, each by its index among its siblings; empty unless several are continued."""
    cut: bool = False
    """Whether the prompt exceeded the context by what was said, so that parts of its messages were left out."""
    retokenised: bool = False
    """Whether the prompt contains an earlier completion of the agent in other tokens than were sampled."""
    session: str = ""
    """Of the sub-agent that asked, as a path; see :attr:`.envs.base.TeamEnv.session`."""
    removed: float | None = None
    """What the message would have earned, had it been removed; None where that was not played."""
    value: float | None = None
    """A critic's estimate of the return from the prompt on; None before, and for credit rules without one."""
    return_to_go: float | None = None
    """The discounted return from the message on, which a critic learns; set by credit rules with one."""
    seconds: float | None = field(default=None, compare=False)
    """From asking the engine to its answer: waiting and generation of all candidates."""


@dataclass(frozen=True)
class Outcome:
    """How an episode, or one leaf of it, ended."""

    success: bool
    turns: int
    """Turns used."""
    team_return: float
    """Sum of the team rewards of the messages that ended a turn."""
    mixed_return: float | None = None
    """The return that episode-wise credit compares, see :mod:`.rollout.samplers.chain`; None for other samplers."""


@dataclass(frozen=True)
class JointAction:
    """An edge of the episode tree: one candidate per acting agent, and what it led to.

    At most one of ``child`` and ``outcome`` is set; neither where the sampler tried the joint action and went on from
    another.  Raises ``ValueError`` where both are.
    """

    members: Mapping[str, tuple[int, int]]
    """Agent -> (node index, candidate index)."""
    child: int | None = None
    """Index of the first of the next nodes."""
    outcome: Outcome | None = None
    """Where the episode ends with it."""
    reward: float | None = None
    """Of the joint action itself, where the sampler compares joint actions."""
    team: float | None = None
    """The team's part of ``reward``, without local rewards and length penalties."""

    def __post_init__(self) -> None:
        if self.child is not None and self.outcome is not None:
            raise ValueError("a joint action leads either to a child node or to an outcome, not to both")

    @property
    def went_on(self) -> bool:
        """Whether it leads to a child node or to an outcome."""
        return self.child is not None or self.outcome is not None


@dataclass
class Episode:
    """The tree of nodes and joint actions of one task, with an outcome per leaf."""

    task: Task
    nodes: list[Node]
    edges: list[JointAction]
    env_steps: int = 0
    """Steps of the world, those of forks and of continuations included."""
    sample: int = 0
    """Index among the episodes of one task, where a sampler plays several."""
    auxiliary: list[tuple[int, Completion]] = field(default_factory=list)
    """(Number of prompt tokens, completion) of each completion sampled only to judge a candidate: it costs, and is not
    trained on."""
    best_of_k: bool = False
    """Whether the candidate with the highest reward continued at each node: success is then above the policies' own."""
    failure: Failure | None = None
    """Why the episode was lost, where it was: it has no nodes then."""

    @property
    def name(self) -> str:
        """What an error calls it: the task, and which of its episodes."""
        return f"{self.task.task_id}, sample {self.sample}"

    @property
    def outcomes(self) -> list[Outcome]:
        """Of the leaves, in the order of the edges."""
        return [edge.outcome for edge in self.edges if edge.outcome is not None]

    @property
    def branches(self) -> dict[int, list[JointAction]]:
        """The joint actions tried at each node of the tree, by the index of its first agent's node; parents first."""
        branches: dict[int, list[JointAction]] = {}
        for edge in self.edges:
            branches.setdefault(min((node for node, _ in edge.members.values()), default=0), []).append(edge)
        return branches

    @property
    def reach(self) -> list[float]:
        """The probability of each node: at a node, each joint action that went on is equally likely.

        In a full tree of K joint actions per node, a node of turn t has 1 / K^t; where one joint action goes on, every
        node has 1.
        """
        reach, branches = [1.0] * len(self.nodes), self.branches
        for first, edges in branches.items():
            followed = [edge for edge in edges if edge.went_on]
            for edge in followed:
                if edge.child is not None:
                    for node, _ in branches[edge.child][0].members.values():
                        reach[node] = reach[first] / len(followed)
        return reach

    @property
    def leaves(self) -> list[tuple[float, Outcome]]:
        """(Probability, outcome) of each leaf; see :attr:`reach`."""
        leaves, reach = [], self.reach
        for first, edges in self.branches.items():
            followed = [edge for edge in edges if edge.went_on]
            leaves += [(reach[first] / len(followed), edge.outcome) for edge in followed if edge.outcome is not None]
        return leaves

    @property
    def generated(self) -> int:
        """How many completions models generated for it, the auxiliary ones among them; messages of scripted policies
        cost nothing, and are not counted."""
        sampled = [candidate.completion for _, candidate in self.candidates()]
        return sum(not each.scripted for each in [*sampled, *(each for _, each in self.auxiliary)])

    def candidates(self) -> Iterator[tuple[Node, Candidate]]:
        """All candidates, each with its node, in the order of the nodes."""
        for node in self.nodes:
            for candidate in node.candidates:
                yield node, candidate


@dataclass(frozen=True)
class Sample:
    """One candidate as a learner sees it: the router hands it to a pool.  As a key it stands for itself, not for others
    that are equal."""

    __hash__ = object.__hash__

    policy: str
    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    """The completion's."""
    behaviour_logprobs: tuple[float, ...]
    """One per token of the completion, nats."""
    advantage: float
    weight: float
    """Factor in its policy's loss."""
    agent: str = ""
    """Author of the completion."""
    turn: int = 0
    share: float | None = None
    """Its part of an iteration's groups, each of which has the same; the shares of a policy's samples sum to 1.  The
    weights of a mini-batch are divided by the sum of its shares.  None: as ``weight``.
    """
    penalties: tuple[float, ...] = ()
    """One per token: what the advantage loses there; empty: nothing."""
    version: int | None = None
    """Of the policy's weights that sampled it, the oldest where there were several; None: those that learn from it."""
    mixed_versions: bool = False
    """Whether weights of several versions sampled it."""


class Segment(NamedTuple):
    """Tokens ``start`` to ``end`` of a :class:`TokenBatch`, a piece of a sequence; the tokens up to ``stop`` continue
    it.  Token q sees token k of the segment if ``k <= q < stop``.
    """

    start: int
    end: int
    stop: int
    scored: bool
    """Whether its tokens predict targets."""


@dataclass  # not frozen: Fabric converts the fields under some precisions
class TokenBatch:
    """Candidates of one policy, packed one after another; what they share is there once.

    See :mod:`.models.learning.packing` for the layout.
    """

    input_ids: Tensor
    """(T,) int64, the packed tokens."""
    positions: Tensor
    """(T,) int64, of each token in its own sequence of prompt and completion, from 0."""
    segments: list[Segment]
    """The runs of tokens that the whole batch consists of, in order."""
    sources: Tensor
    """(B, C) int64, index of the token whose logits predict each target."""
    targets: Tensor
    """(B, C) int64, the completions' tokens; right-padded."""
    mask: Tensor
    """(B, C) bool, False on padding."""
    places_filled: Tensor
    """(n,) int64, where ``mask`` is True, counted along its rows."""
    behaviour_logprobs: Tensor
    """(B, C) float32, nats; 0 where ``mask`` is False."""
    advantages: Tensor
    """(B, C) float32, of each token; that of the whole completion where nothing is taken off."""
    weights: Tensor
    """(B,) float32, each candidate's factor in the policy's loss."""
    places: list[tuple[str, int]]
    """(Agent, turn) of each candidate; length B."""

    def filled(self, table: Tensor) -> Tensor:
        """(n,) the values of ``table`` (B, C) without padding.  An index by ``mask`` would wait for a GPU."""
        return table.flatten()[self.places_filled]

    def to(self, device: torch.device) -> TokenBatch:
        """The batch with all tensors on ``device``."""
        tensors = {name: value for name, value in vars(self).items() if not isinstance(value, list)}
        moved = {name: value.to(device, non_blocking=True) for name, value in tensors.items()}
        return replace(self, **moved)
