"""Through the encoder: each vector, lens and sentence of the page is PyTorch's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Browser, Page
from torch import Tensor
from widget_page import (
    Held,
    faults,
    open_tables,
    open_widgets,
    read_canvas,
    read_facts,
    read_out,
)

from course_utils.checkpoints import load_digit_model
from course_utils.widgets import ThroughEncoder
from course_utils.widgets.through_encoder import STEPS, STREAM

BRANCHES = ("norm1", "attn", "norm2", "mlp")
GUIDE = ".vit-guide [role=status]"


def number(text: str) -> float:
    return float(text.replace("−", "-").replace("%", ""))


class Walk:
    """What PyTorch's model does with a digit."""

    def __init__(self, digit: int) -> None:
        self.model = load_digit_model().eval()
        with torch.no_grad():
            image = ThroughEncoder(digit=digit).image
            self.record = self.model.intermediates(image[None])

    def stream(self, step: str) -> Tensor:
        """The residual stream by the time of a step, (T, D)."""
        before = STEPS[: STEPS.index(step) + 1]
        return self.record[[name for name in before if name in STREAM][-1]][0]

    @torch.no_grad()
    def logits(self, step: str) -> Tensor:
        """What the head makes of each token's stream, (T, K)."""
        logits: Tensor = self.model.head(self.model.norm(self.stream(step)))
        return logits

    def vectors(self, step: str) -> Tensor:
        """The vectors that a step makes, (T, D); the head's (T, K)."""
        return self.logits(step) if step == "logits" else self.record[step][0]

    def reads(self, step: str) -> Tensor:
        """Attention weights of a step's block, mean of the heads, (T, T)."""
        return self.record[f"{step}.weights"][0].mean(0)


def bars(page: Page) -> list[float]:
    return [number(text) for text in page.locator(".vit-bar-value").all_inner_texts()]


def in_cells(page: Page) -> list[int]:
    return [int(text) for text in page.locator(".vit-in-cells span").all_inner_texts()]


# In Python


def test_the_steps_are_those_of_the_model() -> None:
    record = Walk(0).record
    inner = ("patch_embed", "attn.weights", "mlp.hidden", "pooled")
    assert [name for name in record if not name.endswith(inner)] == list(STEPS)
    assert set(STREAM) == {
        step for step in STEPS if step in ("cls", "tokens") or ".add" in step
    }


def test_steps_and_tokens_that_are_not_there_are_refused() -> None:
    widget = ThroughEncoder(step="blocks.1.mlp", token=16)
    with pytest.raises(
        ValueError, match=r"no step 'blocks\.2\.mlp'; choose from cls, "
    ):
        widget.step = "blocks.2.mlp"
    with pytest.raises(ValueError, match="token is 17; there are 17"):
        widget.token = 17
    with pytest.raises(ValueError, match="token is -1"):
        ThroughEncoder(token=-1)
    assert (widget.step, widget.token) == ("blocks.1.mlp", 16)


def test_the_figure_shows_how_the_answer_grows() -> None:
    figure = ThroughEncoder(digit=8).figure()
    assert "if it read [CLS]" in figure.caption
    walk = Walk(8)
    first, last = (
        walk.logits(name)[0].softmax(-1)[8].item() for name in ("cls", "blocks.1.add2")
    )
    assert f"An 8: {first:.3g} to {last:.3g}." in figure.alt
    assert "patch 2" in ThroughEncoder(token=3).figure().caption


# In the page


