"""Has ONNX Runtime's CUDA provider write the graph that it would run; stderr says where it places which node.

    LD_LIBRARY_PATH=STAND-INS python benchmarks/cuda_graph.py SITE-PACKAGES MODEL WRITTEN

A process of its own: SITE-PACKAGES holds onnxruntime-gpu, which can't be imported beside onnxruntime. STAND-INS is what
``cuda_standin.py`` has built.
"""

from __future__ import annotations

import argparse
import sys


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("site_packages", metavar="SITE-PACKAGES")
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("written", metavar="WRITTEN")
    given = parser.parse_args()
    sys.path.insert(0, given.site_packages)
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.optimized_model_filepath = given.written
    options.log_severity_level = 0
    options.intra_op_num_threads = 1
    # weights stay out of the file that is written: only its nodes are looked at
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "optimised.weights")
    options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "1024")
    session = onnxruntime.InferenceSession(
        given.model, options, providers=["CUDAExecutionProvider", "CPUExecutionProvider"]
    )
    if "CUDAExecutionProvider" not in session.get_providers():
        sys.exit("the CUDA provider couldn't be loaded: is the folder of stand-ins on LD_LIBRARY_PATH?")


if __name__ == "__main__":
    main()
