"""Tensors to memrefs, for the CPU and the GPU alike; linalg stays, now on buffers."""

from __future__ import annotations

from kitsune_mlir import rows
from kitsune_mlir.dialects.checks import constant
from kitsune_mlir.mlir import arith, bufferization, func, ir, memref, replace_op, run_passes, walk
from kitsune_mlir.operations import end_of

_GENERALIZE = (
    "builtin.module(func.func(refback-generalize-tensor-pad,refback-generalize-tensor-concat),canonicalize,cse)"
)
# tm_tensor operations are unknown to one-shot bufferization: it leaves them between to_tensor and
# to_buffer, which `tm-tensor-bufferize` then folds away. The other order fails the analysis.
_ONE_SHOT = (
    "builtin.module(eliminate-empty-tensors,empty-tensor-to-alloc-tensor,one-shot-bufferize{"
    "bufferize-function-boundaries=1 function-boundary-type-conversion=identity-layout-map"
    " unknown-type-conversion=identity-layout-map allow-unknown-ops=1},"
    "func.func(tm-tensor-bufferize),canonicalize,cse)"
)
_MOST_ALIKE = 8  # parts that two concatenations begin with, and that are written twice


def bufferize(module: ir.Module) -> None:
    """Rewrites every function of `module` from tensors to memrefs with identity layouts, in place.

    Function arguments are never written: where a result reuses an argument's buffer it is copied
    first. Functions without a body stand for code that comes from elsewhere: they read their tensor arguments, and
    their tensor results, which become memref results, are in memory of their own. Functions
    still return memrefs afterwards; `results_to_out_params` turns those into arguments.
    Raises InternalError when an upstream pass fails.
    """
    _forbid_writes(module)
    stand_ins = [_give_body(op.opview) for op in walk(module, "func.func") if op.opview.is_external]
    run_passes(module, _GENERALIZE)
    for op in walk(module, "tensor.dim"):
        _ask_early(op)
    for op in walk(module, "tensor.insert_slice"):
        _begin_apart(op)
    for op in walk(module, "tensor.empty"):  # two concatenations that began with one would be parts of one buffer
        for use in list(op.results[0].uses)[1:]:
            use.owner.operands[use.operand_number] = op.clone(ip=ir.InsertionPoint(use.owner)).results[0]
    run_passes(module, _ONE_SHOT)
    for op in walk(module, "memref.cast"):
        _copy_instead(op)
    for function in [op.opview for op in walk(module, "func.func")]:
        if function.name.value in stand_ins:
            _take_body(function)


def _begin_apart(insertion: ir.Operation) -> None:
    """Writes the first parts that two concatenations have alike into both: else all of one, the other's last parts
    too, would be copied to begin the other with."""
    chain = [insertion]
    while (before := rows.producer(chain[-1].operands[1])) is not None and before.name == insertion.name:
        chain.append(before)
    if before is None or before.name != "tensor.empty" or len(chain) > _MOST_ALIKE:
        return
    goes_on = [use for use in insertion.results[0].uses if use.owner.name == insertion.name and use.operand_number == 1]
    for use in goes_on[1:]:
        whole = before.results[0]
        with ir.InsertionPoint(use.owner):
            for op in reversed(chain):
                made = op.clone()
                made.operands[1] = whole
                whole = made.results[0]
        use.owner.operands[use.operand_number] = whole


def _ask_early(dim: ir.Operation) -> None:
    """Has an open size asked of what knows it first, an argument as a rule: what is made of it, as the tensor that the
    parts of a concatenation are written to, is there before they are."""
    value, number = dim.operands
    d = constant(number)
    if d is not None:
        with dim.location, ir.InsertionPoint(dim):
            replace_op(dim, rows.size_of(value, d))


def _copy_instead(cast: ir.Operation) -> None:
    """Puts a copy in the place of a cast to a dense buffer: where strides are open until the call, as those of the
    first of several rows are, bufferization takes them for those that the buffer would have."""
    kind = ir.MemRefType(cast.results[0].type)
    with cast.context:
        dense = ir.AffineMapAttr.get(ir.AffineMap.get_identity(kind.rank))
    if kind.layout == dense and ir.MemRefType(cast.operands[0].type).layout != dense:
        replace_op(cast, _copy_of(cast.operands[0], cast, kind))


