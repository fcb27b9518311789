"""hold: reports that it is ready; for a line with a number, takes the first GPU's memory except that many bytes, reports
it, and releases the memory at the end of standard input."""

import ctypes
import sys

driver = ctypes.CDLL("libcuda.so.1")
MEBIBYTE = 1 << 20


def call(name, *arguments):
    error = getattr(driver, name)(*arguments)
    if error:
        sys.exit(f"hold: {name} fails with {error}")


def free():
    left, every = ctypes.c_size_t(), ctypes.c_size_t()
    call("cuMemGetInfo_v2", ctypes.byref(left), ctypes.byref(every))
    return left.value


context, memory = ctypes.c_void_p(), ctypes.c_uint64()
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
print("ready", flush=True)
sys.stdin.readline()
part = 1 << 36
while part >= MEBIBYTE:  # free memory may be fragmented
    if free() < int(sys.argv[1]) + part or driver.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(part)):
        part //= 2
print("held", flush=True)
sys.stdin.read()
