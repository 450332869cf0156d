"""MeshGraphNets' processor: edge and node networks over a mesh (Pfaff et al., arXiv 2010.03409)."""

import torch
from torch import Tensor, nn


class Network(nn.Module):
    """Three linear layers with ReLU, then LayerNorm."""

    def __init__(self, inputs: int, width: int):
        super().__init__()
        self.first = nn.Linear(inputs, width)
        self.second = nn.Linear(width, width)
        self.third = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.first(x))
        x = torch.relu(self.second(x))
        return self.norm(self.third(x))


class Block(nn.Module):
    """Edges from their ends, then nodes from the sum of their edges; both residual."""

    def __init__(self, width: int):
        super().__init__()
        self.edge = Network(3 * width, width)
        self.node = Network(2 * width, width)

    def forward(self, nodes: Tensor, edges: Tensor, senders: Tensor, receivers: Tensor) -> tuple[Tensor, Tensor]:
        sent, received = torch.index_select(nodes, 0, senders), torch.index_select(nodes, 0, receivers)
        edges = edges + self.edge(torch.cat([edges, sent, received], 1))
        total = torch.zeros_like(nodes).index_add(0, receivers, edges)
        return nodes + self.node(torch.cat([nodes, total], 1)), edges


class MeshGraphNets(nn.Module):
    """`blocks` message passing steps on latent vectors."""

    def __init__(self, width: int, blocks: int):
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))

    def forward(self, nodes: Tensor, edges: Tensor, senders: Tensor, receivers: Tensor) -> tuple[Tensor, Tensor]:
        for block in self.blocks:
            nodes, edges = block(nodes, edges, senders, receivers)
        return nodes, edges


def meshgraphnets(
    nodes: int = 96, edges: int = 320, width: int = 32, blocks: int = 2, dtype: torch.dtype = torch.float32
):
    """(MeshGraphNets, (nodes [nodes, width], edges [edges, width], senders i64 [edges], receivers i64 [edges]))"""
    ends = torch.randint(0, nodes, (edges,)), torch.randint(0, nodes, (edges,))
    features = torch.randn(nodes, width, dtype=dtype), torch.randn(edges, width, dtype=dtype)
    return MeshGraphNets(width, blocks).to(dtype).eval(), (*features, *ends)
