"""A graph attention layer: a softmax over the edges that end in a node (Velickovic et al., arXiv 1710.10903)."""

import torch
from torch import Tensor, nn


class GAT(nn.Module):
    """[nodes, inputs] -> [nodes, heads * width]; the largest score of all stands in for each node's own."""

    def __init__(self, inputs: int, width: int, heads: int):
        super().__init__()
        self.heads, self.width = heads, width
        self.project = nn.Linear(inputs, heads * width, bias=False)
        self.sender = nn.Parameter(torch.randn(heads, width) * 0.1)
        self.receiver = nn.Parameter(torch.randn(heads, width) * 0.1)

    def forward(self, nodes: Tensor, senders: Tensor, receivers: Tensor) -> Tensor:
        x = self.project(nodes).view(-1, self.heads, self.width)
        sent = torch.index_select((x * self.sender).sum(-1), 0, senders)
        received = torch.index_select((x * self.receiver).sum(-1), 0, receivers)
        scores = nn.functional.leaky_relu(sent + received, 0.2)
        weights = torch.exp(scores - scores.amax())
        total = weights.new_zeros(nodes.shape[0], self.heads).index_add(0, receivers, weights)
        messages = torch.index_select(x, 0, senders) * weights[:, :, None]
        gathered = torch.zeros_like(x).index_add(0, receivers, messages)
        return nn.functional.elu(gathered / (total + 1e-6)[:, :, None]).flatten(1)


def gat(nodes: int = 64, edges: int = 256, inputs: int = 32, width: int = 16, heads: int = 4, dtype=torch.float32):
    """(GAT, (nodes [nodes, inputs], senders i64 [edges], receivers i64 [edges]))"""
    ends = torch.randint(0, nodes, (edges,)), torch.randint(0, nodes, (edges,))
    return GAT(inputs, width, heads).to(dtype).eval(), (torch.randn(nodes, inputs, dtype=dtype), *ends)
