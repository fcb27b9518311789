"""peer: like judge.c, but with the safetensors package, if it is installed."""

import struct
import sys

from safetensors import deserialize

while head := sys.stdin.buffer.read(4):
    data = sys.stdin.buffer.read(struct.unpack("<I", head)[0])
    try:
        deserialize(data)
        print(1, end="")
    except Exception:
        print(0, end="")
