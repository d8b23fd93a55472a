"""What vLLM answers becomes completions, or is refused; no engine is needed for it."""

from types import SimpleNamespace
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from troupe.experience import Request, Sampling
from troupe.rollout.engines.vllm.replies import Replies, ReplyMismatchError

PROMPT = (4, 5, 6)


@pytest.fixture
def replies(digits: PreTrainedTokenizerFast, build: Any) -> Replies:
    model: Qwen3ForCausalLM = build()
    return Replies(model, digits)


class Flat(SimpleNamespace):
    """As vLLM's FlatLogprobs, with one token a position."""

    def __init__(self, tokens: list[int]) -> None:
        super().__init__(token_ids=tokens, logprobs=[-0.5] * len(tokens))

    def __len__(self) -> int:
        return len(self.token_ids)


def answer(tokens: list[int], index: int = 0, **changes: Any) -> SimpleNamespace:
    fields = {"index": index, "token_ids": tokens, "logprobs": Flat(tokens), "finish_reason": "length"}
    return SimpleNamespace(**fields | {"stop_reason": None, "text": ""} | changes)


def output(*answers: SimpleNamespace, prompt: tuple[int, ...] = PROMPT) -> SimpleNamespace:
    return SimpleNamespace(prompt_token_ids=list(prompt), outputs=list(answers))


def request(n: int = 1, **sampling: Any) -> Request:
    return Request("plan", PROMPT, n, Sampling(**sampling), seed=1, key=("task", 3))


def test_completions_come_in_order_with_tokens_and_logprobs_as_sampled(replies: Replies) -> None:
    completions = replies.completions(request(2), output(answer([7, 8], 1), answer([9], 0)), version=5)
    assert [(c.token_ids, c.logprobs, c.version, c.policy) for c in completions] == [
        ((9,), (-0.5,), 5, "plan"),
        ((7, 8), (-0.5, -0.5), 5, "plan"),
    ]


def test_the_end_of_sequence_is_a_token_but_no_text(replies: Replies, digits: PreTrainedTokenizerFast) -> None:
    eos = digits.eos_token_id
    [completion] = replies.completions(
        request(), output(answer([7, 8, eos], finish_reason="stop", stop_reason=eos)), version=0
    )
    assert completion.token_ids == (7, 8, eos) and completion.finish_reason == "stop"
    assert completion.text == digits.decode([7, 8])


def test_a_greedy_completion_has_logprobs_0(replies: Replies) -> None:
    [completion] = replies.completions(request(temperature=0.0), output(answer([7, 8])), version=0)
    assert completion.logprobs == (0.0, 0.0)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (output(answer([7]), prompt=(4, 5)), "the prompt came back with other tokens"),
        (output(answer([7]), answer([8], 1)), "2 completions came back"),
        (output(answer([7], finish_reason="abort")), "ended with 'abort'"),
        (output(answer([7, 8], logprobs=Flat([7]))), "2 tokens came with 1 log-prob"),
        (output(answer([7], logprobs=Flat([8]))), "of other tokens than those sampled"),
        (output(answer([])), "0 tokens"),
        (output(answer([7, 1 << 20])), "a token is outside of the vocabulary of"),
        (output(answer([-1, 7])), "a token is outside of the vocabulary of"),
    ],
    ids=["prompt", "count", "aborted", "lengths", "tokens", "empty", "beyond", "negative"],
)
def test_what_was_not_sampled_for_this_request_is_refused_and_counted(
    replies: Replies, wrong: SimpleNamespace, why: str
) -> None:
    for count in (1, 2):
        with pytest.raises(ReplyMismatchError, match=rf"policy 'plan', request \('task', 3\): .*{why}.*\({count} so"):
            replies.completions(request(), wrong, version=0)
        assert replies.refused == count


def test_only_seeded_requests_are_sampled_row_by_row(digits: PreTrainedTokenizerFast, build: Any) -> None:
    pytest.importorskip("vllm")
    seeds = [Replies(build(), digits, seeded=seeded).parameters(request()).seed for seeded in (True, False)]
    assert seeds == [1, None]
