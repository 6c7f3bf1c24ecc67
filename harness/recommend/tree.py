"""A decision tree as data: named tests with a branch for each answer, and how it is walked.

The tree itself is a table in `decide.py`; here is only its shape. Walking gives the steps that
were taken, so that the way to an answer can be shown, tested and argued with.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from harness.recommend.model import Step

StateT = TypeVar("StateT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a test says: the branch to take, and the facts that made it so (sentences)."""

    branch: str
    facts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf(Generic[StateT]):
    """An end of the tree; `conclude` writes the answer into the state."""

    name: str
    conclude: Callable[[StateT], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node(Generic[StateT]):
    """A named test. `ask` may note findings in the state; `branches` is complete."""

    test: str
    question: str
    ask: Callable[[StateT], Answer]
    branches: Mapping[str, "Node[StateT] | Leaf[StateT]"]


def walk(root: Node[StateT], state: StateT) -> tuple[Leaf[StateT], tuple[Step, ...]]:
    """Go from the root to a leaf; returns the leaf and every step on the way, in order.

    KeyError if a test gives an answer that its node has no branch for: a defect of ours.
    """
    steps: list[Step] = []
    here: Node[StateT] | Leaf[StateT] = root
    while isinstance(here, Node):
        answer = here.ask(state)
        steps.append(
            Step(
                test=here.test,
                question=here.question,
                answer=answer.branch,
                branches=tuple(here.branches),
                facts=answer.facts,
            )
        )
        here = here.branches[answer.branch]
    return here, tuple(steps)


def leaves(node: Node[StateT] | Leaf[StateT]) -> Iterator[Leaf[StateT]]:
    """Every end of the tree, left to right."""
    if isinstance(node, Leaf):
        yield node
        return
    for branch in node.branches.values():
        yield from leaves(branch)
