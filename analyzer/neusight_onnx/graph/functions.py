"""From the raw graph of a file to ours: functions inlined, names made unique, nodes sorted.

A model-local function wins over an operator of the same name; functions that onnx itself defines for operators are not
expanded. Everything here is linear in the size of the inlined graph.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from neusight_onnx.errors import ModelError, shown
from neusight_onnx.graph.arrangement import Arranged, arrange
from neusight_onnx.graph.inlined_size import MAX_CALLS, refuse_bombs
from neusight_onnx.graph.model import Attribute, Declared, Graph, Initializer, Node, Notice, Origin
from neusight_onnx.graph.raw import FunctionKey, RawFunction, RawGraph, RawModel, RawNode, Reference
from neusight_onnx.graph.versions import newest_known


@dataclass(slots=True, kw_only=True)
class _Scope:
    """Names as the file has them -> names unique in the model, for one graph; ``outer`` is what its nodes see, too.

    A function's body sees nothing of its caller but its inputs, hence has no outer scope. ``trail`` goes before the
    names of nodes and values ("Lin/"), ``place`` before the made-up name of a nameless node. ``identity``: every name
    stays as it is (the main graph).
    """

    names: dict[str, str]
    outer: _Scope | None
    trail: str
    place: str
    opsets: Mapping[str, int]
    attributes: Mapping[str, Attribute]
    identity: bool = False
    nodes: Sequence[RawNode] = ()
    at: int = 0
    """The place among ``nodes`` of the one whose bodies are being built."""
    made_at: dict[str, int] | None = None

    def find(self, name: str) -> str | None:
        scope: _Scope | None = self
        while scope is not None:
            found = scope.names.get(name)
            if found is not None:
                return found
            scope = scope.outer
        return None

    def has_before(self, name: str) -> bool:
        """Whether a value of that name is there, here or around, before the node whose bodies are being built."""
        scope: _Scope | None = self
        while scope is not None:
            if name in scope.names:
                if scope.made_at is None:
                    scope.made_at = {made: at for at, node in enumerate(scope.nodes) for made in node.outputs}
                if scope.made_at.get(name, -1) < scope.at:
                    return True
            scope = scope.outer
        return False


@dataclass(slots=True, kw_only=True)
class Places:
    """What the model calls the nodes and values of the file; filled while the graph is built.

    ``nodes``: names by the ``id`` of the raw node, several where a function is called several times. ``owners``: of a
    node inside a function or body, the node that calls or holds it. ``values``: of a body, by the ``id`` of the raw
    graph, the names in the file and in the model, one mapping for each time that it was built.
    """

    nodes: dict[int, list[str]] = field(default_factory=dict)
    owners: dict[str, str] = field(default_factory=dict)
    values: dict[int, list[Mapping[str, str]]] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class _Builder:
    """What grows while one model is built. ``owner``: the node whose function or body is being built."""

    functions: Mapping[FunctionKey, RawFunction]
    value_names: set[str]
    node_names: set[str] = field(default_factory=set)
    main_names: set[str] = field(default_factory=set)
    counters: dict[str, int] = field(default_factory=dict)
    depth: int = 0
    arranged: dict[int, Arranged] = field(default_factory=dict)
    duplicate_node_names: list[str] = field(default_factory=list)
    renamed: list[str] = field(default_factory=list)
    """What those nodes are called here."""
    refused_names: list[str] = field(default_factory=list)
    """Those of ``renamed`` for which ONNX Runtime refuses the model."""
    shadowing: list[tuple[str, str]] = field(default_factory=list)
    """(value, node) of a body whose value has the name of one around it."""
    unsorted: list[str] = field(default_factory=list)
    duplicate_initializers: list[str] = field(default_factory=list)
    unimported: dict[str, str] = field(default_factory=dict)
    places: Places | None = None
    owner: str = ""


def build_graph(
    model: RawModel, opsets: Mapping[str, int], *, places: Places | None = None
) -> tuple[Graph, tuple[Notice, ...]]:
    """The main graph of ``model`` with every function inlined, and what was odd about it.

    ``places``: filled with what became of each node. Raises ModelError for cycles, recursion, a value assigned twice or
    never, and too many nodes.
    """
    if model.functions:
        refuse_bombs(model)
    builder = _Builder(functions=model.functions, value_names=set(), places=places)
    graph = _main_graph(builder, model.graph, opsets)
    return graph, tuple(_notices(builder))


def _notices(builder: _Builder) -> list[Notice]:
    notices: list[Notice] = []
    repeated = builder.duplicate_node_names
    if repeated:
        notices.append(
            Notice(
                code="duplicate-node-name",
                message=f"{len(repeated)} {'node bears' if len(repeated) == 1 else 'nodes bear'} a name that another "
                f"has, {shown(repeated[0])!r} first; a number was added to tell them apart: it is called "
                f"{shown(builder.renamed[0])!r}",
                node=builder.refused_names[0] if builder.refused_names else None,
            )
        )
    if builder.shadowing:
        (name, user), *others = builder.shadowing
        more = f", and so {'does' if len(others) == 1 else 'do'} {len(others)} more" if others else ""
        notices.append(
            Notice(
                code="shadowed-value",
                message=f"a body gives a value the name of one around it, {shown(name)!r} in node {shown(user)!r}{more}"
                "; ONNX Runtime refuses such a model",
                node=user,
            )
        )
    if builder.unsorted:
        where = shown(builder.unsorted[0])
        notices.append(
            Notice(
                code="unsorted-nodes",
                message=f"the nodes of {where!r} are not in topological order, which ONNX asks for; they were sorted",
            )
        )
    repeated = builder.duplicate_initializers
    if repeated:
        notices.append(
            Notice(
                code="duplicate-initializer",
                message=f"{len(repeated)} {'initializer bears' if len(repeated) == 1 else 'initializers bear'} the "
                f"name of another, {shown(repeated[0])!r} first; "
                "the last of each name counts",
            )
        )
    for domain, user in builder.unimported.items():
        notices.append(
            Notice(
                code="opset-missing",
                message=f"the model uses the operator set {shown(domain or 'ai.onnx')!r} (in node {shown(user)!r}) "
                "without importing it; its newest version is assumed",
                node=user,
            )
        )
    return notices


# --- names ------------------------------------------------------------------------------------------------------------


def _numbered(builder: _Builder, base: str, *taken: Container[str]) -> str:
    """The first of base_1, base_2, … that is not taken; linear over all calls."""
    name = base
    while name == base or any(name in names for names in taken):
        number = builder.counters[base] = builder.counters.get(base, 0) + 1
        name = f"{base}_{number}"
    return name


def _value_name(builder: _Builder, base: str) -> str:
    """``base`` if no value bears it yet, else numbered; taken from now on."""
    name = base
    if name in builder.value_names:
        name = _numbered(builder, base, builder.value_names)
    builder.value_names.add(name)
    return name


# --- building ---------------------------------------------------------------------------------------------------------


def _main_graph(builder: _Builder, raw: RawGraph, opsets: Mapping[str, int]) -> Graph:
    inputs = [declared.name for declared in raw.inputs]
    repeated = len(inputs) != len(set(inputs))
    if repeated:
        raise ModelError("declares an input twice")
    arranged = arrange(builder.arranged, raw, inputs, "")
    if arranged.captures:
        _refuse_unknown(arranged, raw, "")
    names = builder.value_names
    names.update(inputs, raw.initializers)
    for node in raw.nodes:
        names.update(node.outputs)
    names.discard("")
    scope = _Scope(
        names=dict(zip(names, names, strict=True)),
        outer=None,
        trail="",
        place="",
        opsets=opsets,
        attributes={},
        identity=True,
    )
    return _graph(builder, raw, arranged, scope, label=raw.name or "the main graph")


def _refuse_unknown(arranged: Arranged, raw: RawGraph, where: str) -> None:
    name = arranged.captures[0]
    for node in arranged.nodes:
        if name in node.inputs:
            user = f"node {shown(node.name or node.op_type)!r} reads"
            break
    else:
        is_output = any(output.name == name for output in raw.outputs)
        user = "the graph returns" if is_output else "a subgraph reads"
    raise ModelError(f"is incomplete: {user} the value {shown(name)!r}{where}, which nothing produces")


def _graph(builder: _Builder, raw: RawGraph, arranged: Arranged, scope: _Scope, label: str) -> Graph:
    """``raw`` with the names of ``scope``, which holds all that the graph itself defines."""
    if arranged.moved:
        builder.unsorted.append(label)
    builder.duplicate_initializers.extend(raw.duplicate_initializers)
    nodes: list[Node] = []
    _append_nodes(builder, arranged.nodes, scope, nodes)
    # The main graph's defaults are no inputs; a body's inputs are positional, so all stay.
    inputs = tuple(d for d in raw.inputs if not (scope.identity and d.name in raw.initializers))
    initializers: Mapping[str, Initializer] = raw.initializers
    outputs = tuple(raw.outputs)
    declared: dict[str, Declared] = {}
    if scope.identity:
        for value in chain(raw.value_info, raw.inputs, raw.outputs):
            declared[value.name] = value
    else:
        inputs = tuple(_renamed(scope, value) for value in inputs)
        outputs = tuple(_renamed(scope, value) for value in outputs)
        initializers = {
            scope.names[name]: replace(tensor, name=scope.names[name]) for name, tensor in raw.initializers.items()
        }
        for value in chain(raw.value_info, raw.inputs, raw.outputs):
            if value.name in scope.names:
                known = _renamed(scope, value)
                declared[known.name] = known
    return Graph(
        name=raw.name,
        nodes=tuple(nodes),
        inputs=inputs,
        outputs=outputs,
        initializers=initializers,
        declared=declared,
    )


def _renamed(scope: _Scope, value: Declared) -> Declared:
    name = scope.find(value.name)
    assert name is not None
    return value if name == value.name else replace(value, name=name)


def _append_nodes(builder: _Builder, raw_nodes: list[RawNode], scope: _Scope, nodes: list[Node]) -> None:
    """Appends ``raw_nodes``, functions inlined, in the order given."""
    opsets = scope.opsets
    functions = builder.functions
    scope.nodes = raw_nodes
    identity = scope.identity
    used = builder.node_names
    trail = scope.trail
    named = {trail + raw.name for raw in raw_nodes if raw.name}
    # The main graph's own names stay with it, though its bodies come first.
    reserved: set[str] | frozenset[str] = frozenset()
    if identity:
        builder.main_names = named
    else:
        reserved = builder.main_names
    within = set[str]()
    told_apart = set[str]()  # ONNX Runtime names what it inlines anew, and makes Constants initializers
    for index, raw in enumerate(raw_nodes):
        label, op_type, domain, overload, inputs, outputs, attributes, plain = raw
        if label:
            if label in within:
                builder.duplicate_node_names.append(label)
            name = trail + label
            if name in used or name in reserved:
                name = _numbered(builder, name, used, named, reserved)
            if label in within:
                builder.renamed.append(name)
            within.add(label)
            if op_type != "Constant" and not trail:
                if label in told_apart:
                    builder.refused_names.append(name)
                told_apart.add(label)
        else:
            name = f"{scope.place}{op_type}_{index}"
            if name in used or name in named or name in reserved:
                name = _numbered(builder, name, used, named, reserved)
        used.add(name)
        if builder.places is not None:
            builder.places.nodes.setdefault(id(raw), []).append(name)
            if builder.owner:
                builder.places.owners[name] = builder.owner
        if not identity:
            inputs = tuple([_resolve(scope, value, name) for value in inputs])
        if not plain:
            owner, builder.owner = builder.owner, name
            scope.at = index
            attributes = _attributes(builder, attributes, scope, name)
            builder.owner = owner
        if functions:
            key = (domain, op_type, overload)
            function = functions.get(key)
            if function is not None:
                if not identity:
                    outputs = tuple([scope.names[value] if value else "" for value in outputs])
                owner, builder.owner = builder.owner, name
                _inline(builder, function, scope, name, inputs, outputs, attributes, nodes)
                builder.owner = owner
                continue
        if not identity:
            outputs = tuple([scope.names[value] if value else "" for value in outputs])
        version = opsets.get(domain)
        if version is None:
            builder.unimported.setdefault(domain, name)
            version = newest_known(domain)
        nodes.append(
            Node(
                name=name,
                op_type=op_type,
                domain=domain,
                version=version,
                inputs=inputs,
                outputs=outputs,
                attributes=attributes,  # type: ignore[arg-type]  # raw graphs and references are gone: it was plain
                origins=(Origin(name=name, op_type=op_type),),
            )
        )


def _resolve(scope: _Scope, value: str, node: str) -> str:
    if not value:
        return ""
    found = scope.find(value)
    if found is None:
        raise ModelError(
            f"is incomplete: node {shown(node)!r} reads the value {shown(value)!r}, which nothing produces"
        )
    return found


def _attributes(
    builder: _Builder,
    attributes: Mapping[str, Attribute | RawGraph | tuple[RawGraph, ...] | Reference],
    scope: _Scope,
    owner: str,
) -> dict[str, Attribute]:
    """Subgraphs built, references replaced by the values that the call of the function gave."""
    result: dict[str, Attribute] = {}
    for name, value in attributes.items():
        if isinstance(value, Reference):
            if value.name in scope.attributes:
                result[name] = scope.attributes[value.name]
        elif isinstance(value, RawGraph):
            result[name] = _body(builder, value, scope, f"{owner}/", f"{owner}/{name}")
        elif isinstance(value, tuple) and value and isinstance(value[0], RawGraph):
            result[name] = tuple(
                _body(builder, body, scope, f"{owner}/", f"{owner}/{name}_{index}")
                for index, body in enumerate(value)
                if isinstance(body, RawGraph)
            )
        else:
            result[name] = value  # type: ignore[assignment]  # no raw graph is left in it
    return result


def _body(builder: _Builder, raw: RawGraph, outer: _Scope, place: str, owner: str) -> Graph:
    """The subgraph ``owner`` (node/attribute); names that something else in the model has get a number."""
    builder.depth += 1
    if builder.depth > MAX_CALLS:
        raise ModelError(f"nests functions and subgraphs more than {MAX_CALLS} deep")
    where = f" in {shown(owner)!r}"
    arranged = arrange(builder.arranged, raw, [declared.name for declared in raw.inputs], where)
    scope = _Scope(
        names={}, outer=outer, trail=outer.trail, place=place, opsets=outer.opsets, attributes=outer.attributes
    )
    own = chain(
        (declared.name for declared in raw.inputs),
        raw.initializers,
        chain.from_iterable(node.outputs for node in raw.nodes),
    )
    for name in own:
        if name and name not in scope.names:
            scope.names[name] = _value_name(builder, outer.trail + name)
    for name in () if outer.trail else chain.from_iterable(node.outputs for node in raw.nodes):
        if name and scope.names[name] != name and outer.has_before(name):
            builder.shadowing.append((name, builder.owner))
    for name in arranged.captures:
        if outer.find(name) is None:
            _refuse_unknown(Arranged(nodes=arranged.nodes, captures=(name,), moved=False), raw, where)
    if builder.places is not None:
        builder.places.values.setdefault(id(raw), []).append(scope.names)
    graph = _graph(builder, raw, arranged, scope, label=owner)
    builder.depth -= 1
    return graph


def _inline(
    builder: _Builder,
    function: RawFunction,
    caller: _Scope,
    name: str,
    inputs: tuple[str, ...],
    outputs: tuple[str, ...],
    attributes: Mapping[str, Attribute | RawGraph | tuple[RawGraph, ...] | Reference],
    nodes: list[Node],
) -> None:
    """Appends the body of ``function`` as called by the node ``name``."""
    builder.depth += 1
    if builder.depth > MAX_CALLS:
        raise ModelError(f"nests functions and subgraphs more than {MAX_CALLS} deep")
    where = f" in the function {shown(function.name)!r}"
    if len(inputs) > len(function.inputs) or len(outputs) > len(function.outputs):
        raise ModelError(
            f"calls the function {shown(function.name)!r} with {len(inputs)} inputs and {len(outputs)} outputs in node "
            f"{shown(name)!r}; it has {len(function.inputs)} and {len(function.outputs)}"
        )
    arranged = arrange(builder.arranged, function, function.inputs, where)
    if arranged.moved:
        builder.unsorted.append(function.name)
    trail = name + "/"
    names = dict.fromkeys(function.inputs, "")
    if len(names) != len(function.inputs):
        raise ModelError(f"has a function with two inputs of one name: {shown(function.name)!r}")
    names.update(zip(function.inputs, inputs, strict=False))
    produced = {value for node in arranged.nodes for value in node.outputs if value}
    copies: list[tuple[str, str]] = []
    for formal, actual in zip(function.outputs, outputs, strict=False):
        if not actual:
            continue
        if formal in produced and formal not in names:
            names[formal] = actual
        else:
            # An input handed through, or one value returned twice: the call still makes a value of its own.
            copies.append((formal, actual))
    for node in arranged.nodes:
        for value in node.outputs:
            if value and value not in names:
                names[value] = _value_name(builder, trail + value)
    # A default can't be a reference, and the call's subgraphs are built; tuples hold no raw graphs any more.
    given: dict[str, Attribute] = {
        attribute: value  # type: ignore[misc]  # the comprehension filters raw graphs out
        for attribute, value in chain(function.defaults.items(), attributes.items())
        if not isinstance(value, RawGraph | Reference)
    }
    scope = _Scope(
        names=names, outer=None, trail=trail, place=trail, opsets=function.opsets or caller.opsets, attributes=given
    )
    _append_nodes(builder, arranged.nodes, scope, nodes)
    builder.depth -= 1
    for formal, actual in copies:
        source_name = names.get(formal)
        if not source_name:
            raise ModelError(f"returns {shown(formal)!r}, which nothing produces{where}")
        copy_name = _numbered(builder, trail + "Identity", builder.node_names)
        builder.node_names.add(copy_name)
        if builder.places is not None:
            builder.places.owners[copy_name] = name
        nodes.append(
            Node(
                name=copy_name,
                op_type="Identity",
                version=scope.opsets.get("", 0) or newest_known(""),
                inputs=(source_name,),
                outputs=(actual,),
                origins=(Origin(name=copy_name, op_type="Identity"),),
            )
        )
