"""``python -m neusight_onnx`` is ``neusight-onnx``."""

import sys

from neusight_onnx.cli import main

if __name__ == "__main__":
    sys.exit(main())