def results_to_out_params(function: func.FuncOp) -> None:
    """Makes the static memref results of one bufferized function into trailing arguments that the caller allocates.

    A result allocated for the purpose is written in place; any other is copied at the end. Results with
    dynamic sizes, which the caller cannot know, are still returned, each in an allocation of its own, which
    the caller frees.
    """
    block = function.body.blocks[0]
    end = end_of(block)
    given, arguments, returned = len(function.arguments), list(function.type.inputs), []
    taken: dict[ir.Operation, ir.Value] = {}
    with function.context, function.location:
        for value in list(end.operands):
            if not value.type.has_static_shape:
                owned = _alloc_of(value, block) is not None and value not in returned
                returned.append(value if owned else _copy_of(value, end))
                continue
            out = block.add_argument(value.type, function.location)
            arguments.append(value.type)
            alloc = _alloc_of(value, block)
            if alloc is None or alloc in taken:
                memref.CopyOp(taken.get(alloc, value), out, ip=ir.InsertionPoint(end))
            else:
                taken[alloc] = out
                value.replace_all_uses_except(out, end)
        func.ReturnOp(returned, ip=ir.InsertionPoint(end))
        end.erase()
        for alloc in taken:
            alloc.erase()
        kept = [value.type for value in returned]
        function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(arguments, kept))
        if "res_attrs" in function.attributes:
            del function.attributes["res_attrs"]
        if "arg_attrs" in function.attributes:
            present = list(function.attributes["arg_attrs"])[:given]
            none = [ir.DictAttr.get({})] * (len(arguments) - given)
            function.attributes["arg_attrs"] = ir.ArrayAttr.get(present + none)


def _alloc_of(value: ir.Value, block: ir.Block) -> ir.Operation | None:
    """The memref.alloc in `block` that makes `value`, if one does."""
    if isinstance(value.owner, ir.Block):
        return None
    op = value.owner.operation
    return op if op.name == "memref.alloc" and op.block == block else None


def _copy_of(value: ir.Value, end: ir.Operation, type_: ir.MemRefType | None = None) -> ir.Value:
    """A new allocation, of a memref's type or this one, with its elements, made in front of `end`."""
    with ir.InsertionPoint(end), end.location:
        type_ = type_ or ir.MemRefType(value.type)
        open_sizes = [i for i in range(type_.rank) if type_.is_dynamic_dim(i)]
        sizes = [memref.DimOp(value, arith.ConstantOp.create_index(i)).result for i in open_sizes]
        copy = memref.AllocOp(type_, sizes, []).result
        memref.CopyOp(value, copy)
        return copy


def _give_body(function: func.FuncOp) -> str:
    """Gives a function without a body one that makes its results, and says that it reads its arguments. Of a function
    without, one-shot bufferization believes that any result may share memory with any argument, and so with all other
    arguments: a concatenation that is computed for a kernel would be copied, lest a weight be written. Returns the
    name."""
    with function.context, function.location:
        read, none = ir.DictAttr.get({"bufferization.access": ir.StringAttr.get("read")}), ir.DictAttr.get({})
        kinds = function.type.inputs
        function.arg_attrs = [read if isinstance(kind, ir.RankedTensorType) else none for kind in kinds]
        with ir.InsertionPoint(function.add_entry_block()):
            zero = arith.ConstantOp.create_index(0).result
            made = []
            for kind in function.type.results:
                sizes = [zero for d in range(kind.rank) if kind.is_dynamic_dim(d)]
                made.append(bufferization.AllocTensorOp(kind, sizes).result)
            func.ReturnOp(made)
    return str(function.name.value)


def _take_body(function: func.FuncOp) -> None:
    """Leaves a function's declaration alone."""
    kept = {name: function.attributes[name] for name in function.attributes if name != "arg_attrs"}
    with function.context, function.location, ir.InsertionPoint(function):
        own = func.FuncOp(function.name.value, function.type, visibility="private")
        for name, attribute in kept.items():
            own.attributes[name] = attribute
    function.erase()


def _forbid_writes(module: ir.Module) -> None:
    """One-shot bufferization takes arguments for scratch space unless told otherwise."""
    with module.context:
        never = ir.BoolAttr.get(False)
        for op in walk(module, "func.func"):
            function = op.opview
            if function.is_external:
                continue
            attributes = []
            for argument, present in zip(function.arguments, function.arg_attrs, strict=True):
                entries = {named.name: named.attr for named in present}
                if isinstance(argument.type, ir.RankedTensorType):
                    entries["bufferization.writable"] = never
                attributes.append(ir.DictAttr.get(entries))
            function.arg_attrs = attributes
