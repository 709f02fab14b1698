"""What the image has: reads the configuration that it is given."""

import os
import sys
from pathlib import Path

flag, path = sys.argv[1:]
text = " ".join(Path(path).read_text().split())
extra = os.environ.get("EXTRA"), os.environ["SEED"], os.path.isdir("/scratch")
print(f"RECIPE rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']} {flag} {path}: {text} {extra}", flush=True)
