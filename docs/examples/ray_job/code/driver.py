"""Stand in for a Ray driver: import a module that was copied along, and show what comes of it."""

import os
import time

import squares

print(f"driver in {os.getcwd()}, imported {squares.__file__}", flush=True)
for number, square in enumerate(squares.squares(5), start=1):
    print(f"{number} squared is {square}", flush=True)
    time.sleep(0.5)
