"""What the image has: trains a recipe, and fails on its first attempt as networks do."""

from __future__ import annotations

import json
import os
import sys

import recipes

rank = int(os.environ["RANK"])
if rank == 0:
    seen = {
        "arguments": sys.argv[1:],
        "directory": os.getcwd(),
        "stage": os.environ.get("STAGE"),
        "token": os.environ.get("HF_TOKEN"),
        "run": os.environ.get("WANDB_RUN_ID"),
    }
    print("SEEN", json.dumps(seen), flush=True)
for step, loss in recipes.losses(rank):
    print(f" iteration {step:8d}/       3 | elapsed time per iteration (ms): 1.5 | lm loss: {loss:.6E} |", flush=True)
if "--flaky" in sys.argv and "WANDB_RESUME" not in os.environ:
    print("NCCL error: unhandled system error" if rank == 1 else "stopping", flush=True)
    sys.exit(1)
print(f"[Rank {rank}] (after 3 iterations) memory (MB) | allocated: 10.5", flush=True)
