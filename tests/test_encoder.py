"""Chapter 5: a block adds what attention and an MLP have to say to each token."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course_utils.encoder import MLP, EncoderBlock, LayerScale
from course_utils.record import Record, keep, within


def noise(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def randomised(module: nn.Module) -> nn.Module:
    """Give every parameter, norms and biases too, a value of its own."""
    module.double()
    with torch.no_grad():
        for seed, parameter in enumerate(module.parameters()):
            width = parameter.shape[-1] if parameter.ndim > 1 else 4
            parameter.copy_(noise(*parameter.shape, seed=seed) / width**0.5)
    return module.eval()


def block(norm: str = "pre", D: int = 12, A: int = 3, **options: object) -> nn.Module:
    return randomised(EncoderBlock(D, A, 2 * D, norm=norm, **options))  # type: ignore[arg-type]


# The MLP


def test_the_mlp_is_two_matrices_with_a_gelu_between() -> None:
    mlp, x = randomised(MLP(3, 7)), noise(2, 5, 3, seed=9)
    W1, b1, W2, b2 = (p.detach().numpy() for p in mlp.parameters())
    hidden = x.numpy() @ W1.T + b1
    hidden *= np.vectorize(lambda z: (1 + math.erf(z / math.sqrt(2))) / 2)(hidden)
    np.testing.assert_allclose(mlp(x).detach(), hidden @ W2.T + b2)


def test_the_mlp_treats_each_token_alone() -> None:
    mlp, x = randomised(MLP(3, 7)), noise(2, 5, 3, seed=9)
    torch.testing.assert_close(mlp(x)[1, 4], mlp(x[1, 4]))


def test_exact_gelu_and_its_tanh_approximation_are_close_and_not_the_same() -> None:
    exact, approximate = MLP(3, 7), MLP(3, 7, activation="gelu_tanh")
    x = torch.linspace(-4, 4, 101)
    torch.testing.assert_close(exact.act(x), F.gelu(x))
    torch.testing.assert_close(approximate.act(x), F.gelu(x, approximate="tanh"))
    difference = (exact.act(x) - approximate.act(x)).abs().max()
    assert 1e-4 < difference < 1e-3


def test_the_mlp_holds_twice_the_parameters_of_attention() -> None:
    with torch.device("meta"):
        base = EncoderBlock(768, 12, 3072)

    def count(module: nn.Module) -> int:
        return sum(p.numel() for p in module.parameters())

    assert count(base.mlp) == 2_362_368 + 2_360_064 == 4_722_432
    assert count(base.attn) == 2_362_368
    assert count(base.norm1) + count(base.norm2) == 2 * 1_536
    assert count(base) == 7_087_872


# LayerNorm and its small number


def layer_norm_by_hand(x: Tensor, norm: nn.LayerNorm, eps: float) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    variance = centred.square().mean(-1, keepdim=True)
    return centred / (variance + eps).sqrt() * norm.weight + norm.bias


@pytest.mark.parametrize("eps", [1e-12, 1e-6, 1e-5])
def test_layer_norm_is_as_by_hand_with_the_eps_asked_for(eps: float) -> None:
    one, x = block(layer_norm_eps=eps), noise(2, 5, 12, seed=9)
    x[:, 0] *= 1e-3  # a token of low variance shows which eps it is
    for norm in (one.norm1, one.norm2):
        torch.testing.assert_close(norm(x), layer_norm_by_hand(x, norm, eps))


def test_eps_is_1e_6_and_a_token_of_low_variance_shows_it() -> None:
    assert (
        EncoderBlock(12, 3, 24).norm1.eps == EncoderBlock(12, 3, 24).norm2.eps == 1e-6
    )
    faint = 1e-3 * noise(1, 5, 12, seed=9)
    vit, other = block(), block(layer_norm_eps=1e-5)
    assert (vit.norm1(faint) - other.norm1(faint)).abs().max() > 0.1
    assert not torch.allclose(vit(faint), other(faint), atol=1e-2)


# The block


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize(("D", "A"), [(12, 3), (8, 1), (16, 8)])
@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh"])
def test_the_block_is_torchs_own_encoder_layer_with_copied_weights(
    norm: str, D: int, A: int, activation: str
) -> None:
    ours = block(norm, D, A, activation=activation, layer_norm_eps=1e-3)
    theirs = nn.TransformerEncoderLayer(
        D,
        A,
        2 * D,
        dropout=0.0,
        activation=nn.GELU("tanh" if activation == "gelu_tanh" else "none"),
        layer_norm_eps=1e-3,
        batch_first=True,
        norm_first=norm == "pre",
    ).double()
    names = {
        "attn.qkv.weight": "self_attn.in_proj_weight",
        "attn.qkv.bias": "self_attn.in_proj_bias",
        "attn.proj.weight": "self_attn.out_proj.weight",
        "attn.proj.bias": "self_attn.out_proj.bias",
        "mlp.fc1.weight": "linear1.weight",
        "mlp.fc1.bias": "linear1.bias",
        "mlp.fc2.weight": "linear2.weight",
        "mlp.fc2.bias": "linear2.bias",
    }
    theirs.load_state_dict(
        {names.get(name, name): value for name, value in ours.state_dict().items()}
    )
    x = noise(3, 7, D, seed=99)
    torch.testing.assert_close(ours(x), theirs(x))
    assert not torch.allclose(ours(x), x, atol=0.1)


def test_pre_norm_normalises_what_a_branch_reads() -> None:
    one, x = block("pre", layer_scale=0.1), noise(2, 5, 12, seed=99)
    y = x + one.ls1.gamma * one.attn(layer_norm_by_hand(x, one.norm1, 1e-6))
    y = y + one.ls2.gamma * one.mlp(layer_norm_by_hand(y, one.norm2, 1e-6))
    torch.testing.assert_close(one(x), y)


def test_post_norm_normalises_after_each_addition() -> None:
    one, x = block("post", layer_scale=0.1), noise(2, 5, 12, seed=99)
    y = layer_norm_by_hand(x + one.ls1.gamma * one.attn(x), one.norm1, 1e-6)
    y = layer_norm_by_hand(y + one.ls2.gamma * one.mlp(y), one.norm2, 1e-6)
    torch.testing.assert_close(one(x), y)


def test_with_silent_branches_the_stream_passes_a_pre_norm_block_untouched() -> None:
    x = noise(2, 5, 12, seed=99)
    pre, post = block("pre"), block("post")
    for one in (pre, post):
        for last in (one.attn.proj, one.mlp.fc2):
            nn.init.zeros_(last.weight)
            nn.init.zeros_(last.bias)
    assert torch.equal(pre(x), x)
    torch.testing.assert_close(post(x), post.norm2(post.norm1(x)))


def test_after_a_fresh_post_norm_block_each_token_has_mean_0_and_variance_1() -> None:
    one = block("post")
    nn.init.ones_(one.norm2.weight)
    nn.init.zeros_(one.norm2.bias)
    y = one(5 + 3 * noise(2, 5, 12, seed=99))
    torch.testing.assert_close(y.mean(-1), torch.zeros(2, 5).double())
    torch.testing.assert_close(
        y.var(-1, correction=0), torch.ones(2, 5).double(), atol=1e-4, rtol=0
    )


def test_layer_scale_weighs_a_branch_feature_by_feature() -> None:
    scale = LayerScale(3, 0.5)
    assert scale.gamma.tolist() == [0.5, 0.5, 0.5]
    with torch.no_grad():
        scale.gamma.copy_(torch.tensor([1.0, 0.0, -2.0]))
    assert scale(torch.ones(2, 2, 3))[1, 1].tolist() == [1, 0, -2]
    one, x = block(layer_scale=1e-5), noise(2, 5, 12, seed=99)
    nn.init.zeros_(one.ls1.gamma)
    nn.init.zeros_(one.ls2.gamma)
    assert torch.equal(one(x), x)


def test_layer_scale_starts_where_it_is_told_and_is_absent_by_default() -> None:
    one = EncoderBlock(12, 3, 24, layer_scale=1e-5)
    for scale in (one.ls1, one.ls2):
        torch.testing.assert_close(scale.gamma, torch.full((12,), 1e-5))
    assert not [name for name in EncoderBlock(12, 3, 24).state_dict() if "ls" in name]


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_shuffled_tokens_leave_the_block_shuffled_the_same_way(norm: str) -> None:
    one, x = block(norm), noise(2, 6, 12, seed=99)
    order = torch.tensor([3, 1, 5, 0, 2, 4])
    torch.testing.assert_close(one(x[:, order]), one(x)[:, order])


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("read", [1, 3])
def test_the_first_tokens_are_the_same_when_only_they_are_read(
    norm: str, read: int
) -> None:
    one, x = block(norm, layer_scale=0.1), noise(2, 6, 12, seed=99)
    assert one(x, read=read).shape == (2, read, 12)
    torch.testing.assert_close(one(x, read=read), one(x)[:, :read])


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("layer_scale", [None, 0.1])
def test_gradient_reaches_every_parameter(norm: str, layer_scale: float | None) -> None:
    one = block(norm, layer_scale=layer_scale)
    one(noise(2, 6, 12, seed=99)).pow(3).sum().backward()
    for name, parameter in one.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 1e-9, name


def test_dropout_works_while_training_and_only_then() -> None:
    x = noise(2, 6, 12, seed=99)
    plain = block()
    for where in ("drop", "attn_drop"):
        one = block(**{where: 0.5})
        torch.testing.assert_close(one(x), plain(x))
        one.train()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            assert not torch.allclose(one(x), one(x)), where


def test_the_mlp_drops_hidden_features_and_its_output() -> None:
    mlp, x = MLP(8, 64, drop=0.5).train(), torch.ones(50, 8)
    seen: list[Tensor] = []
    mlp.fc2.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for z in (mlp(x), seen[0]):
            assert (z == 0).double().mean().item() == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_tokens_keep_their_type(norm: str, dtype: torch.dtype) -> None:
    one, x = block(norm), noise(2, 6, 12, seed=99)
    expected = one(x)
    y = one.to(dtype)(x.to(dtype))
    assert y.dtype == dtype
    torch.testing.assert_close(y.double(), expected, atol=0.1, rtol=0.1)


def test_an_unknown_kind_of_norm_is_refused_and_not_taken_for_post() -> None:
    with pytest.raises(ValueError, match=r"Pre.*pre.*post"):
        EncoderBlock(12, 3, 24, norm="Pre")  # type: ignore[arg-type]


def test_an_unknown_activation_is_refused_and_not_taken_for_gelu() -> None:
    with pytest.raises(ValueError, match=r"relu.*gelu"):
        MLP(12, 24, activation="relu")  # type: ignore[arg-type]


# The record


ATTEND, THINK = ["attn.weights", "attn", "add1"], ["mlp.hidden", "mlp", "add2"]
ORDER = {
    "pre": ["norm1", *ATTEND, "norm2", *THINK],
    "post": [*ATTEND, "norm1", *THINK, "norm2"],
}


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_record_names_every_step_in_the_order_computed(norm: str) -> None:
    one, x, record = block(norm, layer_scale=0.1), noise(2, 5, 12, seed=99), Record()
    y = one(x, record)
    torch.testing.assert_close(y, one(x))
    kept = record.tensors
    assert list(kept) == ORDER[norm]
    assert {name: tuple(step.shape) for name, step in kept.items()} == {
        **dict.fromkeys(ORDER[norm], (2, 5, 12)),
        "attn.weights": (2, 3, 5, 5),
        "mlp.hidden": (2, 5, 24),
    }
    between = kept["norm1"] if norm == "post" else kept["add1"]
    assert torch.equal(kept["add1"], x + kept["attn"])
    assert torch.equal(kept["add2"], between + kept["mlp"])
    assert torch.equal(
        kept["norm2"], one.norm2(kept["add2" if norm == "post" else "add1"])
    )
    assert torch.equal(y, kept[ORDER[norm][-1]])
    torch.testing.assert_close(kept["mlp"], one.ls2(one.mlp.fc2(kept["mlp.hidden"])))


def test_a_record_can_keep_one_kind_of_step_only() -> None:
    record = Record(only="weights", prefix="blocks.3.")
    block()(noise(2, 5, 12, seed=99), record)
    assert list(record.tensors) == ["blocks.3.attn.weights"]


def test_keeping_gives_the_tensor_back_and_nothing_is_kept_unasked() -> None:
    x = noise(2)
    assert keep(None, "x", x) is x
    assert within(None, "part") is None
    record = Record()
    part = within(within(record, "outer"), "inner")
    assert keep(part, "x", x) is x
    assert list(record.tensors) == ["outer.inner.x"]
    assert record.tensors["outer.inner.x"] is x
    assert not Record().tensors  # records do not share what they keep
