"""GraphCast: grid to mesh, steps on the mesh, mesh to grid (Lam et al., arXiv 2212.12794)."""

import torch
from torch import Tensor, nn


class Network(nn.Module):
    """Two linear layers with SiLU between them, then LayerNorm."""

    def __init__(self, inputs: int, width: int):
        super().__init__()
        self.up = nn.Linear(inputs, width)
        self.down = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.down(nn.functional.silu(self.up(x))))


class Interaction(nn.Module):
    """Edges from the nodes at their ends, then receiving nodes from the sum of their edges; residual."""

    def __init__(self, width: int):
        super().__init__()
        self.edge = Network(3 * width, width)
        self.node = Network(2 * width, width)

    def forward(
        self, source: Tensor, target: Tensor, edges: Tensor, senders: Tensor, receivers: Tensor
    ) -> tuple[Tensor, Tensor]:
        ends = torch.index_select(source, 0, senders), torch.index_select(target, 0, receivers)
        messages = self.edge(torch.cat([edges, *ends], 1))
        total = torch.zeros_like(target).index_add(0, receivers, messages)
        return target + self.node(torch.cat([target, total], 1)), edges + messages


class Processor(nn.Module):
    """`blocks` interactions of the mesh with itself."""

    def __init__(self, width: int, blocks: int):
        super().__init__()
        self.blocks = nn.ModuleList(Interaction(width) for _ in range(blocks))

    def forward(self, mesh: Tensor, edges: Tensor, senders: Tensor, receivers: Tensor) -> tuple[Tensor, Tensor]:
        for block in self.blocks:
            mesh, edges = block(mesh, mesh, edges, senders, receivers)
        return mesh, edges


class GraphCast(nn.Module):
    """Encoder, processor and decoder on latent vectors of grid points, mesh nodes and three kinds of edges."""

    def __init__(self, width: int, blocks: int):
        super().__init__()
        self.encoder = Interaction(width)
        self.grid = Network(width, width)
        self.processor = Processor(width, blocks)
        self.decoder = Interaction(width)

    def forward(
        self,
        grid: Tensor,
        mesh: Tensor,
        grid_to_mesh: tuple[Tensor, Tensor, Tensor],
        mesh_to_mesh: tuple[Tensor, Tensor, Tensor],
        mesh_to_grid: tuple[Tensor, Tensor, Tensor],
    ) -> Tensor:
        mesh, _ = self.encoder(grid, mesh, *grid_to_mesh)
        grid = grid + self.grid(grid)
        mesh, _ = self.processor(mesh, *mesh_to_mesh)
        grid, _ = self.decoder(mesh, grid, *mesh_to_grid)
        return grid


def _edges(count: int, sources: int, targets: int, width: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    senders, receivers = torch.randint(0, sources, (count,)), torch.randint(0, targets, (count,))
    return torch.randn(count, width, dtype=dtype), senders, receivers


def graphcast(grid: int = 128, mesh: int = 48, edges: int = 192, width: int = 32, blocks: int = 2, dtype=torch.float32):
    """(GraphCast, (grid [grid, width], mesh [mesh, width], and (edges [edges, width], senders, receivers) thrice))"""
    nodes = torch.randn(grid, width, dtype=dtype), torch.randn(mesh, width, dtype=dtype)
    joins = [_edges(edges, a, b, width, dtype) for a, b in ((grid, mesh), (mesh, mesh), (mesh, grid))]
    return GraphCast(width, blocks).to(dtype).eval(), (*nodes, *joins)


def processor(mesh: int = 48, edges: int = 192, width: int = 32, blocks: int = 2, dtype: torch.dtype = torch.float32):
    """(Processor, (mesh [mesh, width], edges [edges, width], senders i64 [edges], receivers i64 [edges]))"""
    nodes = torch.randn(mesh, width, dtype=dtype)
    return Processor(width, blocks).to(dtype).eval(), (nodes, *_edges(edges, mesh, mesh, width, dtype))
