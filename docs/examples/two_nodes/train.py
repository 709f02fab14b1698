"""Stand in for a training script: count steps, print a loss, write a result for each node."""

import argparse
import os
import socket
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=5)
steps = parser.parse_args().steps

print(f"rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']} on {socket.gethostname()}, code in {os.getcwd()}")
for step in range(1, steps + 1):
    print(f"iteration {step}/{steps} loss {1 / step:.3f}", flush=True)
    time.sleep(0.2)

results = Path(os.environ["NEMO_RUN_DIR"], "results")
results.mkdir(exist_ok=True)
node = os.environ["GROUP_RANK"]
Path(results, f"node-{node}.txt").write_text(f"node {node} finished {steps} steps\n")
