"""Chapter 6: one training loop for every model of the course, ViT or CNN.

Axes: B batch, C channels, H W image, K classes.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm.auto import tqdm

from course_utils.data import LabelledImages
from course_utils.optimizers import Muon, adamw, muon_names


@dataclass(frozen=True)
class Affine:
    """Random small shifts, turns and changes of scale; no mirror images.

    A mirrored 2 is no digit. Each image is changed on its own; pixels that come in
    from outside are 0.

    Attributes:
        shift: the largest move along each axis, in pixels.
        degrees: the largest turn either way.
        scale: the largest relative change of size.
    """

    shift: float = 2.0
    degrees: float = 10.0
    scale: float = 0.1

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Change images (B, C, H, W); the generator lives on the CPU."""
        B, _, H, W = images.shape
        draw = torch.rand(4, B, generator=generator) * 2 - 1
        angle = draw[0] * math.radians(self.degrees)
        zoom = 1 + draw[1] * self.scale
        # affine_grid maps output to input places, in units of half an image side.
        theta = torch.zeros(B, 2, 3)
        theta[:, 0, 0] = angle.cos() / zoom
        theta[:, 0, 1] = -angle.sin() / zoom * (H / W)
        theta[:, 0, 2] = draw[2] * self.shift * 2 / W
        theta[:, 1, 0] = angle.sin() / zoom * (W / H)
        theta[:, 1, 1] = angle.cos() / zoom
        theta[:, 1, 2] = draw[3] * self.shift * 2 / H
        theta = theta.to(images.device, images.dtype)
        grid = F.affine_grid(theta, list(images.shape), align_corners=False)
        return F.grid_sample(images, grid, align_corners=False)


