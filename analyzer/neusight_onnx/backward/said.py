"""What a step of training assumes of a graph, in words, and why there is nothing to train."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace

from neusight_onnx.backward.freezing import Frozen, said_of
from neusight_onnx.backward.parameters import initializers, not_trained, quoted, values_needing
from neusight_onnx.backward.plan import Training
from neusight_onnx.backward.steps import Parameter
from neusight_onnx.errors import shown
from neusight_onnx.graph.model import InferredGraph, Node, file_name


def why_nothing(graph: InferredGraph, frozen: frozenset[str], blocked: Sequence[Node]) -> str:
    if blocked:
        node = blocked[-1]
        return (
            f"there is nothing to train: no gradient reaches a parameter, for none passes {node.op_type} "
            f"'{shown(file_name(node.name))}'"
        )
    if frozen:
        return "there is nothing to train: --freeze leaves no parameter that the results depend on"
    left = not_trained(graph, values_needing(graph, frozen, []), ())
    if left:
        return f"there is nothing to train: {quoted(left)} {_not_said(left)}"
    return (
        "there is nothing to train: the results depend on no floating-point weight of more than one element (weights "
        "that are stored as integers are not trained)"
    )


def assumed(
    graph: InferredGraph,
    plan: Training,
    *,
    losses: Sequence[str],
    frozen: Sequence[Frozen],
    reached: Sequence[Parameter],
    needing: Mapping[str, int],
    behind: Container[str],
    blocked: Sequence[Node],
) -> tuple[str, ...]:
    """What a step assumes: ``frozen`` by the patterns of ``plan``, the parameters and values (``behind``) that a
    gradient ``reached``, of those ``needing`` one; the nodes that ``blocked`` it."""
    names = frozenset(name for each in frozen for name in each.names)
    return (
        *_said_of_losses(graph, losses, plan),
        *_said_of_parameters(graph, reached, names),
        *_said_of_patterns(graph, frozen, reached),
        *_said_of_others(graph, needing, behind),
        *_said_of_blocked(blocked),
    )


def _said_of_losses(graph: InferredGraph, losses: Sequence[str], plan: Training) -> Iterator[str]:
    named = ", ".join(f"'{shown(name)}'" for name in losses)
    if plan.loss == "none":
        yield f"training: no loss; the gradient of {named} is there already (--loss none)"
    else:
        yield f"training: the loss ({plan.loss}) is taken of {named}"
    others = [
        declared.name
        for declared in graph.graph.outputs
        if declared.name not in losses and declared.name in graph.values
    ]
    if others:
        yield f"training: no gradient starts at {', '.join(f'{shown(name)!r}' for name in others[:3])}" + (
            f" and {len(others) - 3} more results" if len(others) > 3 else ""
        )


def _said_of_parameters(graph: InferredGraph, reached: Sequence[Parameter], frozen: frozenset[str]) -> Iterator[str]:
    count = sum(parameter.spec.element_count for parameter in reached)
    weights = initializers(graph)
    held = sum(spec.element_count for spec in weights.values())
    still = sum(spec.element_count for name, spec in weights.items() if name in frozen)
    known = frozen.union(parameter.name for parameter in reached)
    single = sum(spec.element_count == 1 and name not in known for name, spec in weights.items())
    text = f"training: {count:,} of {held:,} floating-point weights are trained"
    text += f", {still:,} are frozen" if frozen else ""
    text += f", {single:,} {'is a single number' if single == 1 else 'are single numbers'}" if single else ""
    yield text + " (--freeze leaves some as they are)"


def _said_of_patterns(graph: InferredGraph, patterns: Sequence[Frozen], reached: Sequence[Parameter]) -> Iterator[str]:
    """What --freeze means otherwise than by name, and what it leaves trained of what its nodes read."""
    trained = {parameter.name for parameter in reached}
    elements = {name: spec.element_count for name, spec in initializers(graph).items()} if patterns else {}
    for each in patterns:
        yield from said_of(replace(each, left=tuple(name for name in each.left if name in trained)), elements)


def _said_of_others(graph: InferredGraph, needing: Mapping[str, int], behind: Container[str]) -> Iterator[str]:
    """The weights that a derivative asks for and that have none."""
    left = not_trained(graph, needing, behind)
    if left:
        yield f"training: {quoted(left)} {_not_said(left)}"


def _not_said(left: Sequence[str]) -> str:
    verb = "is" if len(left) == 1 else "are"
    return f"{verb} not trained (what prepares an input, makes positions, or no result depends on)"


def _said_of_blocked(blocked: Sequence[Node]) -> Iterator[str]:
    if blocked:
        named = ", ".join(f"{node.op_type} '{shown(file_name(node.name))}'" for node in blocked[:3])
        more = f" and {len(blocked) - 3:,} more" if len(blocked) > 3 else ""
        yield f"training: no gradient passes {named}{more}"
