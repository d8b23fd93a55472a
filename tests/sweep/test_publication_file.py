"""The yamls of tables: all of them are whole, and a mistake is named."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from troupe.errors import ConfigError
from troupe.sweep.publication_file import SILENT, TableFile, table_names

ROOT = Path(__file__).parents[2]
TABLES = "main ablation role_swap grouping outcome_only team_size turns multi_turn_single latency competitors magrpo"
TABLE: dict[str, Any] = {
    "title": "T",
    "question": "?",
    "publication": "none",
    "settings": {"a": ["regime=shared"], "b": ["policies.<second>.tuning=frozen"]},
    "teams": {"mixed": {"setting": "a", "agents": {"<first>": "b"}}},
    "sections": {"a": SILENT, "b": SILENT, "mixed": SILENT},
    "scales": {"laptop": {"seeds": 2, "overrides": ["loop.completions=10"]}, "paper": {"seeds": 1}},
    "parts": {
        "one": {
            "experiment": "sokoban_shared",
            "scales": ["laptop", "paper"],
            "without": {"paper": {"b": "too large"}},
        },
        "two": {"experiment": "couplet_shared", "scales": ["laptop"], "agents": ["first", "second"]},
    },
    "rows": {"row": {"setting": "a", "paper": {"one": {"1.7B": 96}}}, "none": {"not_tested": "it is not there"}},
    "claims": [{"claim": "a beats b", "setting": "a", "over": "b", "at_least": 0.1}],
}


def test_there_is_a_table_of_each_question() -> None:
    assert set(table_names()) == {*TABLES.split(), "feedback", "frozen_partner", "writing"}


@pytest.mark.parametrize("name", table_names())
def test_a_table_cites_the_paper_for_every_setting_and_has_a_claim_with_thresholds(name: str) -> None:
    table = TableFile.read(name)
    assert {*table.settings, *table.teams} == table.sections.keys() and all(table.sections.values())
    assert {"laptop", "paper"} <= table.scales.keys() and table.claims
    # Every claim is tested, not only compared.
    assert all(claim.not_tested or claim.low_above is not None for claim in table.claims)
    shown = {row.setting for row in table.rows.values()}
    teams = {setting for team in table.teams.values() for setting in (team.setting, *team.agents.values())}
    assert shown | teams >= table.settings.keys()
    published = {part for row in table.rows.values() for part in row.paper}
    assert published <= table.parts.keys()


@pytest.mark.parametrize("name", table_names())
def test_a_section_is_named_by_its_subject(name: str) -> None:
    """The transcriptions of the papers do not number them."""
    table = TableFile.read(name)
    cited = [*table.sections.values(), *(row.section for row in table.rows.values())]
    assert not [text for text in cited if re.search(r"section \d", text, re.IGNORECASE)]


def test_a_figure_of_writing_is_that_of_the_publication_that_its_row_cites() -> None:
    table, follow_up = TableFile.read("writing"), "arXiv 2601.21972"
    figures: dict[bool, set[str]] = {True: set(), False: set()}
    for label, row in table.rows.items():
        section = row.section or table.sections[row.setting]
        for name, value in (pair for part in row.paper.values() for pair in part.items()):
            assert not name.startswith("follow-up") or follow_up in section, label
            assert name.startswith("follow-up") or "experiments" in section, label
            figures[name.startswith("follow-up")].add(str(value))
    assert figures[False] == {"94.5", "93.1", "44.9"}
    for claim in table.claims:  # figures that are compared are of one publication
        assert figures[claim.paper.startswith("follow-up")] >= {*re.findall(r"\d+\.\d", claim.paper)}


def test_a_sweep_gives_settings_question_and_claims() -> None:
    table = TableFile.read("grouping")
    sweep = yaml.safe_load(ROOT.joinpath("configs/sweep/grouping.yaml").read_text())
    assert table.settings == sweep["settings"] and table.question == sweep["question"]
    assert [claim.claim for claim in table.claims] == [claim["claim"] for claim in sweep["verdicts"]]
    assert table.papers and {claim.claim: claim.paper for claim in table.claims} == table.papers
    part = table.parts["sokoban_hard"]
    # The part's experiment comes after the sweep's, so that it replaces it; the sweep's budget stays.
    assert table.overrides_at("laptop", part)[-1] == "experiment=sokoban_hard_specialized"
    assert "loop.completions=12000" in table.overrides_at("laptop", part)


def test_parts_and_their_reasons() -> None:
    table = TableFile.of("t", TABLE)
    one, two = table.parts["one"], table.parts["two"]
    assert table.parts_at("laptop").keys() == {"one", "two"} and table.parts_at("paper").keys() == {"one"}
    assert table.settings_at("laptop", two)["b"] == ["policies.second.tuning=frozen"]
    assert table.settings_at("laptop", one)["b"] == ["policies.plan.tuning=frozen"]
    assert table.settings_at("paper", one).keys() == {"a"} and not table.teams_at("paper", one)
    assert table.reason_without("paper", one, "mixed") == "too large"
    assert table.reason_without("laptop", one, "mixed") == ""
    with pytest.raises(ConfigError, match="table=t has no scale=smollm2; it has laptop, paper"):
        table.parts_at("smollm2")
    parts = {"one": TABLE["parts"]["one"] | {"without": {"laptop": {"mixed": "no such messages"}}}}
    table = TableFile.of("t", TABLE | {"parts": parts})
    assert table.settings_at("laptop", table.parts["one"]).keys() == {"a", "b"}
    assert not table.teams_at("laptop", table.parts["one"])
    assert table.reason_without("laptop", table.parts["one"], "mixed") == "no such messages"


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"sections": {"a": SILENT}}, "sections lacks b, mixed: the paper's section, or 'the paper is silent'"),
        ({"sections": TABLE["sections"] | {"c": SILENT}}, "sections: setting: 'c' is unknown"),
        ({"rows": {"row": {"setting": "c"}}}, "rows.row: setting: 'c' is unknown"),
        (
            {"rows": {"row": {"setting": "a", "most": {"papr": 4}}}},
            r"rows.row.most.papr: it must be .laptop., .smollm2. or .paper.",
        ),
        (
            {"parts": TABLE["parts"] | {"../../x": TABLE["parts"]["one"]}},
            "parts: '../../x' cannot be the name of a folder",
        ),
        ({"parts": {"one": {"scales": ["laptop"]}}}, "parts.one.experiment is missing"),
        ({"rows": {"row": {}}}, "rows.row: a row has a setting, or says why"),
        ({"claims": [TABLE["claims"][0] | {"over": "c"}]}, "claim 'a beats b': setting: 'c' is unknown"),
        ({"claims": [TABLE["claims"][0], TABLE["claims"][0]]}, "claim 'a beats b' is there twice"),
        ({"claims": [{"claim": "c", "setting": "a", "over": "b"}]}, r"claims\[0\] has no threshold: at_least"),
        ({"claims": [{"claims": "?"}]}, r"claims\[0\].claims is an unknown key; did you mean claim"),
        ({"teams": {"mixed": {"setting": "c", "keys": ["swap=true"]}}}, "teams.mixed: setting: 'c' is unknown"),
        ({"teams": {"mixed": {"setting": "a"}}}, "teams.mixed: a team needs agents or keys"),
        (
            {"teams": {"mixed": {"setting": "a", "keys": ["x=1"], "seeds": "some"}}},
            "teams.mixed.seeds: it must be 'same', 'others' or 'all'",
        ),
        ({"scales": {"laptp": {"seeds": 1}}}, r"scales.laptp: it must be .laptop., .smollm2. or .paper."),
        ({"scales": {"laptop": {"seeds": 0}}}, "scales.laptop: seeds must be a whole number of at least 1"),
        ({"scales": {"paper": {"seeds": 1}}}, "parts.one: scale: 'laptop' is unknown"),
        ({"parts": {"one": TABLE["parts"]["one"] | {"without": {"paper": {"c": "?"}}}}}, "setting: 'c' is unknown"),
        ({"sweep": "groupng"}, "sweep=groupng: there is no such sweep"),
        ({"sweep": "grouping", "papers": {"a beats b": "1"}}, "papers: claim: 'a beats b' is unknown"),
        ({"settngs": {}}, r"settngs is an unknown key; did you mean settings\?"),
        ({"name": "x"}, "name is an unknown key"),
        ({"rows": {}}, "settings, parts and rows must name at least one"),
        (
            {"rows": {"a": {"setting": "a", "paper": {"on": {"x": 1}}}}},
            r"rows.a.paper: part: 'on' is unknown; .* one\?",
        ),
        ({"claims": [TABLE["claims"][0] | {"parts": ["onee"]}]}, "claim 'a beats b': part: 'onee' is unknown"),
        ({"figure": "rewardz"}, "figure: it must be 'rows' or 'rewards', got 'rewardz'"),
        ({"teams": {"mixed": {"setting": "a", "agents": {"first": "b"}}}}, "teams.mixed: agents: 'first' is unknown"),
        *(
            ({"parts": TABLE["parts"] | {"two": TABLE["parts"]["two"] | changes}}, f"parts.two.{{0,2}}{named}")
            for changes, named in (
                ({"agents": ["first"]}, r"agents must be the names of two agents, got \['first'\]"),
                ({"agents": ["first", "first"]}, "agents must be the names of two agents"),
                ({"without": {"laptp": {"b": "?"}}}, r"without.laptp: it must be"),
                ({"without": {"paper": {"b": "?"}}}, "without: scale: 'paper' is unknown"),
                ({"overrides": {"laptp": ["x=1"]}}, r"overrides.laptp: it must be"),
            )
        ),
        ({"parts": {}}, "settings, parts and rows must name at least one"),
        ({"parts": None}, "parts: it must be an object, got None"),
        ({"teams": [1]}, "teams: it must be an object"),
        ({"scales": {"laptop": 4}}, "scales.laptop: it must be an object"),
        ({"settings": {"a": "x=1"}}, r"settings.a: it must be a valid array, got 'x=1'"),
        ({"rows": {"a": {"setting": "a", "paper": {"here": 96}}}}, "rows.a.paper.here: it must be an object"),
        (
            {"claims": [{"claim": "c", "setting": "a", "at_least": "x"}]},
            r"claims\[0\].at_least: it must be a valid number",
        ),
    ],
)
def test_a_mistake_is_named(changes: dict[str, Any], named: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump(TABLE | changes))
    with pytest.raises(ConfigError, match=rf"table={file}: .*{named}"):
        TableFile.read(str(file))


def test_files_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(TABLE))
    assert TableFile.read(str(tmp_path / "mine.yaml")).name == "mine"
    # One of Troupe's under its path is that one; another with its name would take its place.
    own, text = tmp_path / "turns.yaml", ROOT.joinpath("configs/reproduce/turns.yaml").read_text()
    own.write_text(text)
    assert TableFile.read(str(own)) == TableFile.read("turns")
    own.write_text(text.replace("title: Turns", "title: My turns"))
    with pytest.raises(ConfigError, match=r"turns.yaml: Troupe has a table turns, .* give the file another name"):
        TableFile.read(str(own))
    with pytest.raises(ConfigError, match=r"table=other.yaml: there is no such file"):
        TableFile.read("other.yaml")
    for key, said in (("title", "title is missing"), ("sections", "sections is missing")):
        (tmp_path / "without.yaml").write_text(yaml.safe_dump({one: TABLE[one] for one in TABLE if one != key}))
        with pytest.raises(ConfigError, match=rf"without.yaml: {said}"):
            TableFile.read(str(tmp_path / "without.yaml"))
    (tmp_path / "list.yaml").write_text("[1]")
    with pytest.raises(ConfigError, match="the file must hold keys"):
        TableFile.read(str(tmp_path / "list.yaml"))
