"""AdamW and Muon: who trains which weights, and how far each step goes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from course_utils.optimizers import Muon, adamw, muon_names, orthogonal
from course_utils.vit import VisionTransformer, ViTConfig


def micro() -> VisionTransformer:
    return VisionTransformer(
        ViTConfig.preset("micro"), torch.Generator().manual_seed(0)
    )


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def trained_by(optimizer: torch.optim.Optimizer, model: nn.Module) -> set[str]:
    names = {id(p): name for name, p in model.named_parameters()}
    return {names[id(p)] for g in optimizer.param_groups for p in g["params"]}


# AdamW


def test_decay_is_on_weight_matrices_only() -> None:
    model = micro()
    decayed, spared = adamw(model, lr=1e-3, weight_decay=0.3).param_groups
    names = {id(p): name for name, p in model.named_parameters()}
    assert decayed["weight_decay"] == 0.3
    assert spared["weight_decay"] == 0
    assert all(names[id(p)].endswith(".weight") for p in decayed["params"])
    assert {"cls_token", "pos_embed", "norm.weight", "head.bias"} <= {
        names[id(p)] for p in spared["params"]
    }
    assert len(decayed["params"]) + len(spared["params"]) == len(names)


def test_each_weight_is_trained_by_one_of_the_two() -> None:
    model = micro()
    muon = trained_by(Muon(model, lr=1e-3), model)
    rest = trained_by(adamw(model, 1e-3, 0.0, without=muon_names(model)), model)
    assert muon | rest == {name for name, _ in model.named_parameters()}
    assert not muon & rest
    kinds = ("attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2")
    assert muon == {f"blocks.{i}.{kind}.weight" for i in (0, 1) for kind in kinds}


def test_frozen_matrices_are_trained_by_neither() -> None:
    model = micro()
    model.blocks[0].requires_grad_(False)
    muon = trained_by(Muon(model, lr=1e-3), model)
    rest = trained_by(adamw(model, 1e-3, 0.0, without=muon_names(model)), model)
    assert not [name for name in muon | rest if name.startswith("blocks.0.")]


# Muon


@pytest.mark.parametrize("shape", [(16, 16), (16, 64), (64, 16), (3, 5)])
def test_all_directions_come_out_about_as_long_and_point_where_they_did(
    shape: tuple[int, int],
) -> None:
    matrix = noise(*shape)
    u, before, v = torch.linalg.svd(matrix, full_matrices=False)
    assert before.max() / before.min() > 1.5  # there is something to do
    made = orthogonal(matrix)
    assert made.shape == shape
    turned = u.T @ made @ v.T
    after = turned.diagonal()
    assert after.min() > 0.6
    assert after.max() < 1.3
    assert (turned - torch.diag(after)).abs().max() < 1e-4


def test_matrices_are_taken_each_for_itself_and_at_any_scale() -> None:
    stack = noise(2, 3, 4, 6)
    made = orthogonal(stack)
    torch.testing.assert_close(made[1, 2], orthogonal(stack[1, 2]))
    torch.testing.assert_close(orthogonal(1e-3 * stack), made)
    assert not orthogonal(torch.zeros(4, 6)).any()


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="this torch has none")
def test_muon_is_pytorchs_with_queries_keys_and_values_apart() -> None:
    model = micro()
    named = {
        name: p for name, p in model.named_parameters() if name in muon_names(model)
    }
    copies = {
        name: [
            nn.Parameter(part.clone())
            for part in p.detach().chunk(3 if "qkv" in name else 1)
        ]
        for name, p in named.items()
    }
    options = {"lr": 0.02, "weight_decay": 0.1, "momentum": 0.9}
    ours = Muon(model, **options)
    theirs = torch.optim.Muon(
        [part for parts in copies.values() for part in parts],
        adjust_lr_fn="match_rms_adamw",
        **options,
    )
    for step in range(3):
        for i, (name, p) in enumerate(named.items()):
            p.grad = noise(*p.shape, seed=100 * step + i)
            parts = p.grad.chunk(len(copies[name]))
            for copy, part in zip(copies[name], parts, strict=True):
                copy.grad = part
        before = {name: p.detach().clone() for name, p in named.items()}
        ours.step()
        theirs.step()
        for name, p in named.items():
            moved = p.detach() - before[name]
            expected = torch.cat(list(copies[name])).detach() - before[name]
            # Theirs computes in bfloat16, two to three digits.
            assert (moved - expected).norm() < 0.05 * expected.norm(), (name, step)


def test_a_step_is_as_long_as_one_of_adamw() -> None:
    model = micro()
    before = model.blocks[0].mlp.fc1.weight.detach().clone()
    for p in model.parameters():
        p.grad = noise(*p.shape)
    Muon(model, lr=0.01, momentum=0.0).step()
    moved = model.blocks[0].mlp.fc1.weight.detach() - before
    # Liu et al. 2025: the root mean square of AdamW's updates is about 0.2 of its rate.
    assert moved.square().mean().sqrt().item() == pytest.approx(0.002, rel=0.25)


def test_decay_pulls_towards_zero_where_the_gradient_is_silent() -> None:
    model = micro()
    weight = model.blocks[0].mlp.fc1.weight
    before = weight.detach().clone()
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    Muon(model, lr=0.5, weight_decay=0.1).step()
    torch.testing.assert_close(weight.detach(), before * 0.95)
