"""Builds engines with TensorRT for RTX, ahead of time and without a GPU; writes what its builder says of their layers.

    python benchmarks/trt_engine.py SITE-PACKAGES MODEL CAPABILITY... > LAYERS

A process of its own: SITE-PACKAGES holds ``tensorrt_rtx_bindings`` and ``tensorrt_rtx_libs``. MODEL is strongly typed:
its kernels compute in the types that the file has. CAPABILITY is one such as 8.6. What is written, a JSON object by
capability, is the builder's own list of layers, which it logs at verbose level when the engine's profiling verbosity is
detailed: a layer a line, with its operands and the ONNX nodes that it does the work of.
"""

from __future__ import annotations

import argparse
import json
import sys


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("site_packages", metavar="SITE-PACKAGES")
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("capabilities", metavar="CAPABILITY", nargs="+")
    options = parser.parse_args()
    sys.path.insert(0, options.site_packages)
    import tensorrt_rtx_bindings as trt

    class Log(trt.ILogger):
        """Keeps the list of layers, and errors."""

        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.layers = ""
            self.errors: list[str] = []

        def log(self, severity: object, message: str) -> None:
            if severity in (trt.ILogger.Severity.ERROR, trt.ILogger.Severity.INTERNAL_ERROR):
                self.errors.append(message)
            elif message.startswith("Layers:"):
                self.layers = message

    found = {"version": trt.__version__}
    for capability in options.capabilities:
        log = Log()
        builder = trt.Builder(log)
        network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
        reader = trt.OnnxParser(network, log)
        if not reader.parse_from_file(options.model):
            sys.exit(str(reader.get_error(0)))
        config = builder.create_builder_config()
        config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
        config.num_compute_capabilities = 1
        config.set_compute_capability(getattr(trt.ComputeCapability, f"SM{capability.replace('.', '')}"), 0)
        if builder.build_serialized_network(network, config) is None or not log.layers:
            sys.exit(log.errors[0] if log.errors else f"no engine for compute capability {capability}")
        found[capability] = log.layers
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
