"""A small Vision Transformer in PyTorch that reads like the course it belongs to.

One module a chapter: `patches` (1), `embedding` (2), `positions` (3 and 4),
`attention` and `encoder` (5), `vit` (6), `counting` (7), `cnn` (8), `checkpoints` (9).
Around the model stand `data`, `training`, `inspection`, `plots` and `diagram`. Import
what you need from its module:

    from course_utils.vit import VisionTransformer, ViTConfig
"""

__version__ = "0.1.0"