@pytest.fixture(scope="module")
def page(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    folder = tmp_path_factory.mktemp("through-encoder")
    with open_widgets(browser, folder) as seen:
        yield seen.page


@pytest.fixture
def held(page: Page) -> Iterator[Held]:
    held = Held(page, ThroughEncoder())
    yield held
    held.unmount()


@pytest.mark.browser
@pytest.mark.parametrize(("digit", "token"), [(8, 0), (3, 7)])
def test_every_step_shows_pytorch_s_vector_and_lens(
    held: Held, digit: int, token: int
) -> None:
    page, walk = held.page, Walk(digit)
    held.set(digit=digit, token=token)
    open_tables(page)
    for step in STEPS:
        held.set(step=step)
        vectors, answers = walk.vectors(step), walk.logits(step).softmax(-1)
        shown = [number(text) for text in page.inner_text(".vit-numbers").split()]
        assert shown == pytest.approx(vectors[token].tolist(), abs=0.006)
        facts = read_facts(page)
        assert number(facts["length of this vector"]) == pytest.approx(
            vectors[token].norm().item(), abs=0.006
        )
        assert bars(page) == pytest.approx((100 * answers[token]).tolist(), abs=0.06)
        if step.endswith(".attn"):
            shares = 100 * walk.reads(step)[token]
            assert in_cells(page) == pytest.approx(shares[1:].tolist(), abs=0.51)
            assert number(page.inner_text(".vit-tokens button")[6:]) == pytest.approx(
                shares[0].item(), abs=0.51
            )
        else:
            assert in_cells(page) == answers[1:].argmax(-1).tolist()
        caption = page.inner_text(".vit-bars caption")
        assert ("before the addition" in caption) == step.endswith(BRANCHES)


@pytest.mark.browser
def test_the_table_tells_every_token(held: Held) -> None:
    held.set(step="blocks.1.attn")
    walk = Walk(4)
    vectors, answers = walk.vectors("blocks.1.attn"), walk.logits("blocks.1.attn")
    reads = walk.reads("blocks.1.attn")[0]
    open_tables(held.page)
    rows = held.page.locator(".vit-table tbody tr").all_inner_texts()
    assert len(rows) == 17
    for t, row in enumerate(rows):
        name, length, answer, _, read = row.split("\t")
        assert name == ("[CLS]" if t == 0 else f"patch {t - 1}")
        assert number(length) == pytest.approx(vectors[t].norm().item(), abs=0.006)
        assert int(answer) == answers[t].argmax()
        assert number(read) == pytest.approx(100 * reads[t].item(), abs=0.06)


@pytest.mark.browser
def test_the_guide_walks_forth_and_back_and_tells_this_digit_s_numbers(
    held: Held,
) -> None:
    page, walk = held.page, Walk(4)
    back = page.get_by_role("button", name="Back")
    following = page.get_by_role("button", name="Next")
    assert back.is_disabled()
    said = [page.inner_text(GUIDE)]
    for step in STEPS[1:]:
        following.click()
        assert held.get("step") == step
        said.append(page.inner_text(GUIDE))
    assert following.is_disabled()
    assert len(set(said)) == len(STEPS)

    first, with_position = (walk.stream(name)[0] for name in STREAM[:2])
    lengths = [first.norm(), (with_position - first).norm(), with_position.norm()]
    assert f"of length {lengths[0]:.2f}" in said[0]
    assert f"length {lengths[1]:.2f}; its vector goes from" in said[1]
    assert f"to {lengths[2]:.2f}." in said[1]
    most = walk.reads("blocks.0.attn")[0]
    assert (
        f"most from patch {int(most.argmax()) - 1} ({100 * most.max():.0f} %" in said[3]
    )
    after = walk.logits("blocks.0.add1")[0].softmax(-1)
    assert f"say {int(after.argmax())} ({100 * after.max():.0f} %)" in said[4]
    assert f"largest is {walk.logits('logits')[0].max():.2f};" in said[-1]
    assert said[-1].endswith("The digit is a 4.")

    back.click()
    assert held.get("step") == "norm"
    assert page.inner_text(GUIDE) == said[-2]


@pytest.mark.browser
@pytest.mark.parametrize("width", [320, 390, 730])
def test_nothing_jumps_during_the_walk(held: Held, width: int) -> None:
    page = held.page
    page.set_viewport_size({"width": width, "height": 900})
    heights = set()
    for token in (0, 7):
        for step in STEPS:
            held.set(step=step, token=token)
            body = page.locator(".vit-body").bounding_box()
            assert body
            heights.add(round(body["height"]))
    page.set_viewport_size({"width": 1000, "height": 900})
    assert len(heights) == 1


@pytest.mark.browser
def test_a_click_follows_another_token(held: Held) -> None:
    page = held.page
    board = page.get_by_role("application", name="The patches of a 4")
    box = board.bounding_box()
    assert box
    board.click(position={"x": 0.6 * box["width"], "y": 0.4 * box["height"]})
    page.mouse.move(0, 0)
    assert held.get("token") == 7
    assert ", patch 6: length" in read_out(page)
    rows = page.get_by_role("application", name="The vectors of all tokens")
    box = rows.bounding_box()
    assert box
    rows.click(position={"x": 9, "y": 16.5 / 17 * box["height"]})
    page.mouse.move(0, 0)
    assert held.get("token") == 16
    page.get_by_role("button", name="[CLS]").click()
    assert held.get("token") == 0
    page.get_by_role("radio", name="Block 1: MLP").check()
    assert held.get("step") == "blocks.1.mlp"
    page.get_by_role("radio", name="7", exact=True).check()
    assert held.get("digit") == 7


@pytest.mark.browser
def test_keys_do_what_a_pointer_does(held: Held) -> None:
    page = held.page
    page.locator(".vit-stations input:checked").focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    assert held.get("step") == "blocks.0.attn"
    for key in ("Tab", "Enter"):  # Back
        page.keyboard.press(key)
    assert held.get("step") == "blocks.0.norm1"
    page.get_by_role("button", name="[CLS]").focus()
    for key in ("Tab", "ArrowDown", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    assert held.get("token") == 6
    for key in ("Tab", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    value = Walk(4).vectors("blocks.0.norm1")[6, 2].item()
    words = read_out(page)
    assert words.startswith("Number 2 of 64 in the vector of patch 5: ")
    assert number(words.split(": ")[1][:-1]) == pytest.approx(value, abs=0.006)


@pytest.mark.browser
def test_the_picture_holds_every_number_of_every_token(held: Held) -> None:
    held.set(step="blocks.0.add2")
    seen = read_canvas(held.page, ".vit-named-rows [style*='rem'] > .vit-pixels")
    vectors = Walk(4).vectors("blocks.0.add2")
    assert seen.shape[:2] == vectors.shape
    redder = torch.from_numpy(seen[..., 0].astype(int) - seen[..., 2])
    clear = vectors.abs() > 0.1  # orange above zero, blue below
    assert torch.equal(redder.sign()[clear], vectors.sign()[clear].long())
    full = redder[vectors > 4]
    assert (full == full.max()).all()


@pytest.mark.browser
def test_a_view_can_end_and_begin_again(held: Held) -> None:
    held.unmount()
    assert held.page.locator(".vit-widget").count() == 0
    held.set(step="norm", token=2)
    held.mount()
    assert read_out(held.page).startswith("Output: norm, patch 1: length")


@pytest.mark.browser
@pytest.mark.parametrize(("width", "scheme"), [(320, "light"), (1000, "dark")])
def test_nothing_is_wrong_with_the_page(
    browser: Browser, tmp_path: Path, width: int, scheme: str
) -> None:
    widget = ThroughEncoder(digit=8, step="blocks.1.attn", token=7)
    with open_widgets(browser, tmp_path, widget, width=width, scheme=scheme) as seen:
        open_tables(seen.page)
        assert faults(seen.page) == []
