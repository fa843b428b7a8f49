"""What widgets about digits share: the ten they show, and what they refuse."""

from __future__ import annotations

import pytest
import torch
from traitlets import TraitError

from course_utils.checkpoints import load_digit_model
from course_utils.data import LabelledImages, load_digits
from course_utils.widgets.digits import TEN, DigitWidget, ten_digits


@torch.no_grad()
def test_each_class_is_shown_by_the_first_digit_that_both_models_read() -> None:
    _, test = load_digits()
    first = test.images[: max(TEN) + 1]
    labels = test.labels[: max(TEN) + 1]
    right = torch.ones_like(labels, dtype=torch.bool)
    for name in ("positions", "no positions"):
        right &= load_digit_model(name)(first).argmax(-1) == labels
    found = [int(((labels == k) & right).nonzero()[0]) for k in range(10)]
    assert tuple(found) == TEN
    assert ten_digits().labels.tolist() == list(range(10))


def test_a_digit_s_number_is_its_label_by_default() -> None:
    widget = DigitWidget(digit=7)
    assert widget.label == 7
    assert torch.equal(widget.image, ten_digits().images[7])
    assert [picture["label"] for picture in widget.digits] == list(range(10))


def test_a_digit_that_is_not_there_is_refused_by_name() -> None:
    widget = DigitWidget(LabelledImages(*(part[:3] for part in ten_digits())))
    with pytest.raises(ValueError, match=r"digit is 3; there are 3.*choose 0 to 2"):
        widget.digit = 3
    with pytest.raises(ValueError, match="digit is -1"):
        widget.digit = -1
    with pytest.raises(ValueError, match="digit is 10; there are 10"):
        DigitWidget(digit=10)
    assert widget.digit == 0
    with pytest.raises(TraitError):
        widget.digit = 1.5


def test_digits_of_another_kind_are_refused_with_the_remedy() -> None:
    images, labels = ten_digits()
    refused = (
        (images[0], labels, ValueError, r"\(1, 28, 28\).*image\[None\]"),
        (images[..., :14], labels, ValueError, r"\(10, 1, 28, 14\)"),
        (images[:3], labels, ValueError, "3 digits and 10 labels"),
        (images[:0], labels[:0], ValueError, "0 digits and 0 labels"),
        (255 * images, labels, ValueError, "divide by 255"),
        ((255 * images).byte(), labels, TypeError, r"torch\.uint8"),
    )
    for wrong, named, kind, words in refused:
        with pytest.raises(kind, match=words):
            DigitWidget(LabelledImages(wrong, named))
