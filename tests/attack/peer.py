"""peer: the same as judge.c by the safetensors package, where it is there."""

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
