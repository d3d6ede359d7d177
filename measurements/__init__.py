"""Times kernels on an NVIDIA GPU: ``python -m measurements --help``."""
