"""Chapter 2: from a patch of pixels to a vector the Transformer can read.

Axes: B batch, C channels, H W image, P patch (P high, Q wide), N patches, D width.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from course_utils.patches import Size, as_pair, patchify


class PatchEmbedding(nn.Module):
    """One learned linear map, the same for every patch: tokens = patches @ E + bias.

    E is kept as the weights of a convolution whose stride equals its kernel, `proj`,
    for that is the form in which weights are published. The convolution gives the same
    tokens; the matrix product is quicker on a CPU and refuses to cut off a border.
    """

    def __init__(self, patch_size: Size, in_chans: int, embed_dim: int) -> None:
        super().__init__()
        self.patch_size = as_pair(patch_size, "patch_size")
        self.proj = nn.Conv2d(in_chans, embed_dim, self.patch_size, self.patch_size)

    def forward(self, images: Tensor) -> Tensor:
        """Embed images (B, C, H, W) as tokens (B, N, D), patches in reading order.

        Raises:
            ValueError: if the patch does not divide the image, or the channels differ.
        """
        patches = patchify(images, self.patch_size)  # (B, N, P*Q*C)
        if images.shape[1] != self.proj.in_channels:
            raise ValueError(
                f"images of shape {tuple(images.shape)} have {images.shape[1]} "
                f"channels; these filters expect {self.proj.in_channels}. "
                "Convert the images, or the filters (see rgb_to_grey)"
            )
        E = conv_to_linear(self.proj.weight)  # (P*Q*C, D)
        return F.linear(patches, E.T, self.proj.bias)  # (B, N, D)


def linear_to_conv(matrix: Tensor, patch_size: Size, in_chans: int) -> Tensor:
    """Reorder a matrix E (P*Q*C, D) into convolution weights (D, C, P, Q).

    Column d of E becomes filter d. Patches flatten as (P, Q, C), convolution weights
    as (C, P, Q): copying without this reorder mixes up pixels and channels.

    Raises:
        ValueError: if E does not have P*Q*C rows.
    """
    P, Q = as_pair(patch_size, "patch_size")
    if matrix.ndim != 2 or matrix.shape[0] != P * Q * in_chans:
        raise ValueError(
            f"the matrix has shape {tuple(matrix.shape)}; {P}x{Q} patches of "
            f"{in_chans} channels need ({P * Q * in_chans}, D)"
        )
    x = matrix.T.reshape(-1, P, Q, in_chans)
    return x.permute(0, 3, 1, 2).contiguous()  # (D, C, P, Q)


def conv_to_linear(weight: Tensor) -> Tensor:
    """Reorder convolution weights (D, C, P, Q) into a matrix E (P*Q*C, D).

    The exact inverse of `linear_to_conv`.

    Raises:
        ValueError: if the weights are not 4-D.
    """
    if weight.ndim != 4:
        raise ValueError(
            f"the weights have shape {tuple(weight.shape)}; expected (D, C, P, Q)"
        )
    D = weight.shape[0]
    x = weight.permute(0, 2, 3, 1)  # (D, P, Q, C)
    return x.reshape(D, -1).T  # (P*Q*C, D)


def rgb_to_grey(weight: Tensor) -> Tensor:
    """Turn RGB filters (D, 3, P, Q) into grey ones (D, 1, P, Q) by summing channels.

    A grey image shown as RGB has three equal channels, so the sum (not the mean)
    gives the same embedding for it.

    Raises:
        ValueError: if the weights do not have three input channels.
    """
    if weight.ndim != 4 or weight.shape[1] != 3:
        raise ValueError(
            f"the weights have shape {tuple(weight.shape)}; expected (D, 3, P, Q)"
        )
    return weight.sum(1, keepdim=True)  # (D, 1, P, Q)