@dataclass(frozen=True)
class Recipe:
    """How to train: every choice that is not the model or the data.

    Attributes:
        epochs: passes over the training images.
        batch_size: images a step.
        optimizer: "adamw", or "muon" for the matrices inside encoder blocks and AdamW
            for the rest.
        lr: the highest learning rate.
        weight_decay: on weight matrices only, not on biases, norms, [CLS] or
            positions.
        schedule: "cosine" falls to zero after the warm-up; "constant" stays.
        warmup: the share of all steps in which the rate rises from zero.
        label_smoothing: how much of the target is shared over all classes.
        distillation: how much of the target is what a teacher says, where `fit` has
            one (Hinton et al. 2015, at temperature 1).
        augment: how training images are changed, or None.
        patience: stop after so many epochs without a lower validation loss and take
            the best weights back; None trains to the end and keeps the last.
    """

    epochs: int = 15
    batch_size: int = 128
    optimizer: Literal["adamw", "muon"] = "adamw"
    lr: float = 3e-3
    weight_decay: float = 0.01
    schedule: Literal["cosine", "constant"] = "cosine"
    warmup: float = 0.1
    label_smoothing: float = 0.0
    distillation: float = 0.5
    augment: Affine | None = None
    patience: int | None = None

    def __post_init__(self) -> None:
        """Check the numbers; ValueError names the one that does not fit."""
        for name in ("epochs", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; give at least 1")
        for name in ("warmup", "label_smoothing"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; give 0 up to 1")
        if not 0 <= self.distillation <= 1:
            raise ValueError(f"distillation is {self.distillation}; give 0 to 1")
        for name, known in [
            ("optimizer", ("adamw", "muon")),
            ("schedule", ("cosine", "constant")),
        ]:
            if getattr(self, name) not in known:
                raise ValueError(
                    f"{name} is {getattr(self, name)!r}; choose one of {known}"
                )

    def rate(self, step: int, steps: int) -> float:
        """Give the learning rate of one step of `steps`, counted from 0."""
        rising = self.warmup * steps
        if step < rising:
            return self.lr * (step + 1) / (rising + 1)
        if self.schedule == "constant":
            return self.lr
        falling = (step - rising) / (steps - rising)
        return self.lr * (1 + math.cos(math.pi * falling)) / 2


recipes = {
    # The lesson's own: 104,970 parameters read 0.93 to 0.95 of the test digits by it.
    "lesson": Recipe(schedule="constant", warmup=0.0),
    # In the same time, what 6,000 digits are good for. For models with encoder blocks.
    "best": Recipe(
        epochs=15, optimizer="muon", lr=8e-3, weight_decay=0.05, augment=Affine()
    ),
    # As good as the lesson's, in a small part of its time.
    "quick": Recipe(
        epochs=5,
        batch_size=64,
        optimizer="muon",
        lr=1e-2,
        weight_decay=0.05,
        augment=Affine(shift=1, degrees=0, scale=0),
    ),
    # For the small CNN.
    "cnn": Recipe(epochs=15, batch_size=64, weight_decay=0.05, augment=Affine()),
}
"""What was tried and found good for 6,000 digits; benchmarks/small_data.py measures."""


class Evaluation(NamedTuple):
    """The mean cross-entropy in nats, and the share of images classified rightly."""

    loss: float
    accuracy: float


@dataclass
class History:
    """What `fit` saw, one entry an epoch; the validation lists may be empty.

    Attributes:
        loss: mean training loss over the epoch, in nats, as the weights changed.
        accuracy: share of training images classified rightly, likewise.
        val_loss: validation loss after the epoch.
        val_accuracy: validation accuracy after the epoch.
        kept_epoch: the epoch, from 1, whose weights the model has now.
    """

    loss: list[float] = field(default_factory=list)
    accuracy: list[float] = field(default_factory=list)
    val_loss: list[float] = field(default_factory=list)
    val_accuracy: list[float] = field(default_factory=list)
    kept_epoch: int = 0


def fit(
    model: nn.Module,
    train: Sequence[Tensor],
    validation: Sequence[Tensor] | None = None,
    recipe: Recipe | None = None,
    *,
    teacher: nn.Module | None = None,
    seed: int = 0,
) -> History:
    """Train a classifier in place, on the device where its weights are.

    Args:
        model: maps images (B, C, H, W) to logits (B, K).
        train: images, floating point, about -10 to 10; labels, whole numbers below K.
        validation: held-out images and labels, looked at after each epoch. Without
            `recipe.patience` they change nothing.
        recipe: the choices; `Recipe()` by default.
        teacher: a trained classifier on the same device, of the same classes, that
            says what it thinks of each image as the model sees it; stays as it is.
        seed: of the order of images, the augmentation and the dropout. The same seed
            on the same machine gives the same numbers; PyTorch's global generators
            are left as they were.

    Returns:
        The losses and accuracies, epoch by epoch.

    Raises:
        ValueError: if images or labels do not fit each other or the model, hold NaN,
            or look like pixels 0 to 255; if patience is set without validation data.
        TypeError: if images are not floating point.
    """
    recipe = recipe or Recipe()
    if recipe.patience is not None and validation is None:
        raise ValueError(
            f"patience is {recipe.patience} but there is no validation data to judge "
            "by; hold some out with split(train, 500)"
        )
    device = next(model.parameters()).device
    data = _checked(model, train)
    per_epoch = math.ceil(len(data.labels) / recipe.batch_size)
    steps = recipe.epochs * per_epoch
    optimizers = make_optimizers(model, recipe)
    generator = torch.Generator().manual_seed(seed)
    history, best, was_training = History(), None, model.training

    forked = [] if device.type == "cpu" else [device]
    with torch.random.fork_rng(forked, device_type=device.type):
        torch.manual_seed(seed)  # for dropout, which takes no generator
        for epoch in tqdm(range(recipe.epochs), unit="epoch", leave=False):
            first = epoch * per_epoch
            rates = [recipe.rate(first + i, steps) for i in range(per_epoch)]
            score = train_epoch(
                model, data, optimizers, rates, recipe, generator, teacher
            )
            history.loss.append(score.loss)
            history.accuracy.append(score.accuracy)
            history.kept_epoch = epoch + 1
            if validation is None:
                continue
            score = evaluate(model, validation)
            history.val_loss.append(score.loss)
            history.val_accuracy.append(score.accuracy)
            if recipe.patience is None:
                continue
            if best is None or score.loss < best.loss:
                best = _Best(score.loss, epoch + 1, copy.deepcopy(model.state_dict()))
            elif epoch + 1 - best.epoch >= recipe.patience:
                break
    if best is not None:
        model.load_state_dict(best.weights)
        history.kept_epoch = best.epoch
    model.train(was_training)
    return history


def train_epoch(
    model: nn.Module,
    data: LabelledImages,
    optimizers: Sequence[torch.optim.Optimizer],
    rates: Sequence[float],
    recipe: Recipe,
    generator: torch.Generator,
    teacher: nn.Module | None = None,
) -> Evaluation:
    """Take one step on each batch of the shuffled data.

    Args:
        model: on the same device as the data.
        data: images (B, C, H, W) and labels (B,).
        optimizers: each of some of the model's parameters.
        rates: the learning rate of each step.
        recipe: batch size, augmentation and all that makes the target are read from
            it.
        generator: a CPU generator, for the order and the augmentation.
        teacher: as for `fit`.

    Returns:
        The mean loss and the accuracy over the epoch, as the weights changed.
    """
    model.train()
    images, labels = data
    order = torch.randperm(len(labels), generator=generator).to(labels.device)
    loss_sum = torch.zeros((), device=labels.device)
    right = torch.zeros((), device=labels.device)  # read once, at the end
    for batch, rate in zip(order.split(recipe.batch_size), rates, strict=True):
        x, y = images[batch], labels[batch]
        if recipe.augment is not None:
            x = recipe.augment(x, generator)
        for optimizer in optimizers:
            optimizer.zero_grad()
            for group in optimizer.param_groups:
                group["lr"] = rate
        logits = model(x)
        loss = F.cross_entropy(logits, y, label_smoothing=recipe.label_smoothing)
        if teacher is not None:
            said = predict(teacher, x).to(logits).softmax(dim=1)  # (B, K)
            loss = torch.lerp(loss, F.cross_entropy(logits, said), recipe.distillation)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        loss_sum += loss.detach() * len(batch)
        right += (logits.argmax(1) == y).sum()
    return Evaluation(float(loss_sum) / len(labels), float(right) / len(labels))


@torch.no_grad()
def predict(model: nn.Module, images: Tensor, batch_size: int = 500) -> Tensor:
    """Give the logits (B, K) of images (B, C, H, W), on the CPU, in batches.

    The model is put in evaluation mode meanwhile and left as it was.
    """
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    logits = [model(batch.to(device)).cpu() for batch in images.split(batch_size)]
    model.train(was_training)
    return torch.cat(logits)


def evaluate(
    model: nn.Module, data: Sequence[Tensor], batch_size: int = 500
) -> Evaluation:
    """Measure loss and accuracy on images (B, C, H, W) and labels (B,).

    Raises:
        ValueError: if images and labels do not fit each other or the model.
        TypeError: if images are not floating point.
    """
    images, labels = _checked(model, data)
    logits, labels = predict(model, images, batch_size), labels.cpu()
    loss = F.cross_entropy(logits, labels)
    return Evaluation(float(loss), float((logits.argmax(1) == labels).float().mean()))


def split(
    data: Sequence[Tensor], held_out: int, *, seed: int = 0
) -> tuple[LabelledImages, LabelledImages]:
    """Hold out some images at random for validation.

    Args:
        data: images (B, C, H, W) and labels (B,).
        held_out: how many to hold out, at least 1 and fewer than B.
        seed: of the choice.

    Returns:
        The rest to train on, and the images held out; none is in both.

    Raises:
        ValueError: if `held_out` leaves nothing on one side.
    """
    images, labels = data
    if not 0 < held_out < len(labels):
        raise ValueError(
            f"cannot hold out {held_out} of {len(labels)} images; "
            f"give 1 to {len(labels) - 1}"
        )
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    out, rest = order[:held_out], order[held_out:]
    return LabelledImages(images[rest], labels[rest]), LabelledImages(
        images[out], labels[out]
    )


def make_optimizers(model: nn.Module, recipe: Recipe) -> list[torch.optim.Optimizer]:
    """Make what the recipe names: AdamW for all, or Muon for the blocks' matrices.

    Raises:
        ValueError: if Muon is asked for and the model has no encoder blocks.
    """
    lr, weight_decay = recipe.lr, recipe.weight_decay
    if recipe.optimizer == "adamw":
        return [adamw(model, lr, weight_decay)]
    rest = adamw(model, lr, weight_decay, without=muon_names(model))
    return [Muon(model, lr, weight_decay), rest]


class _Best(NamedTuple):
    loss: float
    epoch: int
    weights: dict[str, Tensor]


def _checked(model: nn.Module, data: Sequence[Tensor]) -> LabelledImages:
    """Refuse what would train to nonsense in silence; move the rest to the model."""
    images, labels = data
    if len(images) != len(labels) or len(labels) == 0:
        raise ValueError(
            f"there are {len(images)} images and {len(labels)} labels; "
            "give one label an image, and at least one"
        )
    if not images.is_floating_point():
        raise TypeError(
            f"images are {images.dtype}; expected floating point. "
            "For pixels 0 to 255 use images.float() / 255"
        )
    low, high = float(images.min()), float(images.max())
    if not math.isfinite(low) or not math.isfinite(high):
        raise ValueError("images hold NaN or infinity; look at images.isfinite()")
    if max(-low, high) > 30:
        raise ValueError(
            f"images run from {low:g} to {high:g}; expected about 0 to 1 or "
            "standardised. For pixels 0 to 255 use images / 255"
        )
    device = next(model.parameters()).device
    K = predict(model, images[:1]).shape[1]
    if labels.is_floating_point() or labels.min() < 0 or labels.max() >= K:
        raise ValueError(
            f"labels are {labels.dtype} from {labels.min()} to {labels.max()}; the "
            f"model has {K} classes and needs whole numbers 0 to {K - 1}"
        )
    return LabelledImages(images.to(device), labels.long().to(device))
