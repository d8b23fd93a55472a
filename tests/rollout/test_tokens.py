"""Earlier completions in later prompts: token by token as sampled, or counted; and tokens as texts, in a completion and
while it is written."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from troupe.experience import Completion, Message, Sampling
from troupe.models.bases.loading import load_model, load_tokenizer
from troupe.rollout.engines.torch.engine import TorchEngine
from troupe.rollout.policy_client import PolicyClient
from troupe.rollout.tokens import ExactPrompt, TextTokens, _in_order, exact_prompt, spelled, telling

from ..chat_templates import QWEN3


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    """Qwen3's template, and bytes with one merge: "ab" is one token, or two that were sampled one after the other."""
    alphabet = {sign: index for index, sign in enumerate([*sorted(pre_tokenizers.ByteLevel.alphabet()), "ab"])}
    tokenizer = Tokenizer(models.BPE(alphabet, [("a", "b")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    made = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        additional_special_tokens=["<|im_start|>"],
        chat_template=QWEN3,
        clean_up_tokenization_spaces=False,
    )
    made.add_tokens([AddedToken(f"<{end}think>", special=False, normalized=False) for end in ("", "/")])
    return made


def ids(tokenizer: PreTrainedTokenizerFast, *texts: str) -> tuple[int, ...]:
    """Each of ``texts`` tokenised by itself."""
    return tuple(token for text in texts for token in tokenizer.encode(text, add_special_tokens=False))


def sampled(tokenizer: PreTrainedTokenizerFast, *pieces: str, end: bool = True) -> Completion:
    tokens = ids(tokenizer, *pieces, *(["<|im_end|>"] if end else []))
    text = tokenizer.decode(list(ids(tokenizer, *pieces)), skip_special_tokens=True)
    return Completion(tokens, (0.0,) * len(tokens), text, "stop" if end else "length", "p", 0)


def render(tokenizer: PreTrainedTokenizerFast, messages: Sequence[Message]) -> str:
    return str(tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False))


def exact(tokenizer: PreTrainedTokenizerFast, messages: Sequence[Message], *said: Completion) -> ExactPrompt:
    return exact_prompt(TextTokens(tokenizer), lambda each: render(tokenizer, each), messages, said, lambda text: text)


def chat(*contents: str) -> list[Message]:
    """The user and the assistant in turn."""
    return [{"role": "assistant" if i % 2 else "user", "content": text} for i, text in enumerate(contents)]


@pytest.mark.parametrize("end", [True, False])
def test_the_tokens_are_those_that_were_sampled(tokenizer: PreTrainedTokenizerFast, end: bool) -> None:
    first, messages = sampled(tokenizer, "a", "b", "c", end=end), chat("Say.", "abc", "Again.")
    begin = tokenizer.encode(render(tokenizer, chat("Say.")), add_special_tokens=False)
    plain = tokenizer.encode(render(tokenizer, messages), add_special_tokens=False)
    found = exact(tokenizer, messages, first)
    assert found.ids is not None and not found.missed
    assert found.ids[: len(begin) + len(first.token_ids)] == (*begin, *first.token_ids)
    assert tokenizer.decode(list(found.ids)) == tokenizer.decode(plain) and found.ids != tuple(plain)
    second = sampled(tokenizer, "a", "b")
    longer = exact(tokenizer, [*messages, *chat("", "ab", "And?")[1:]], first, second)
    assert longer.ids is not None and not longer.missed
    assert longer.ids[: len(found.ids) + 3] == (*found.ids, *second.token_ids)


def test_equal_texts_are_matched_in_their_order(tokenizer: PreTrainedTokenizerFast) -> None:
    one, other = sampled(tokenizer, "a", "b"), sampled(tokenizer, "ab")
    messages = chat("Say.", "ab", "Again.", "ab", "And?")
    found, turned = exact(tokenizer, messages, one, other).ids, exact(tokenizer, messages, other, one).ids
    assert found is not None and turned is not None and found != turned and len(found) == len(turned)
    windowed = exact(tokenizer, chat("Say.", "ab", "And?"), sampled(tokenizer, "no"), one)  # the first is left out
    assert windowed.ids is not None and not windowed.missed


def test_of_equal_texts_the_latest_is_taken(tokenizer: PreTrainedTokenizerFast) -> None:
    """A memory of the last turn has the second "ab", whose tokens are others than the first's."""
    one, other = sampled(tokenizer, "a", "b"), sampled(tokenizer, "ab")
    messages = chat("On.", "ab", "And?")
    begin = len(tokenizer.encode(render(tokenizer, chat("On.")), add_special_tokens=False))
    for said in ([one, other], [other, one], [sampled(tokenizer, "ab"), sampled(tokenizer, "c"), one]):
        found = exact(tokenizer, messages, *said)
        assert found.ids is not None and not found.missed
        last = said[-1].token_ids
        assert found.ids[begin : begin + len(last)] == last


def test_each_completion_is_one_message(tokenizer: PreTrainedTokenizerFast) -> None:
    """An example, or a message that the program repeats, takes the place of none: all that can be matched are."""
    one, other = sampled(tokenizer, "c"), sampled(tokenizer, "a", "b")
    plain = (*ids(tokenizer, "ab"), tokenizer.eos_token_id)
    for messages, texts in (
        (chat("", "ab", "Say.", "c", "Again.", "ab", "And?"), [plain, one.token_ids, other.token_ids]),
        (chat("Say.", "c", "Again.", "ab", "And?", "c", "And?"), [one.token_ids, other.token_ids, one.token_ids]),
    ):
        found = exact(tokenizer, messages, one, other)
        assert found.ids is not None and not found.missed
        rest, answers = render(tokenizer, messages), []
        for message in messages[1::2]:
            before, _, rest = rest.partition(message["content"])
            answers.append(tokenizer.encode(before, add_special_tokens=False))
        expected: list[int] = []
        for before, tokens in zip(answers, texts, strict=True):
            expected += [*before, *tokens[:-1]]
        assert found.ids == (*expected, *tokenizer.encode(rest, add_special_tokens=False))


def test_what_cannot_be_matched_is_counted(tokenizer: PreTrainedTokenizerFast) -> None:
    messages = chat("Say.", "ab", "Again.")
    assert exact(tokenizer, messages, sampled(tokenizer, " ", "ab")) == ExactPrompt(None, True)  # stripped by somebody
    assert exact(tokenizer, messages, sampled(tokenizer, "a", "<|im_start|>", "b")) == ExactPrompt(None, True)
    stopped = Completion(ids(tokenizer, "ab", "c"), (0.0, 0.0), "ab", "stop", "p", 0)  # by a string
    assert exact(tokenizer, messages, stopped) == ExactPrompt(None, True)
    thought = "<think>\na\n</think>\n\nb"  # Qwen3's template leaves earlier thoughts out
    assert exact(tokenizer, chat("Say.", thought, "Again."), sampled(tokenizer, thought)) == ExactPrompt(None, True)


def test_messages_in_another_order_are_counted(tokenizer: PreTrainedTokenizerFast) -> None:
    one, other = sampled(tokenizer, "a", "b"), sampled(tokenizer, "c")
    assert exact(tokenizer, chat("Say.", "c", "Again.", "ab", "And?"), one, other).missed
    assert not exact(tokenizer, chat("Say.", "c", "Again.", "no", "And?"), one, other).missed


@pytest.mark.parametrize("scheme", ["first", "always"])
def test_sentencepiece_writes_no_blanks_of_its_own(scheme: str) -> None:
    """Each text that it encodes alone begins with a blank, which it leaves out where it decodes a text."""
    signs = {sign: index for index, sign in enumerate(["<unk>", "</s>", *"\u2581\nabqru:"])}
    made = Tokenizer(models.BPE(signs, [], unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False)
    made.decoder = decoders.Metaspace(prepend_scheme=scheme)
    template = "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}\n{% endfor %}a:"
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=made, unk_token="<unk>", eos_token="</s>", chat_template=template
    )
    for tokens in (["\u2581", "a", "b"], ["a", "b"]):
        token_ids = tuple(tokenizer.convert_tokens_to_ids(tokens))
        assert tokenizer.decode(list(token_ids)) == "ab"
        said = Completion(token_ids, (0.0,) * len(tokens), "ab", "length", "p", 0)
        assert exact(tokenizer, chat("q", "ab", "r"), said) == ExactPrompt(None, True)


def test_messages_of_others_are_no_completions(tokenizer: PreTrainedTokenizerFast) -> None:
    said = sampled(tokenizer, "a", "b")
    assert exact(tokenizer, chat("ab", "an example", "Now."), said) == ExactPrompt(None, False)
    assert exact(tokenizer, chat("ab"), said) == ExactPrompt(None, False)


def test_words_that_were_given_stand_before_the_tokens_that_were_sampled(tokenizer: PreTrainedTokenizerFast) -> None:
    """The prompt ended with "xa": the rest of the message is in the next prompt as it was sampled."""
    first = sampled(tokenizer, "a", "b")
    messages = chat("Say.", "xaab", "Again.")
    message = replace(first, text="xa" + first.text)
    found = exact_prompt(TextTokens(tokenizer), lambda each: render(tokenizer, each), messages, [message], str, "xa")
    begin = tokenizer.encode(render(tokenizer, chat("Say.")) + "xa", add_special_tokens=False)
    assert found.ids is not None and not found.missed
    assert found.ids[: len(begin) + len(first.token_ids)] == (*begin, *first.token_ids)
    assert exact(tokenizer, messages, message) == ExactPrompt(None, True), "they are not its tokens"


def test_of_a_chat_that_grows_the_new_is_tokenised(
    tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Per call as much at the end of 100 calls as at their begin, and the same tokens."""
    tokens_of, read, encode = TextTokens(tokenizer), 0, tokenizer.encode

    def counted(text: str, **keys: bool) -> list[int]:
        nonlocal read
        read += len(text)
        return encode(text, **keys)

    contents, said, costs = ["Say."], list[Completion](), list[int]()
    for i in range(100):
        messages, before = chat(*contents), read
        whole = render(tokenizer, messages)
        with monkeypatch.context() as patch:
            patch.setattr(tokenizer, "encode", counted)
            plain = tokens_of(whole)
            found = exact_prompt(tokens_of, lambda each: render(tokenizer, each), messages, said, str)
        assert plain == ids(tokenizer, whole)
        assert not found.missed and (found.ids is None) == (not said)
        costs.append(read - before)
        said.append(sampled(tokenizer, "a", "b", f" {i:02}"))
        contents += [said[-1].text, f"Again {i:02}."]
    assert 0 < max(costs[2:]) <= costs[2]


def test_equal_ends_are_pairs_and_of_equals_the_latest_is_taken() -> None:
    assert _in_order(["a", "b"], ["a", "a", "b"]) == {0: 1, 1: 2}
    assert _in_order(["x", "a", "b"], ["a", "b"]) == {1: 0, 2: 1}
    assert _in_order(["a", "x", "b"], ["a", "a", "y", "b"]) == {0: 1, 2: 3}
    assert _in_order(["a"], []) == {} == _in_order([], ["a"])


Heard = list[tuple[int, str, float]]


@pytest.fixture(scope="module")
def bytewise() -> Tokenizer:
    """A token per byte."""
    made = Tokenizer(models.BPE({sign: i for i, sign in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return made


def test_a_character_of_several_tokens_is_in_the_last(bytewise: Tokenizer) -> None:
    ids = tuple(bytewise.encode("a é😀").ids)
    completion = Completion(ids, tuple(-float(i) for i in range(len(ids))), "a é😀", "length", "p", 0)
    texts, logprobs = zip(*spelled(bytewise, completion, ""), strict=True)
    assert texts == ("a", " ", "", "é", "", "", "", "😀") and logprobs == completion.logprobs
    assert spelled(bytewise, completion, "So: ")[0][0] == "So: a"


async def test_what_begins_anew_is_told_anew(bytewise: Tokenizer) -> None:
    heard: Heard = []
    on_token = telling(bytewise, lambda *token: heard.append(token), "So: ")
    for word in ("éa", "bc"):
        for place, token in enumerate(bytewise.encode(word).ids):
            await asyncio.to_thread(on_token, place, token, -0.5)
    await asyncio.sleep(0)
    texts = [(place, text) for place, text, _ in heard]
    assert texts == [(0, "So: "), (1, "é"), (2, "a"), (0, "So: b"), (1, "c")]


async def test_an_engine_tells_each_token_before_the_completion() -> None:
    tokenizer = load_tokenizer("laptop_signalling")
    engine = TorchEngine({"p": load_model("laptop_signalling").eval()}, tokenizer, lockstep=False)
    client = PolicyClient("p", engine, tokenizer, 512, Sampling(max_tokens=10))
    prompt = tuple(tokenizer.encode("colours red blue before none guess none"))
    tellings: list[Heard] = [[] for _ in range(3)]
    generated = (client.generate(prompt, 1, i, (i,), lambda *t, i=i: tellings[i].append(t)) for i in range(3))  # type: ignore[misc]
    for heard, (completion,) in zip(tellings, await asyncio.gather(*generated), strict=True):
        assert [place for place, _, _ in heard] == list(range(len(completion.token_ids)))
        assert "".join(text for _, text, _ in heard) == completion.text
        assert tuple(logprob for _, _, logprob in heard) == completion.logprobs
        assert client.told(completion, 7, True).tokens == tuple((text, logprob) for _, text, logprob in heard)
    await engine.close()
