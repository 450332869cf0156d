"""What follows on the tiles of a random product: see random_products.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .kernel_text import Text, numbers

if TYPE_CHECKING:
    from .random_products import RandomProduct

FORMS = ("plain", "plain", "relu", "bias", "residual", "less the largest")


def followed(product: RandomProduct, text: Text, at: dict[str, str], tiles: Sequence[str], kind: str) -> str:
    """What follows on the tile, in the type of the output."""
    inputs, lines = [(tile, kind, "r, c") for tile in tiles], []
    last = "%x0"
    if len(tiles) == 2:
        lines.append("%two = arith.subf %x0, %x1 : f32")
        last = "%two"
    if product.form == "bias":
        column = f"tensor<{product.columns}xf32>"
        types = f"({product.types[product.more]}, index) -> {column}"
        (read,) = text.call("read", [f"%A{product.more}", at["n"]], f"{{dims = {numbers([0])}}}", types)
        inputs.append((read, column, "c"))
        lines.append(f"%sum = arith.addf {last}, %x1 : f32")
    elif product.form == "residual":
        roles = [*("b" if product.batch else ""), "m", "n"]
        whole = f"tensor<{product.rows}x{product.columns}x{product.element}>"
        dims = f"{{dims = {numbers([len(roles) - 2, len(roles) - 1])}}}"
        types = ", ".join([product.types[product.more], *["index"] * len(roles)])
        (read,) = text.call("read", [f"%A{product.more}", *(at[r] for r in roles)], dims, f"({types}) -> {whole}")
        inputs.append((read, whole, "r, c"))
        lines += [f"%wide = arith.extf %x1 : {product.element} to f32", f"%sum = arith.addf {last}, %wide : f32"]
    elif product.form == "less the largest":
        body = "%0 = arith.maximumf %x0, %o : f32\nlinalg.yield %0 : f32"
        most = text.generic(inputs, body, f"tensor<{product.rows}xf32>", start_at="%least")
        inputs.append((most, f"tensor<{product.rows}xf32>", "r"))
        lines.append("%sum = arith.subf %x0, %x1 : f32")
    elif product.form == "relu":
        lines += ["%zero = arith.constant 0.0 : f32", f"%sum = arith.maximumf {last}, %zero : f32"]
    last = "%sum" if product.form != "plain" else last
    if product.element_out != "f32":
        lines.append(f"%less = arith.truncf {last} : f32 to {product.element_out}")
        last = "%less"
    if not lines:
        return tiles[0]
    lines.append(f"linalg.yield {last} : {product.element_out}")
    return text.generic(inputs, "\n".join(lines), f"tensor<{product.rows}x{product.columns}x{product.element_out}>")
