"""The experts of a layer: many small networks, of which every token asks a few.

    y = sum over the k chosen experts e of  weight_e W_down,e (silu(W_gate,e x) * W_up,e x)

Each kind of matrix is one parameter for all experts, stacked: gate_up [E, 2 F, X] (an expert's
W_gate above its W_up) and down [E, X, F]. So many tokens need two products an expert, however
they are spread, and a kernel finds all experts in one place.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from .config import MoE
from .parts import Parts


class Experts(nn.Module):
    """`forward` is the one place where routed experts are computed."""

    def __init__(self, width: int, config: MoE, parts: Parts | None = None):
        super().__init__()
        self.limit, self.parts = config.limit, parts or Parts()
        self.gate_up = nn.Parameter(_drawn(config.experts, 2 * config.width, width))
        self.down = nn.Parameter(_drawn(config.experts, width, config.width))

    def __len__(self) -> int:
        return len(self.down)

    def matrices(
        self, expert: int
    ) -> tuple[Float[Tensor, "F X"], Float[Tensor, "F X"], Float[Tensor, "X F"]]:
        """W_gate, W_up and W_down of one expert, views of the stacked ones."""
        return *self.gate_up[expert].chunk(2), self.down[expert]

    def forward(
        self,
        x_nX: Float[Tensor, "n X"],
        experts_nk: Int[Tensor, "n k"],
        weights_nk: Float[Tensor, "n k"],
        impl: str = "torch",
    ) -> Float[Tensor, "n X"]:
        """The weighted sum of what each token's k experts say.

        impl: "triton" takes the course's kernel, unless the activation is one's own.
        """
        if impl == "triton" and "swiglu" not in self.parts.own():
            from kernels import moe_experts

            gate_EFX, up_EFX = self.gate_up.chunk(2, dim=1)
            return moe_experts(
                x_nX, experts_nk, weights_nk, gate_EFX, up_EFX, self.down, limit=self.limit
            )
        if not len(x_nX):
            return x_nX
        said_nkX = (self._one_token if len(x_nX) == 1 else self._sorted)(x_nX, experts_nk)
        return (weights_nk.unsqueeze(-1) * said_nkX).sum(dim=1)

    def _one_token(self, x_1X: Tensor, experts_1k: Tensor) -> Float[Tensor, "1 k X"]:
        """A token alone: its experts one by one, each read where it lies."""
        said = []
        for expert in experts_1k[0].tolist():
            hidden_1F = self._inner(F.linear(x_1X, self.gate_up[expert]))
            said.append(F.linear(hidden_1F, self.down[expert]))
        return torch.stack(said, dim=1)

    def _sorted(self, x_nX: Tensor, experts_nk: Tensor) -> Float[Tensor, "n k X"]:
        """For many: the choices are sorted by expert, each expert that was chosen runs once on
        all its tokens, and the answers are sorted back."""
        order = experts_nk.flatten().argsort(stable=True)
        load = torch.bincount(experts_nk.flatten(), minlength=len(self)).tolist()
        sorted_cX = x_nX.index_select(0, order // experts_nk.shape[1])
        hidden_cF = self._inner(_by_expert(sorted_cX, self.gate_up, load))
        said_cX = _by_expert(hidden_cF, self.down, load)
        return said_cX.index_select(0, order.argsort()).unflatten(0, experts_nk.shape)

    def _inner(self, gate_up: Float[Tensor, "*B 2F"]) -> Float[Tensor, "*B F"]:
        return self.parts.swiglu(*gate_up.chunk(2, dim=-1), self.limit)


def _by_expert(
    sorted_ci: Float[Tensor, "c i"], weight_Eoi: Float[Tensor, "E o i"], load: list[int]
) -> Float[Tensor, "c o"]:
    """Each expert's matrix on its rows: the first `load[0]` are expert 0's, and so on."""
    parts = zip(sorted_ci.split(load), weight_Eoi.unbind())
    return torch.cat([F.linear(rows, matrix) for rows, matrix in parts if len(rows)])


def _drawn(experts: int, outputs: int, inputs: int) -> Float[Tensor, "E o i"]:
    """First weights, as `nn.Linear` would draw them for each expert."""
    bound = inputs**-0.5
    return torch.empty(experts, outputs, inputs).uniform_(-bound, bound)
