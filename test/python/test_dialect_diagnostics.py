"""Malformed IR gets a diagnostic: never a Python exception, never silence; and every diagnostic has a test."""

import ast
import re
from pathlib import Path

import pytest

from kitsune_mlir import mlir
from kitsune_mlir.errors import UserError
from kitsune_mlir.mlir import ir

ROOT = Path(__file__).parents[2]
INVALID = (ROOT / "test" / "dialects" / "invalid.mlir").read_text()
RING = "!kitsune.ring<tensor<?x8xf32>, 2 : i64>"
WHOLE = "tensor<64x8xf32>"
STORE = f'"kitsune.store"(%x) {{index = 0 : i64}} : ({WHOLE}) -> ()'


def messages():
    """The message of each `fail(op, ...)` in the dialect, as a pattern: `{...}` stands for anything."""
    found = []
    for path in sorted((ROOT / "dialects").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "fail":
                text = node.args[1]
                pieces = text.values if isinstance(text, ast.JoinedStr) else [text]
                found.append("".join(re.escape(p.value) if isinstance(p, ast.Constant) else ".*" for p in pieces))
    return found


def test_there_are_messages():
    assert len(messages()) > 20


@pytest.mark.parametrize("message", messages())
def test_every_diagnostic_has_a_case(message):
    expected = re.findall(r"expected-error@\+1 \{\{(.*)\}\}", INVALID)
    assert any(re.search(message, text) for text in expected)


def pipeline(body, attributes='sym_name = "p"'):
    return f'%p = "kitsune.pipeline"() ({{ {body} }}) {{{attributes}}} : () -> !kitsune.outputs'


def stage(body, attributes='kind = "simt", sym_name = "s"'):
    return f'"kitsune.stage"() ({{ {body} }}) {{{attributes}}} : () -> ()'


def queue(ring, attributes='{sym_name = "q"}'):
    return pipeline(f'%q = "kitsune.queue"() {attributes} : () -> {ring}')


HUGE = f"{2**127} : i128"
MALFORMED = {
    "custom form": "kitsune.queue",
    "unknown operation": '"kitsune.quque"() : () -> ()',
    "unknown type": queue("!kitsune.rung<f32>"),
    "queue without result": pipeline('"kitsune.queue"() {sym_name = "q"} : () -> ()'),
    "queue with two results": pipeline(f'%q:2 = "kitsune.queue"() {{sym_name = "q"}} : () -> ({RING}, {RING})'),
    "queue with an operand": pipeline(f'%q = "kitsune.queue"(%x) {{sym_name = "q"}} : ({WHOLE}) -> {RING}'),
    "queue of another type": queue("f32"),
    "queue named by a number": queue(RING, "{sym_name = 1 : i64}"),
    "ring of nothing": queue("!kitsune.ring"),
    "ring of three": queue("!kitsune.ring<f32, 1 : i64, 2 : i64>"),
    "ring with text for depth": queue('!kitsune.ring<tensor<8xf32>, "2">'),
    "ring with a fraction for depth": queue("!kitsune.ring<tensor<8xf32>, 2.0 : f32>"),
    "ring with truth for depth": queue("!kitsune.ring<tensor<8xf32>, true>"),
    "ring with a huge depth": queue(f"!kitsune.ring<tensor<8xf32>, {HUGE}>"),
    "ring of a dialect's nonsense": queue("!kitsune.ring<,>"),
    "stage without name": pipeline(stage(STORE, 'kind = "simt"')),
    "stage without attributes": pipeline(stage(STORE, "")),
    "stage with a number for kind": pipeline(stage(STORE, 'kind = 1 : i64, sym_name = "s"')),
    "stage without region": pipeline('"kitsune.stage"() {kind = "simt", sym_name = "s"} : () -> ()'),
    "stage of two blocks": pipeline(stage(f"^a: {STORE} ^b: {STORE}")),
    "stage with a result": pipeline('%s = "kitsune.stage"() ({}) {kind = "simt", sym_name = "s"} : () -> f32'),
    "role of a unit": pipeline(stage(STORE, 'kind = "simt", role, sym_name = "s"')),
    "huge replicas": pipeline(stage(STORE, f'kind = "simt", replicas = {HUGE}, sym_name = "s"')),
    "pipeline without name": pipeline(STORE, ""),
    "pipeline named by a number": pipeline(STORE, "sym_name = 3 : i64"),
    "pipeline without result": f'"kitsune.pipeline"() ({{ {STORE} }}) {{sym_name = "p"}} : () -> ()',
    "pipeline with another result": f'%p = "kitsune.pipeline"() ({{ {STORE} }}) {{sym_name = "p"}} : () -> f32',
    "pipeline without region": '%p = "kitsune.pipeline"() {sym_name = "p"} : () -> !kitsune.outputs',
    "tile rows of text": pipeline(STORE, 'sym_name = "p", tile_rows = "x"'),
    "tile rows of truth": pipeline(STORE, 'sym_name = "p", tile_rows = true'),
    "get without result": pipeline(stage(f'"kitsune.get"(%r) : ({RING}) -> ()')),
    "get of two queues": pipeline(stage(f'%a = "kitsune.get"(%r, %r) : ({RING}, {RING}) -> {WHOLE}')),
    "put of nothing": pipeline(stage(f'"kitsune.put"(%r) : ({RING}) -> ()')),
    "load of nothing": pipeline(stage('%a = "kitsune.load"() : () -> tensor<?x8xf32>')),
    "load to memory": pipeline(stage(f'%a = "kitsune.load"(%x) : ({WHOLE}) -> memref<?x8xf32>')),
    "load without rank": pipeline(stage(f'%a = "kitsune.load"(%x) : ({WHOLE}) -> tensor<*xf32>')),
    "store of nothing": pipeline('"kitsune.store"() {index = 0 : i64} : () -> ()'),
    "store with text for index": pipeline(f'"kitsune.store"(%x) {{index = "0"}} : ({WHOLE}) -> ()'),
    "store with a huge index": pipeline(f'"kitsune.store"(%x) {{index = {HUGE}}} : ({WHOLE}) -> ()'),
    "store with a successor": pipeline(f'^a: "kitsune.store"(%x) [^a] {{index = 0 : i64}} : ({WHOLE}) -> ()'),
    "result without index": f'{pipeline(STORE)} %y = "kitsune.result"(%p) : (!kitsune.outputs) -> {WHOLE}',
    "result with text for index": (
        f'{pipeline(STORE)} %y = "kitsune.result"(%p) {{index = "a"}} : (!kitsune.outputs) -> {WHOLE}'
    ),
    "result with a huge index": (
        f'{pipeline(STORE)} %y = "kitsune.result"(%p) {{index = {HUGE}}} : (!kitsune.outputs) -> {WHOLE}'
    ),
    "result without result": f'{pipeline(STORE)} "kitsune.result"(%p) {{index = 0 : i64}} : (!kitsune.outputs) -> ()',
    "result of no tensor": (
        f'{pipeline(STORE)} %y = "kitsune.result"(%p) {{index = 0 : i64}} : (!kitsune.outputs) -> f32'
    ),
    "result of a tensor": f'%y = "kitsune.result"(%x) {{index = 0 : i64}} : ({WHOLE}) -> {WHOLE}',
    "result in its own pipeline": pipeline('%y = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> f32'),
    "a broken result in a block before its pipeline's": f"""cf.br ^second
      ^first: %y = "kitsune.result"(%p) {{index = "a"}} : (!kitsune.outputs) -> {WHOLE}
      cf.br ^first
      ^second: {pipeline(STORE)} cf.br ^first""",
}


@pytest.mark.parametrize("text", MALFORMED.values(), ids=MALFORMED)
def test_malformed_text_gets_a_diagnostic(text):
    source = f"func.func @f(%x: {WHOLE}, %r: {RING}) {{\n{text}\nreturn }}"
    with pytest.raises(UserError, match="input is not valid MLIR: .+"):
        mlir.parse(source, mlir.context())


BREAKAGES = ("sym_name", "kind", "index", "role", "replicas", "transport", "tile_rows")


@pytest.mark.parametrize("attribute", BREAKAGES)
@pytest.mark.parametrize("value", [None, "unit", "-1 : i64", '"x"', "f32", "[1]", HUGE, "dense<1> : tensor<2xi64>"])
def test_an_operation_with_any_attribute_broken_fails_or_verifies(attribute, value):
    module = mlir.parse((ROOT / "test" / "dialects" / "example.mlir").read_text(), mlir.context())
    operations = [op for op in mlir.walk(module) if op.name.startswith("kitsune.")]
    with module.context:
        for operation in operations:
            before = operation.attributes[attribute] if attribute in operation.attributes else None
            if value is not None:
                operation.attributes[attribute] = ir.Attribute.parse(value)
            elif before is not None:
                del operation.attributes[attribute]
            try:
                module.operation.verify()
            except ir.MLIRError as error:
                assert error.error_diagnostics[0].message
            if before is not None:
                operation.attributes[attribute] = before
            elif attribute in operation.attributes:
                del operation.attributes[attribute]
        assert module.operation.verify()


def test_an_operation_with_any_operand_replaced_fails_or_verifies():
    ctx = mlir.context()
    source = (ROOT / "test" / "dialects" / "example.mlir").read_text()
    module = mlir.parse(source, ctx)
    body = module.body.operations[0].regions[0].blocks[0]
    strays = [body.arguments[0], *(op.results[0] for op in body.operations if len(op.results))]
    failures = 0
    for operation in [op for op in mlir.walk(module) if op.name.startswith("kitsune.")]:
        for i, before in enumerate(list(operation.operands)):
            for stray in strays:
                operation.operands[i] = stray
                try:
                    module.operation.verify()
                except ir.MLIRError as error:
                    assert error.error_diagnostics[0].message
                    failures += 1
                operation.operands[i] = before
    assert failures > 10
    assert module.operation.verify()
