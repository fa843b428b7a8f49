"""Chapter 5: every token looks at every token, and their order is not seen."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from course_utils.attention import MultiHeadAttention, attention_weights
from course_utils.record import Record

Array = NDArray[np.float64]
HEADS = [(8, 1), (8, 2), (12, 3), (64, 4), (24, 24)]


def noise(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def attention(embed_dim: int, num_heads: int, **options: object) -> MultiHeadAttention:
    """A layer in double precision; its scores are of the order of 1."""
    layer = MultiHeadAttention(embed_dim, num_heads, **options).double()  # type: ignore[arg-type]
    with torch.no_grad():
        for seed, parameter in enumerate(layer.parameters()):
            parameter.copy_(noise(*parameter.shape, seed=seed) / embed_dim**0.5)
    return layer.eval()


def weights_of(layer: MultiHeadAttention, x: Tensor, **options: object) -> Tensor:
    record = Record()
    layer(x, record, **options)
    return record.tensors["weights"]


def softmax(scores: Array) -> Array:
    exponentials = np.exp(scores - scores.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


# The weights


@given(st.integers(1, 6), st.integers(1, 9), st.integers(1, 2))
@settings(deadline=None, max_examples=40)
def test_weights_are_a_loop_over_tokens_by_hand(T: int, width: int, B: int) -> None:
    q, k = noise(B, T, width), noise(B, T, width, seed=1)
    weights = attention_weights(q, k)
    for b in range(B):
        for query in range(T):
            scores = [
                sum(q[b, query, i].item() * k[b, key, i].item() for i in range(width))
                / width**0.5
                for key in range(T)
            ]
            np.testing.assert_allclose(weights[b, query], softmax(np.array(scores)))


def test_each_query_shares_out_one_over_the_keys() -> None:
    weights = attention_weights(noise(2, 3, 5, 4), noise(2, 3, 5, 4, seed=1))
    assert weights.shape == (2, 3, 5, 5)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 3, 5).double())
    assert (weights.sum(-2) - 1).abs().max() > 0.1  # what a key receives is free
    assert (weights > 0).all()  # no mask: the first token sees the last


@pytest.mark.parametrize("width", [1, 2, 16, 64])
def test_weights_mix_values_as_scaled_dot_product_attention(width: int) -> None:
    q, k, v = (noise(2, 3, 5, width, seed=seed) for seed in range(3))
    weights = attention_weights(q, k)
    if width > 1:
        assert weights.mean() < weights.max() < 0.98, "saturated: any scale would pass"
    torch.testing.assert_close(weights @ v, F.scaled_dot_product_attention(q, k, v))


def test_keys_that_are_all_alike_are_read_alike() -> None:
    weights = attention_weights(noise(4, 8), noise(1, 8, seed=1).expand(4, 8))
    torch.testing.assert_close(weights, torch.full((4, 4), 0.25).double())


def test_without_the_square_root_wide_heads_saturate() -> None:
    q, k = noise(64, 256), noise(64, 256, seed=1)
    scaled = attention_weights(q, k)
    bare = (q @ k.T).softmax(-1)
    assert scaled.max(-1)[0].mean() < 0.25
    assert bare.max(-1)[0].mean() > 0.8


# The layer


@pytest.mark.parametrize(("D", "A"), HEADS)
@pytest.mark.parametrize("fused", [False, True])
def test_the_layer_is_torchs_own_with_copied_weights(
    D: int, A: int, fused: bool
) -> None:
    ours = attention(D, A)
    theirs = nn.MultiheadAttention(D, A, batch_first=True).double()
    with torch.no_grad():
        theirs.in_proj_weight.copy_(ours.qkv.weight)
        theirs.in_proj_bias.copy_(ours.qkv.bias)
        theirs.out_proj.load_state_dict(ours.proj.state_dict())
    x = noise(3, 7, D, seed=9)
    expected, weights = theirs(x, x, x, average_attn_weights=False)
    torch.testing.assert_close(ours(x, fused=fused), expected)
    assert weights_of(ours, x).shape == (3, A, 7, 7)
    torch.testing.assert_close(weights_of(ours, x), weights)
    if 1 < A < D:
        assert weights.max() < 0.9, "saturated: any scale would pass"
        assert not torch.allclose(weights[:, 0], weights[:, 1])


def test_the_layer_is_a_loop_over_heads_in_numpy() -> None:
    D, A, width = 12, 3, 4
    layer, x = attention(D, A), noise(5, D, seed=9)
    # Rows of the fused weights: all queries, then all keys, then all values.
    Wq, Wk, Wv = layer.qkv.weight.detach().numpy().reshape(3, D, D)
    bq, bk, bv = layer.qkv.bias.detach().numpy().reshape(3, D)
    q, k, v = (x.numpy() @ W.T + b for W, b in ((Wq, bq), (Wk, bk), (Wv, bv)))
    heads, weights = [], []
    for a in range(A):
        own = slice(a * width, (a + 1) * width)
        weights.append(softmax(q[:, own] @ k[:, own].T / width**0.5))
        heads.append(weights[-1] @ v[:, own])
    proj, bias = layer.proj.weight.detach().numpy(), layer.proj.bias.detach().numpy()
    expected = np.concatenate(heads, axis=1) @ proj.T + bias
    np.testing.assert_allclose(layer(x[None])[0].detach(), expected)
    np.testing.assert_allclose(weights_of(layer, x[None])[0].detach(), weights)


@pytest.mark.parametrize("T", [1, 5, 64, 65, 100])
def test_the_explicit_and_the_fused_path_agree(T: int) -> None:
    layer, x = attention(32, 4).float(), noise(2, T, 32, seed=9).float()
    outputs, gradients = [], []
    for fused in (False, True, None):
        own = x.clone().requires_grad_()
        outputs.append(layer(own, fused=fused))
        outputs[-1].square().mean().backward()
        gradients.append(own.grad)
    for other in (1, 2):
        torch.testing.assert_close(outputs[0], outputs[other], atol=1e-6, rtol=0)
        torch.testing.assert_close(gradients[0], gradients[other], atol=1e-6, rtol=0)


@pytest.mark.parametrize("T", [5, 65])
@pytest.mark.parametrize("fused", [None, False, True])
def test_asking_for_weights_always_gives_them_and_changes_nothing(
    T: int, fused: bool | None
) -> None:
    layer, x = attention(8, 2), noise(2, T, 8, seed=9)
    record = Record()
    torch.testing.assert_close(layer(x, record, fused=fused), layer(x))
    assert list(record.tensors) == ["weights"]
    assert record.tensors["weights"].shape == (2, 2, T, T)


@pytest.mark.parametrize("fused", [False, True])
def test_shuffled_tokens_come_out_shuffled_the_same_way(fused: bool) -> None:
    layer, x = attention(12, 3), noise(2, 6, 12, seed=9)
    order = torch.tensor([3, 1, 5, 0, 2, 4])
    torch.testing.assert_close(
        layer(x[:, order], fused=fused), layer(x, fused=fused)[:, order]
    )
    torch.testing.assert_close(
        weights_of(layer, x[:, order]), weights_of(layer, x)[..., order, :][..., order]
    )


@pytest.mark.parametrize("fused", [False, True])
def test_images_of_a_batch_do_not_look_at_each_other(fused: bool) -> None:
    layer, x = attention(8, 2), noise(7, 5, 8, seed=9)
    together = layer(x, fused=fused)
    for image, own in zip(x, together, strict=True):
        torch.testing.assert_close(layer(image[None], fused=fused)[0], own)
    assert layer(x[:0], fused=fused).shape == (0, 5, 8)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("read", [1, 3, 6])
def test_the_first_tokens_come_out_the_same_when_only_they_ask(
    read: int, fused: bool
) -> None:
    layer, x = attention(12, 3), noise(2, 6, 12, seed=9)
    some = layer(x, read=read, fused=fused)
    assert some.shape == (2, read, 12)
    torch.testing.assert_close(some, layer(x, fused=fused)[:, :read])
    weights = weights_of(layer, x, read=read)
    torch.testing.assert_close(weights, weights_of(layer, x)[:, :, :read])


def test_each_head_writes_its_own_part_of_the_width() -> None:
    layer, x = attention(12, 3), noise(1, 5, 12, seed=9)
    with torch.no_grad():
        layer.proj.weight.copy_(torch.eye(12))
        before = layer(x)
        layer.qkv.weight[24:28] += 1  # the values of head 0
        changed = (layer(x) != before).any(dim=(0, 1))
    assert changed.tolist() == 4 * [True] + 8 * [False]


def test_heads_share_the_width_and_add_no_parameters() -> None:
    counts = {
        sum(p.numel() for p in MultiHeadAttention(64, A).parameters())
        for A in (1, 2, 4, 8, 64)
    }
    assert counts == {4 * (64 * 64 + 64)}
    with torch.device("meta"):
        base = MultiHeadAttention(768, 12)
    assert sum(p.numel() for p in base.parameters()) == 2_362_368


def test_a_bias_on_the_keys_changes_nothing() -> None:
    # It adds the same to all scores of a query, and the softmax takes that away:
    # a loader that drops it goes unnoticed, one that moves it does not.
    layer, x = attention(12, 3), noise(2, 5, 12, seed=9)
    before = layer(x)
    with torch.no_grad():
        layer.qkv.bias[12:24] += 3
        torch.testing.assert_close(layer(x), before)
        layer.qkv.bias[:12] += 3
        assert not torch.allclose(layer(x), before)


def test_queries_keys_and_values_can_go_without_bias() -> None:
    layer, x = attention(12, 3, qkv_bias=False), noise(2, 5, 12, seed=9)
    assert set(layer.state_dict()) == {"qkv.weight", "proj.weight", "proj.bias"}
    biased = attention(12, 3)
    biased.load_state_dict(layer.state_dict() | {"qkv.bias": torch.zeros(36)})
    torch.testing.assert_close(layer(x), biased(x))


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("where", ["attn_drop", "proj_drop"])
def test_dropout_works_while_training_and_only_then(where: str, fused: bool) -> None:
    dropping, plain = attention(8, 2, **{where: 0.5}), attention(8, 2)
    x = noise(2, 65, 8, seed=9)
    torch.testing.assert_close(dropping(x, fused=fused), plain(x, fused=fused))
    dropping.train()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        one, other = dropping(x, fused=fused), dropping(x, fused=fused)
    assert not torch.allclose(one, other)
    zeros = (one == 0).double().mean().item()
    assert zeros == pytest.approx(0.5 if where == "proj_drop" else 0, abs=0.1)


def test_weights_are_handed_out_before_dropout() -> None:
    layer, x = attention(8, 2, attn_drop=0.5), noise(2, 5, 8, seed=9)
    expected = weights_of(layer, x)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        torch.testing.assert_close(weights_of(layer.train(), x), expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("fused", [False, True])
def test_tokens_keep_their_type(dtype: torch.dtype, fused: bool) -> None:
    layer, x = attention(12, 3), noise(2, 5, 12, seed=9)
    expected = layer(x)
    mixed = layer.to(dtype)(x.to(dtype), fused=fused)
    assert mixed.dtype == dtype
    torch.testing.assert_close(mixed.double(), expected, atol=0.05, rtol=0.05)


@pytest.mark.parametrize(("D", "A", "remedy"), [(100, 12, 108), (64, 5, 65), (2, 4, 4)])
def test_heads_that_cannot_share_the_width_are_refused(
    D: int, A: int, remedy: int
) -> None:
    message = rf"embed_dim {D} .* {A} heads: .*multiple of {A}, such as {remedy}"
    with pytest.raises(ValueError, match=message):
        MultiHeadAttention(D, A)
    MultiHeadAttention(remedy, A)


@pytest.mark.parametrize("A", [0, -2])
def test_there_is_at_least_one_head(A: int) -> None:
    with pytest.raises(ValueError, match=str(A)):
        MultiHeadAttention(8, A)


# The shuffle experiment of chapter 4, with the weights of chapter 5


def largest_change(
    order: list[int], scale: float, *, read_cls: bool = False, redraw: bool = False
) -> float:
    """How far the read-out moves when the patches of a 4×4 image are shuffled."""
    rng = np.random.default_rng(3)
    image = np.arange(16.0).reshape(4, 4) / 15
    patches = image.reshape(2, 2, 2, 2).swapaxes(1, 2).reshape(4, 4)
    E = rng.normal(0, 0.5, (4, 8))
    positions = (
        rng.normal(0, 0.5 * scale, (4, 8))
        if redraw
        else scale * rng.normal(0, 0.5, (4, 8))
    )
    Wq, Wk, Wv = (torch.from_numpy(rng.normal(0, 0.3, (8, 8))) for _ in range(3))
    cls = rng.normal(0, 0.5, (1, 8))

    def read_out(patches: Array) -> Tensor:
        tokens = patches @ E + positions
        if read_cls:
            tokens = np.concatenate([cls, tokens])
        x = torch.from_numpy(tokens)
        y = x + attention_weights(x @ Wq, x @ Wk) @ (x @ Wv)
        return y[0] if read_cls else y.mean(0)

    return (read_out(patches[order]) - read_out(patches)).abs().max().item()


SHUFFLED, IN_ORDER = [3, 1, 0, 2], [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("scale", "change"), [(0, 0.000), (1, 0.042), (2, 0.014), (4, 0.161)]
)
@pytest.mark.parametrize("redraw", [False, True])
def test_positions_make_the_order_count_as_the_lesson_prints(
    scale: float, change: float, redraw: bool
) -> None:
    moved = largest_change(SHUFFLED, scale, redraw=redraw)
    assert f"{moved:.3f}" == f"{change:.3f}"
    assert largest_change(IN_ORDER, scale) == 0


def test_reading_cls_does_not_see_the_order_either() -> None:
    assert largest_change(SHUFFLED, 0, read_cls=True) < 1e-12
    assert largest_change(SHUFFLED, 1, read_cls=True) > 1e-3
