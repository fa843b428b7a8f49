"""The architecture diagram says what the live model is, and nothing else."""

from __future__ import annotations

import re

import pytest
import torch

from course_utils.diagram import architecture_diagram
from course_utils.vit import VisionTransformer, ViTConfig

CONFIGS = {
    "digits": ViTConfig.preset("digits"),
    "post-norm": ViTConfig.preset("digits", norm="post", final_norm=False),
    "layer scale, mean": ViTConfig.preset("micro", layer_scale=0.1, pool="mean"),
    "no [CLS], no positions": ViTConfig.preset(
        "micro", class_token=False, pool="mean", positions="none"
    ),
    "rectangular, colour, fixed positions": ViTConfig.preset(
        "micro", img_size=(8, 12), in_chans=3, positions="sincos2d", mlp_ratio=2.5
    ),
    "features, three blocks": ViTConfig.preset("micro", num_classes=0, depth=3),
}


@pytest.fixture(params=CONFIGS, ids=str)
def model(request):
    return VisionTransformer(CONFIGS[request.param], torch.Generator().manual_seed(0))


def digits(model, count=3):
    h, w = model.config.img_size
    generator = torch.Generator().manual_seed(0)
    return torch.rand(count, model.config.in_chans, h, w, generator=generator)


def shapes(text):
    return re.findall(r"\((?:\d+, )+\d+\)", text)


def test_each_shape_drawn_is_that_of_a_tensor_of_this_forward_pass(model):
    images = digits(model)
    figure = architecture_diagram(model, images)
    steps = {"images": images, **model.intermediates(images)}
    blocks = [f"blocks.{i}." for i in range(1, model.config.depth)]
    taken = {
        str(tuple(tensor.shape))
        for name, tensor in steps.items()
        if not name.startswith(tuple(blocks))
    }
    assert set(shapes(figure.svg)) == set(shapes(figure.alt)) == taken


def test_the_parts_parameters_add_up_to_the_models(model):
    alt = architecture_diagram(model).alt
    total = sum(p.numel() for p in model.parameters())
    parts = re.findall(r", ([\d,]+) parameters\.", alt)
    assert sum(int(part.replace(",", "")) for part in parts) == total
    assert alt.endswith(f" {total:,} parameters in all.")


def test_every_count_and_name_of_the_alternative_text_is_in_the_drawing(model):
    figure = architecture_diagram(model)
    drawn = " ".join(re.findall(r"<text[^>]*>([^<]*)", figure.svg)).lower()
    for sentence in figure.alt.split(". ")[2:]:
        name = re.split(r"[,:.]", sentence)[0].lower()
        assert name.startswith("added to the stream") or name in drawn
    for count in re.findall(r"([\d,]+) parameters", figure.alt):
        assert count in drawn


@pytest.mark.parametrize("ratio", [0.5, 1.0, 2.0, 4.0])
def test_the_mlp_is_as_wide_as_it_is(ratio):
    model = VisionTransformer(ViTConfig.preset("micro", mlp_ratio=ratio))
    svg = architecture_diagram(model).svg
    numbers = r"M ([\d.]+) [\d.]+ H ([\d.]+) L ([\d.]+) [\d.]+ v"
    ((left, right, hidden),) = re.findall(numbers, svg)
    middle = (float(left) + float(right)) / 2
    assert (float(hidden) - middle) / (float(right) - middle) == pytest.approx(ratio)


def test_norms_stand_on_the_branch_or_on_the_stream():
    def order(**changes):
        model = VisionTransformer(ViTConfig.preset("micro", depth=1, **changes))
        block = architecture_diagram(model).alt.partition("Block 1 of 1:")[2]
        return re.findall(r"LayerNorm|Attention|MLP|Added|Head", block)

    assert order() == [
        *("LayerNorm", "Attention", "Added"),
        *("LayerNorm", "MLP", "Added"),
        *("LayerNorm", "Head"),
    ]
    assert order(norm="post", final_norm=False) == [
        *("Attention", "Added", "LayerNorm"),
        *("MLP", "Added", "LayerNorm"),
        "Head",
    ]


def test_the_model_stays_as_it_was(model):
    model.train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    images = digits(model).requires_grad_()
    state = torch.get_rng_state()
    architecture_diagram(model, images)
    assert model.training
    assert torch.equal(torch.get_rng_state(), state)
    assert images.grad is None
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_a_large_model_is_drawn_without_its_memory():
    with torch.device("meta"):
        model = VisionTransformer(ViTConfig.preset("H/14"))
    alt = architecture_diagram(model).alt
    assert alt.endswith("632,045,800 parameters in all.")
    assert "(1, 16, 257, 257)" in alt


def test_images_that_do_not_fit_are_refused():
    model = VisionTransformer(ViTConfig.preset("micro"))
    with pytest.raises(ValueError, match="9x8 pixels"):
        architecture_diagram(model, torch.zeros(1, 1, 9, 8))


def test_images_outside_zero_to_one_are_stretched_and_constant_ones_do_not_fail():
    model = VisionTransformer(ViTConfig.preset("micro"))
    for images in (5 * torch.randn(1, 1, 8, 8), torch.full((1, 1, 8, 8), 7.0)):
        assert "data:image/png" in architecture_diagram(model, images).svg
