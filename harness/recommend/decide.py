"""`recommend`: from a summary to a decision, by walking the tree that is written below.

The tree is the whole argument: each node is a named test with every answer that it can give,
each leaf an end. What a test found is in the path of the decision. Method sheet, section 7.2.
"""

from datetime import date

from harness.analysis.model import Summary
from harness.config import SloConf
from harness.errors import ConfigError
from harness.recommend import choice, conclude, scope
from harness.recommend import slo as slo_test
from harness.recommend.case import Asked, Case
from harness.recommend.evidence import cited_doubts, evidence_rows
from harness.recommend.flips import flips
from harness.recommend.model import Decision, Status, Step
from harness.recommend.objectives import OBJECTIVES
from harness.recommend.rules import judge_rules
from harness.recommend.tree import Leaf, Node, walk


def _leaf(name: str) -> Leaf[Case]:
    return Leaf(name=name, conclude=getattr(conclude, name))


SIGNIFICANCE: Node[Case] = Node(
    test="significance",
    question="Is one of them best beyond luck?",
    ask=choice.significance,
    branches={"one": _leaf("chosen"), "tie": _leaf("tied"), "open": _leaf("undecided")},
)
BLOCKS: Node[Case] = Node(
    test="blocks",
    question="Do they share enough blocks to be compared?",
    ask=choice.enough_blocks,
    branches={"yes": SIGNIFICANCE, "no": _leaf("too_few_blocks")},
)
COMPARABLE: Node[Case] = Node(
    test="comparable",
    question="May they be ranked against each other?",
    ask=choice.comparable,
    branches={"yes": BLOCKS, "no": _leaf("not_comparable")},
)
CONTENDERS: Node[Case] = Node(
    test="contenders",
    question="How many are left to compare?",
    ask=choice.contenders,
    branches={"one": _leaf("the_only_one"), "several": COMPARABLE},
)
OBJECTIVE: Node[Case] = Node(
    test="objective",
    question="What is wanted, and do all carry its figure?",
    ask=choice.objective,
    branches={**dict.fromkeys(OBJECTIVES, CONTENDERS), "missing": _leaf("no_metric")},
)
SLO: Node[Case] = Node(
    test="slo_met",
    question="Who meets the SLO, even by the lower bound?",
    ask=slo_test.slo_met,
    branches={
        "met": OBJECTIVE,
        "unknown": _leaf("too_few_requests"),
        "missed": _leaf("nothing_fits"),
    },
)
ONE_QUESTION: Node[Case] = Node(
    test="one_question",
    question="Is it one scenario, length class, model and machine?",
    ask=scope.one_question,
    branches={"yes": SLO, "several": _leaf("several_questions"), "none": _leaf("not_measured")},
)
TREE: Node[Case] = Node(
    test="measured",
    question="Is there a valid measurement on real engines?",
    ask=scope.measured,
    branches={"yes": ONE_QUESTION, "no": _leaf("no_evidence")},
)


def recommend(
    summary: Summary,
    *,
    slo: SloConf,
    scenario: str | None = None,
    objective: str | None = None,
    model: str | None = None,
    hardware: str | None = None,
    input_tokens: int | None = None,
    output_tokens: int | None = None,
    users: int | None = None,
    rate_rps: float | None = None,
    today: date | None = None,
) -> Decision:
    """Answer which candidate to run, or say why the evidence carries no answer.

    `summary` must have been made with the same `slo`, since good requests are counted there.
    `objective`: cost, throughput or latency; None takes cost if every contender has a price,
    else throughput. Lengths: the most tokens a request of the workload. `users`, `rate_rps`: the
    least load that must be carried. `today`: to tell old evidence; None leaves age unjudged.

    Raises:
        ConfigError: for an objective that is not known.
    """
    if objective is not None and objective not in OBJECTIVES:
        raise ConfigError(f"objective={objective}: not known; choose one of {sorted(OBJECTIVES)}")
    asked = Asked(
        slo=slo,
        scenario=scenario,
        objective=objective,
        model=model,
        hardware=hardware,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        users=users,
        rate_rps=rate_rps,
        today=today,
    )
    case = Case(summary=summary, asked=asked, cells=list(summary.cells))
    leaf, path = walk(TREE, case)
    case.last_facts = path[-1].facts
    leaf.conclude(case)
    return _decision(case, path)


def _decision(case: Case, path: tuple[Step, ...]) -> Decision:
    ranking, best = case.ranking, case.best
    agree, overridden = judge_rules(case)
    runner_up = None
    if ranking is not None and best is not None:
        runner_up = case.picks[next(i for i in ranking.order if i != best)]
    is_answer = case.status is not Status.REFUSED
    return Decision(
        question=case.question(),
        status=case.status,
        reasons=tuple(case.reasons),
        best=case.picks[best] if best is not None and is_answer else None,
        p_best=ranking.p_best[best] if ranking and best is not None else None,
        p_within_5=ranking.p_near[best] if ranking and best is not None else None,
        blocks=case.common_blocks,
        runner_up=runner_up,
        tied=tuple(case.contenders[i].label for i in case.tied),
        evidence=evidence_rows(case),
        excluded=tuple(case.excluded),
        path=path,
        flips=flips(case),
        next_measurement=case.next_measurement,
        rules_agree=agree,
        rules_overridden=overridden,
        doubts=(*case.doubts, *cited_doubts(case)),
        refusal=case.refusal,
    )
