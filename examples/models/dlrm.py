"""DLRM: embeddings, pairwise dots, two MLPs (Naumov et al., arXiv 1906.00091)."""

import torch
from torch import Tensor, nn


def layers(widths: tuple[int, ...], last_relu: bool) -> nn.Sequential:
    """Linear layers with ReLU between them, and after the last when asked."""
    found: list[nn.Module] = []
    for a, b in zip(widths, widths[1:], strict=False):
        found += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*found if last_relu else found[:-1])


class DLRM(nn.Module):
    """One category a table; the dots of all pairs of vectors, the lower triangle of Z Z^T."""

    def __init__(self, tables: int, rows: int, bottom: tuple[int, ...], top: tuple[int, ...]):
        super().__init__()
        width, vectors = bottom[-1], tables + 1
        self.bottom = layers(bottom, last_relu=True)
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(tables))
        self.top = layers((width + vectors * (vectors - 1) // 2, *top), last_relu=False)
        row, column = torch.tril_indices(vectors, vectors, offset=-1)
        self.register_buffer("pairs", row * vectors + column)

    def forward(self, dense: Tensor, categories: Tensor) -> Tensor:
        x = self.bottom(dense)
        rows = [table(categories[:, i]) for i, table in enumerate(self.tables)]
        vectors = torch.stack([x, *rows], 1)
        dots = torch.bmm(vectors, vectors.transpose(1, 2))
        dots = torch.index_select(dots.flatten(1), 1, self.pairs)
        return torch.sigmoid(self.top(torch.cat([x, dots], 1)))


def dlrm(
    batch: int = 64,
    tables: int = 6,
    rows: int = 200,
    bottom: tuple[int, ...] = (13, 64, 32, 16),
    top: tuple[int, ...] = (64, 32, 1),
    dtype: torch.dtype = torch.float32,
):
    """(DLRM, (dense [batch, 13], categories i64 [batch, tables]))"""
    inputs = torch.randn(batch, bottom[0], dtype=dtype), torch.randint(0, rows, (batch, tables))
    return DLRM(tables, rows, bottom, top).to(dtype).eval(), inputs
