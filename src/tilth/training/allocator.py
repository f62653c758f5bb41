"""Let malloc keep freed memory for the next step.

Each step frees and allocates the same large tensors. By default, glibc returns each of them to the
kernel, which clears all pages again. A product into new memory (8,192 x 512 by 512 x 2,688) takes
1.19 times as long, a compiled step of the reference model 1.05 times.

>>> import platform
>>> keep_freed_memory() == (platform.libc_ver()[0] == "glibc")
True
"""

import ctypes
import functools
import sys

TRIM_THRESHOLD, MMAP_MAX = -1, -4  # from malloc.h


@functools.cache
def keep_freed_memory() -> bool:
    """Let malloc keep freed memory until the process ends; return False without glibc.

    The process then holds its peak memory to the end. Results do not change, as torch aligns
    tensors to 64 bytes in either case.
    """
    library = ctypes.CDLL(None) if sys.platform == "linux" else None
    if library is None or not hasattr(library, "gnu_get_libc_version"):
        return False
    # Do not map large blocks separately, and do not return free memory at the end of the heap.
    return bool(library.mallopt(MMAP_MAX, 0) and library.mallopt(TRIM_THRESHOLD, -1))
