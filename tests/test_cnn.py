"""Chapter 8: a small convolutional network, and what it knows before training."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load, save
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from course_utils.cnn import ReceptiveField, SmallCNN, receptive_field, shift
from course_utils.counting import count
from course_utils.data import load_digits
from course_utils.training import Recipe, evaluate, fit
from course_utils.vit import VisionTransformer, ViTConfig


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)).double()


def fresh(seed: int = 0, **changes: Any) -> SmallCNN:
    generator = torch.Generator().manual_seed(seed)
    return SmallCNN(generator=generator, **changes).eval()


def lively(**changes: Any) -> SmallCNN:
    """A network in double precision that has seen data: no number is a round one."""
    model = fresh(**changes).double()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, value in model.state_dict().items():
            if value.is_floating_point():
                change = torch.rand(value.shape, generator=generator).double() / 2
                value += change - (0 if name.endswith("var") else 0.25)
    return model


# How large it is


def test_it_has_as_many_parameters_as_the_digit_vit() -> None:
    with torch.device("meta"):
        parameters = sum(p.numel() for p in SmallCNN().parameters())
    assert parameters == 105_346
    vit = count(ViTConfig.preset("digits")).parameters
    assert parameters == pytest.approx(vit, rel=1 / 400)


def test_it_takes_nearly_three_times_the_multiply_adds_of_the_digit_vit() -> None:
    with torch.device("meta"):
        model, images = SmallCNN(), torch.empty(1, 1, 28, 28)
    with FlopCounterMode(display=False) as counter:
        model(images)
    assert counter.get_total_flops() == 2 * 5_123_616
    by_hand = 0
    for C, D, side in [(1, 24, 14), (24, 48, 7), (48, 72, 7), (72, 96, 7)]:
        by_hand += side * side * D * C * 3 * 3
    assert by_hand + 96 * 10 == 5_123_616
    assert count(ViTConfig.preset("digits")).multiply_adds == 1_795_968


def test_every_image_size_and_batch_size_fits_the_same_weights() -> None:
    model = fresh()
    for B, H, W in [(0, 28, 28), (1, 28, 28), (7, 30, 28), (2, 5, 64), (1, 1, 1)]:
        images = torch.zeros(B, 1, H, W)
        shape = (B, 96, math.ceil(H / 4), math.ceil(W / 4))
        assert model.features(images).shape == shape
        assert model(images).shape == (B, 10)


def test_it_is_the_same_function_as_its_layers_one_by_one() -> None:
    model, images = lively(in_chans=3, num_classes=5), noise(2, 3, 12, 9)
    state, x = model.state_dict(), images
    for i, stride in enumerate([2, 2, 1, 1]):
        x = F.conv2d(x, state[f"blocks.{i}.0.weight"], stride=stride, padding=1)
        mean, var, gamma, beta = (
            state[f"blocks.{i}.1.{name}"][:, None, None]
            for name in ("running_mean", "running_var", "weight", "bias")
        )
        x = ((x - mean) / (var + 1e-5).sqrt() * gamma + beta).clamp(min=0)
    torch.testing.assert_close(model.features(images), x)
    assert (x > 0).any(dim=(0, 2, 3)).sum() > 10  # enough of it is alive
    pooled = x.flatten(2).sum(2) / (x.shape[2] * x.shape[3])
    logits = pooled @ state["head.weight"].T + state["head.bias"]
    torch.testing.assert_close(model(images), logits)


# Training


def test_thirty_two_digits_are_learned_by_heart() -> None:
    train, _ = load_digits()
    few = train.images[:32], train.labels[:32]
    model = fresh()
    fit(model, few, recipe=Recipe(epochs=30, batch_size=8))
    score = evaluate(model, few)
    assert score.loss < 0.05
    assert score.accuracy == 1


def test_one_image_may_be_left_for_the_last_batch() -> None:
    train, _ = load_digits()
    few = train.images[:33], train.labels[:33]
    history = fit(fresh(), few, few, Recipe(epochs=2, batch_size=16))
    assert all(map(math.isfinite, history.loss + history.val_loss))


def test_patience_takes_the_statistics_back_with_the_weights() -> None:
    train, test = load_digits()
    held_out = test.images[:100], test.labels[:100]
    model = fresh()
    history = fit(
        model,
        (train.images[:64], train.labels[:64]),
        held_out,
        Recipe(epochs=30, batch_size=16, lr=0.05, patience=2),
    )
    assert history.kept_epoch < len(history.val_loss)  # some were thrown away
    kept = history.val_loss[history.kept_epoch - 1]
    assert evaluate(model, held_out).loss == pytest.approx(kept, rel=1e-6)


def test_in_evaluation_an_image_does_not_depend_on_its_batch() -> None:
    model, images = lively(), noise(4, 1, 28, 28)
    torch.testing.assert_close(model(images)[:1], model(images[:1]))
    model.train()
    assert (model(images)[:1] - model(images[:1])).abs().max() > 1e-3


# What one output sees


def test_a_stack_of_3x3_sees_two_pixels_more_a_layer() -> None:
    sizes = [receptive_field([(3, 1, 1)] * depth).size for depth in range(5)]
    assert sizes == [1, 3, 5, 7, 9]


@pytest.mark.parametrize(
    ("layers", "field"),
    [
        ([], (1, 1, 0)),
        ([(7, 7, 0)], (7, 7, 0)),  # the digit ViT's patch embedding
        ([(3, 2, 1)], (3, 2, -1)),
        ([(3, 2, 1), (3, 2, 1)], (7, 4, -3)),
        ([(2, 2, 0), (3, 1, 1)], (6, 2, -2)),
        ([(5, 1, 0), (2, 2, 0)], (6, 2, 0)),
    ],
)
def test_receptive_fields_counted_on_paper(
    layers: list[tuple[int, int, int]], field: tuple[int, int, int]
) -> None:
    assert receptive_field(layers) == ReceptiveField(*field)


def test_only_the_last_layers_see_most_of_a_digit() -> None:
    layers = SmallCNN().layers
    assert layers == [(3, 2, 1), (3, 2, 1), (3, 1, 1), (3, 1, 1)]
    sizes = [receptive_field(layers[:depth]).size for depth in range(1, 5)]
    assert sizes == [3, 7, 15, 23]
    assert sizes[-1] < 28  # of a ViT, every token sees all of it from the first block


def seen(output: Tensor, images: Tensor) -> list[list[int]]:
    """The rows, and the columns, of the pixels that an output has a gradient for."""
    (gradient,) = torch.autograd.grad(output.sum(), images, retain_graph=True)
    return [axis.unique().tolist() for axis in gradient[0, 0].nonzero().T]


def window(field: ReceptiveField, i: int) -> range:
    first = field.start + i * field.jump
    return range(first, first + field.size)


def test_an_output_has_gradients_for_its_receptive_field_and_nothing_else() -> None:
    model = fresh().double()
    for conv in (m for m in model.modules() if isinstance(m, nn.Conv2d)):
        nn.init.ones_(conv.weight)  # no two ways through the network cancel
    field = receptive_field(model.layers)
    H, W = 36, 28
    images = torch.ones(1, 1, H, W, dtype=torch.float64, requires_grad=True)
    maps = model.features(images)
    for i in range(9):
        for j in range(7):
            rows, columns = seen(maps[0, :, i, j], images)
            assert rows == [p for p in window(field, i) if 0 <= p < H]
            assert columns == [p for p in window(field, j) if 0 <= p < W]


LAYERS = st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(0, 2))


@given(st.lists(LAYERS, min_size=1, max_size=3))
@settings(deadline=None, max_examples=25)
def test_any_chain_of_layers_sees_as_far_as_its_receptive_field(
    layers: list[tuple[int, int, int]],
) -> None:
    network = nn.Sequential()
    for kernel, stride, padding in layers:
        network.append(nn.Conv2d(1, 1, kernel, stride, padding, bias=False))
    for weight in network.double().parameters():
        nn.init.ones_(weight)
    field = receptive_field(layers)
    i = -(field.start // field.jump)  # the first output that sees no padding
    H, W = window(field, i).stop, window(field, i + 1).stop
    images = torch.ones(1, 1, H, W, dtype=torch.float64, requires_grad=True)
    maps = network(images)
    for j in (i, i + 1):
        for pixels, k in zip(seen(maps[0, 0, i, j], images), (i, j), strict=True):
            ends = window(field, k)  # a stride over a smaller kernel leaves gaps
            assert (pixels[0], pixels[-1]) == (ends[0], ends[-1])


@pytest.mark.parametrize("layer", [(0, 1, 0), (3, 0, 1), (3, 1, -1)])
def test_a_layer_that_cannot_be_is_refused(layer: tuple[int, int, int]) -> None:
    kernel, stride, padding = layer
    message = f"kernel {kernel}, stride {stride} and padding {padding}; .*at least 1"
    with pytest.raises(ValueError, match=message):
        receptive_field([(3, 1, 1), layer])


# Shifts


@pytest.mark.parametrize(("rows", "columns"), [(0, 0), (2, 0), (-1, 3), (3, -4)])
def test_a_shift_moves_each_pixel_and_lets_zero_in(rows: int, columns: int) -> None:
    images = noise(2, 3, 4, 5) + 1
    moved = shift(images, rows, columns)
    assert moved.shape == images.shape
    for i in range(4):
        for j in range(5):
            inside = 0 <= i - rows < 4 and 0 <= j - columns < 5
            came = images[:, :, i - rows, j - columns] if inside else torch.zeros(2, 3)
            assert torch.equal(moved[:, :, i, j].float(), came.float())
    assert torch.equal(shift(images[0, 0], rows, columns), moved[0, 0])


@pytest.mark.parametrize(("rows", "columns"), [(4, 0), (-4, 0), (0, 5), (9, -9)])
def test_an_image_is_not_moved_out_of_its_own_frame(rows: int, columns: int) -> None:
    message = f"a 4x5 image moved by {rows} rows and {columns} columns would be gone"
    with pytest.raises(ValueError, match=message):
        shift(noise(1, 1, 4, 5), rows, columns)


def untouched_by_the_border(
    model: SmallCNN, length: int, by: int
) -> tuple[slice, slice]:
    """Outputs that see nothing but the image, before and after a shift of the image.

    Of one axis: `by` is a multiple of the jump, and pixels below `by` came in as 0.
    """
    field = receptive_field(model.layers)
    outputs = range(length // field.jump)
    after = [i for i in outputs if window(field, i)[0] >= by]
    after = [i for i in after if window(field, i)[-1] < length]
    assert after, "the image is too small to see anything move"
    steps = by // field.jump
    return slice(after[0] - steps, after[-1] + 1 - steps), slice(
        after[0], after[-1] + 1
    )


@pytest.mark.parametrize(
    ("strides", "rows", "columns"),
    [((2, 2, 1, 1), 4, 8), ((2, 2, 1, 1), 0, 12), ((1, 1, 1, 1), 3, 7)],
)
def test_features_move_with_the_image(
    strides: tuple[int, ...], rows: int, columns: int
) -> None:
    model, images = lively(strides=strides), noise(1, 1, 64, 72)
    before, after = (model.features(x) for x in (images, shift(images, rows, columns)))
    i_before, i_after = untouched_by_the_border(model, 64, rows)
    j_before, j_after = untouched_by_the_border(model, 72, columns)
    inside = before[:, :, i_before, j_before]
    torch.testing.assert_close(after[:, :, i_after, j_after], inside)
    assert inside.std() > 0.01
    assert (after[:, :, i_before, j_before] - inside).abs().max() > 0.01


def test_features_do_not_move_by_part_of_a_stride() -> None:
    model, images = lively(), noise(1, 1, 64, 64)
    before, after = (model.features(x) for x in (images, shift(images, 2, 2)))
    for steps in (0, 1):  # two pixels are half a step
        a, b = before[:, :, 4 - steps : 11 - steps], after[:, :, 4:11]
        a, b = a[..., 4 - steps : 11 - steps], b[..., 4:11]
        assert (a - b).abs().max() > 0.01


def test_a_digit_that_moves_by_whole_strides_is_the_same_digit() -> None:
    # Away from the border, the mean over the places does not care which place it is.
    model, images = lively(), torch.zeros(1, 1, 84, 84).double()
    images[..., 24:52, 24:52] = noise(28, 28)
    logits = model(images)
    torch.testing.assert_close(model(shift(images, 4, 8)), logits)
    assert (model(shift(images, 1, 0)) - logits).abs().max() > 1e-3


# The ViT beside it


def digit_vit(**changes: Any) -> VisionTransformer:
    config = ViTConfig.preset("digits", **changes)
    model = VisionTransformer(config, torch.Generator().manual_seed(0)).double().eval()
    with torch.no_grad():
        if changes.get("positions") != "none":
            model.pos_embed.mul_(10)  # as large as a trained table
    return model


def small_digit() -> Tensor:
    """Ink in the middle four patches; the twelve around them are blank."""
    images = torch.zeros(1, 1, 28, 28).double()
    images[..., 7:21, 7:21] = noise(14, 14)
    return images


def token_grid(model: VisionTransformer, images: Tensor) -> Tensor:
    return model.patch_embed(images).reshape(4, 4, -1)


def test_a_vits_tokens_move_by_whole_patches_only() -> None:
    model, images = digit_vit(), small_digit()
    before = token_grid(model, images)
    moved = token_grid(model, shift(images, 7, -7))
    torch.testing.assert_close(moved[2:, :2], before[1:3, 1:3])
    apart = token_grid(model, shift(images, 3, 0)).reshape(16, 1, -1)
    ink = before[1:3, 1:3].reshape(1, 4, -1)
    assert (apart - ink).abs().amax(-1).min() > 0.01  # none of the four is there


@pytest.mark.parametrize("pool", ["cls", "mean"])
def test_without_positions_a_vit_ignores_a_shift_by_whole_patches(pool: str) -> None:
    images = small_digit()
    blind, placed = digit_vit(pool=pool, positions="none"), digit_vit(pool=pool)
    for rows, columns in [(7, 0), (-7, 7)]:
        moved = shift(images, rows, columns)
        torch.testing.assert_close(blind(moved), blind(images))
        assert (placed(moved) - placed(images)).abs().max() > 1e-3
    part = shift(images, 3, 0)
    assert (blind(part) - blind(images)).abs().max() > 1e-3


# Weights and random numbers


@pytest.mark.usefixtures("untouched_random_state")
def test_the_generator_alone_decides_the_weights() -> None:
    one, same, other = fresh(), fresh(), fresh(seed=1)
    for name, weight in one.state_dict().items():
        assert torch.equal(weight, same.state_dict()[name]), name
    assert not torch.equal(one.head.weight, other.head.weight)
    first = "blocks.0.0.weight"
    assert not torch.equal(one.state_dict()[first], other.state_dict()[first])


def test_without_a_generator_weights_follow_the_global_seed() -> None:
    weights = []
    for seed in (5, 5, 6):
        torch.manual_seed(seed)
        weights.append(SmallCNN().head.weight)
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_fresh_weights_have_the_spread_that_reset_says() -> None:
    model = fresh(widths=(64, 64), strides=(1, 1))
    model.blocks[0](noise(4, 1, 8, 8).float())
    for name, value in model.state_dict().items():
        if name.endswith("1.0.weight"):
            assert value.std().item() == pytest.approx((2 / (9 * 64)) ** 0.5, rel=0.05)
        elif name == "head.weight":
            spread = (2 / (64 + 10)) ** 0.5
            assert value.std().item() == pytest.approx(spread, rel=0.05)
        elif name.endswith(("bias", "mean", "tracked")):
            assert not value.any(), name
        elif not name.endswith("0.0.weight"):
            assert (value == 1).all(), name


def test_reset_forgets_what_it_has_seen() -> None:
    model = fresh().train()
    model(noise(8, 1, 28, 28).float())
    assert model.state_dict()["blocks.0.1.running_mean"].any()
    model.reset(torch.Generator().manual_seed(0))
    for name, value in fresh().state_dict().items():
        assert torch.equal(model.state_dict()[name], value), name


def test_what_passes_through_keeps_its_size() -> None:
    model = fresh(widths=(64,) * 6, strides=(1,) * 6)
    x = torch.randn(4, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    for block in model.blocks:
        x = block(x)  # evaluation mode: BatchNorm does nothing yet
    assert 0.3 < x.square().mean() < 3


def test_weights_come_back_from_safetensors_bit_for_bit() -> None:
    model, other = lively(), fresh(seed=9).double()
    images = noise(2, 1, 28, 28)
    assert not torch.equal(model(images), other(images))
    other.load_state_dict(load(save(model.state_dict())))
    assert torch.equal(model(images), other(images))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_it_moves_and_copies_whole(dtype: torch.dtype) -> None:
    model = fresh()
    images = noise(2, 1, 28, 28)
    expected = model(images.float()).double()
    twin = copy.deepcopy(model).to(dtype)
    assert twin(images.to(dtype)).dtype == dtype
    torch.testing.assert_close(
        twin(images.to(dtype)).double(), expected, atol=0.05, rtol=0.05
    )
    assert twin.to("meta")(images.to("meta", dtype)).is_meta


# What does not fit


@pytest.mark.parametrize("ask", ["forward", "features"])
def test_images_that_do_not_fit_are_told_why(ask: str) -> None:
    look = getattr(fresh(), ask)
    for shape in [(28, 28), (1, 28, 28), (1, 1, 1, 28, 28)]:
        with pytest.raises(ValueError, match=r"\(B, 1, H, W\)\. .*images\[None\]") as e:
            look(torch.zeros(shape))
        assert str(shape) in str(e.value)
    message = r"\(2, 3, 28, 28\) have 3 channels.*expects 1.*in_chans=3"
    with pytest.raises(ValueError, match=message):
        look(torch.zeros(2, 3, 28, 28))
    with pytest.raises(TypeError, match=r"torch\.uint8.*images\.float\(\) / 255"):
        look(torch.zeros(2, 1, 28, 28, dtype=torch.uint8))
    assert fresh(in_chans=3)(torch.zeros(2, 3, 28, 28)).shape == (2, 10)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"widths": (8, 16)}, "2 widths and 4 strides; give one of each"),
        ({"widths": (), "strides": ()}, "0 widths and 0 strides.*at least one"),
        ({"in_chans": 0}, "in_chans is 0, .*at least 1"),
        ({"num_classes": -1}, "num_classes -1, .*at least 1"),
        ({"widths": (8, 0, 8, 8)}, r"widths \(8, 0, 8, 8\) and strides"),
        ({"strides": (1, 2, 0, 1)}, r"strides \(1, 2, 0, 1\); each"),
    ],
)
def test_a_network_that_cannot_be_is_refused(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        SmallCNN(**changes)
