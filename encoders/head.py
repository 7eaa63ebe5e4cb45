"""The layer between pooling and loss that SimCSE calls MLP: a linear map and tanh, in float32."""

import torch
from torch import Tensor, nn


class TanhHead(nn.Module):
    """(B, width) -> (B, width) float32. The weights are drawn from ``seed`` alone, as a transformer draws its own."""

    def __init__(self, width: int, *, seed: int, std: float = 0.02) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        with torch.no_grad():
            self.linear.weight.normal_(std=std, generator=torch.Generator().manual_seed(seed))
            self.linear.bias.zero_()

    def forward(self, vectors_BD: Tensor) -> Tensor:
        with torch.autocast(vectors_BD.device.type, enabled=False):  # 8 bits of mantissa would go into every cosine
            return self.linear(vectors_BD.to(self.linear.weight.dtype)).float().tanh()
