"""Mutants of a scheduled kernel: the proof refuses what the interpreter sees go wrong, and both say where."""

import re

import pytest
from schedules import PRODUCT, faults, kernel_of, proof

from kitsune_mlir.errors import UserError

RELEASE = '"kitsune.release"(%pa, %q) : (!s, !t) -> ()'
LAST = '"kitsune.release"(%r#1, %r#3) : (!s, !t) -> ()'
COMMIT = '"kitsune.commit"(%s, %d) : (!s, !t) -> ()'
WAIT = '%a = "kitsune.wait"(%x) : (!x) -> !s'
ACQUIRE = '%s = "kitsune.acquire"(%x) : (!x) -> !s'
ACQUIRE_RIGHT = '%s1 = "kitsune.acquire"(%y) : (!y) -> !s'

# What is replaced by what, what the proof says, and what the interpreter.
MUTANTS = {
    "release dropped": (RELEASE, "", "before the one that was opened earlier", "deadlock.*ring 'left'"),
    "last release dropped": (
        LAST,
        "",
        "has 0 open slots of ring 'left' before a turn, 1 behind",
        "closes a slot of ring",
    ),
    "release doubled": (
        "scf.yield %v, %a, %b, %e",
        '"kitsune.release"(%a, %e) : (!s, !t) -> ()\n scf.yield %v, %a, %b, %e',
        "ring 'left', opened at -:.., that was closed at",
        "ring 'left' that was closed at",
    ),
    "wrong slot released": (
        RELEASE,
        RELEASE.replace("%pa, %q", "%a, %e"),
        "before the one that was opened earlier",
        "before",
    ),
    "no token": (
        RELEASE,
        RELEASE.replace("(%pa, %q) : (!s, !t)", "(%pa) : (!s)"),
        "without the token",
        "without the token",
    ),
    "another product's token": (
        RELEASE,
        RELEASE.replace("%q", "%e"),
        "without the token of the product",
        "without the token",
    ),
    "commit without token": (
        COMMIT,
        '"kitsune.commit"(%s) : (!s) -> ()',
        "without the token of the copy into it",
        "without the token of a copy",
    ),
    "commit with another's token": (
        '"kitsune.commit"(%s1, %d1) : (!s, !t)',
        '"kitsune.commit"(%s1, %d) : (!s, !t)',
        "with the token of work on another slot",
        "with the token of other work",
    ),
    "read before wait": (
        '"kitsune.product"(%u, %a, %b)',
        '"kitsune.product"(%u, %pa, %b)',
        "without the token of the product|but",
        "without the token of its reader",
    ),
    "two producers": (
        '%z = "kitsune.sums"() : () -> !a',
        f'%z = "kitsune.sums"() : () -> !a\n{ACQUIRE.replace("%s ", "%zs ")}\n "kitsune.commit"(%zs) : (!s) -> ()',
        "in 'math', where 'load' fills them too",
        "as producer, as does agent",
    ),
    "written by its consumer": (
        RELEASE,
        '%w = "kitsune.copy"(%pa, %A, %row, %k) {dims = array<i64: 0, 1>, engine = "tma"} : '
        f"(!s, tensor<?x64xbf16>, index, index) -> !t\n{RELEASE}",
        "writes to a slot of ring 'left' opened to read",
        "writes to a slot of ring 'left'",
    ),
    "one slot too few for what is held": (
        "tensor<32x16xbf16>, 2 : i64",
        "tensor<32x16xbf16>, 1 : i64",
        "cycle of waits.*ring 'right'",
        "deadlock.*ring 'right'",
    ),
    "other trip count": (
        "%k = %c16 to %c64",
        "%k = %c32 to %c64",
        "fills 4 slots, but 'math' takes 3",
        "left with|deadlock",
    ),
    "slot never filled": (
        '%d = "kitsune.copy"(%s,',
        '%more = "kitsune.acquire"(%x) : (!x) -> !s\n "kitsune.commit"(%more) : (!s) -> ()\n%d = "kitsune.copy"(%s,',
        "before the one that was opened earlier|nothing was copied",
        "ring 'left'",
    ),
    "trip counts by the copy's number": (
        "%r:4 = scf.for %k = %c16 to %c64",
        "%end = arith.addi %c, %c64 : index\n %r:4 = scf.for %k = %c16 to %end",
        "rings 'left' and 'right' in a loop whose trip count",
        "left with|deadlock|never closed|slot of ring",
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_refused_and_goes_wrong(name):
    old, new, refusal, fault = MUTANTS[name]
    assert PRODUCT.count(old) == 1
    mutant = PRODUCT.replace(old, new)
    (refused, *_) = proof(mutant)
    assert re.search(refusal, refused) and re.match(r"-:\d+: ", refused), refused
    found = faults(mutant)
    assert found, "the interpreter finds nothing"
    assert re.search("rings? '", refused)
    assert any(re.search(fault, text, re.S) for text in found), found[0]
    assert all(re.search(r"-:\d+", text) for text in found), found[0]


@pytest.mark.parametrize("left", [1, 2, 3])
@pytest.mark.parametrize("right", [1, 2, 3])
@pytest.mark.parametrize("swapped", [False, True])
def test_depths_and_the_order_of_acquires(left, right, swapped):
    """With a slot of each ring held, both need two; the order in which they are acquired is all the same."""
    text = PRODUCT.replace("bf16>, 3 : i64", f"bf16>, {left} : i64").replace("bf16>, 2 : i64", f"bf16>, {right} : i64")
    if swapped:
        text = text.replace(ACQUIRE_RIGHT, "").replace(ACQUIRE, f"{ACQUIRE_RIGHT}\n{ACQUIRE}")
    assert bool(proof(text)) == bool(faults(text, range(3))) == (min(left, right) < 2)


@pytest.mark.parametrize("left", [2, 3])
def test_an_acquire_moved_across_another(left):
    """The box of the next turn is loaded before the right one of this turn: the ring is one more ahead."""
    start, end = PRODUCT.index(f"          {ACQUIRE}"), PRODUCT.index("        }\n      }\n    }) {copies = 1")
    body = PRODUCT[start:end]
    one, other = body[: body.index(f"          {ACQUIRE_RIGHT}")], body[body.index(f"          {ACQUIRE_RIGHT}") :]
    head = "        scf.for %k = %c0 to %c64 step %c16 {\n"
    first = one.replace("%k)", "%c0)").replace("%s", "%s0").replace("%d", "%d0")
    last = other.replace("%k)", "%c48)").replace("%s1", "%s2").replace("%d1", "%d2")
    ahead = first + head.replace("%c0", "%c16") + one + "%back = arith.subi %k, %c16 : index\n"
    ahead += other.replace("%k)", "%back)") + "        }\n" + last
    text = PRODUCT[: start - len(head)] + ahead + PRODUCT[end + len("        }\n") :]
    text = text.replace("bf16>, 3 : i64", f"bf16>, {left} : i64")
    assert bool(proof(text)) == bool(faults(text, range(4))) == (left == 2)
    assert left == 3 or "cycle of waits: the acquire of ring 'left' in 'load' (-:" in proof(text)[0]


def test_a_slot_closed_by_two_operations_does_not_verify():
    with pytest.raises(UserError, match="closes a slot that is closed elsewhere too"):
        kernel_of(PRODUCT.replace(LAST, f"{LAST}\n{LAST}"))
