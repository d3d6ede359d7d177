"""What ONNX Runtime's CUDA provider launches for each node of a model, on stand-ins for CUDA's libraries.

    LD_LIBRARY_PATH=STAND-INS STANDIN_LOG=FILE STANDIN_TIMES=1 python cuda_launches.py SITE-PACKAGES MODEL SIZES

A process of its own, for an early release in a Python of its time (3.8 and later): SITE-PACKAGES holds onnxruntime-gpu,
which can't be imported beside onnxruntime. STAND-INS is what ``cuda_standin.py`` has built, SIZES a JSON object of open
dims. Inputs are ones. The second of two runs is told, as lines of operator, provider and launches (JSON): those that
the log has between a node's begin and end by ONNX Runtime's profile, both by the host's clock.
"""

from __future__ import annotations

import bisect
import json
import os
import sys
import tempfile
import time
from pathlib import Path

SLACK_NS = 3_000
"""The profile tells times in us."""


def main() -> None:
    site_packages, model, sizes = sys.argv[1:4]
    sys.path.insert(0, site_packages)
    import numpy as np
    import onnxruntime

    types = {"float": "float32", "double": "float64"}
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.enable_profiling = True
    folder = tempfile.mkdtemp()
    options.profile_file_prefix = f"{folder}/profile"
    providers = [("CUDAExecutionProvider", {"cudnn_conv_algo_search": "HEURISTIC"}), "CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(model, options, providers=providers)
    session.disable_fallback()
    if "CUDAExecutionProvider" not in session.get_providers():
        sys.exit("the CUDA provider couldn't be loaded: is the folder of stand-ins on LD_LIBRARY_PATH?")
    known = json.loads(sizes)
    feeds = {}
    for given in session.get_inputs():
        kind = given.type.split("(")[1].rstrip(")")  # "tensor(float)"
        shape = [size if isinstance(size, int) else known[size] for size in given.shape]
        feeds[given.name] = np.ones(shape, types.get(kind, kind))
    session.run(None, feeds)
    begun = time.time_ns()
    session.run(None, feeds)
    zero = session.get_profiling_start_time_ns()
    profile = Path(session.end_profiling())
    nodes = sorted(
        (zero + 1000 * event["ts"], 1000 * event["dur"], event["args"]["op_name"], event["args"]["provider"])
        for event in json.loads(profile.read_text())
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time")
    )
    nodes = [node for node in nodes if node[0] >= begun - SLACK_NS]
    launches: list[list[str]] = [[] for _ in nodes]
    starts = [start for start, *_ in nodes]
    for line in Path(os.environ["STANDIN_LOG"]).read_text().splitlines():
        at, _, launch = line.partition("\t")
        place = bisect.bisect_right(starts, int(at)) - 1 if at.isdigit() and int(at) >= begun else -1
        if place >= 0 and int(at) <= starts[place] + nodes[place][1] + SLACK_NS:
            launches[place].append(launch)
    for place, (_, _, op_type, provider) in enumerate(nodes):
        print(json.dumps([op_type, provider, launches[place]]))
    profile.unlink()
    Path(folder).rmdir()


if __name__ == "__main__":
    main()
