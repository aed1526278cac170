"""A recipe for other programs: timm, torchvision's references, PaddleClas, and a script of its own."""
