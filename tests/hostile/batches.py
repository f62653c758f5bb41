"""Batches of cases, each in a forked child: a crash or a hang ends the child, not the campaign."""

import json
import mmap
import os
import signal
import struct
import time
import traceback

BATCH = 500
NUMBER = struct.Struct("<q")


def run_in_batches(problem_of, numbers, hang_seconds, batch=BATCH):
    """Yield {case, problem, words} of each case whose `problem_of(number)` is (problem, words).

    The child writes the number of each case to shared memory before it runs: after a signal, or
    `hang_seconds` without progress, that is the case to blame, and the next child begins after it.
    """
    first = numbers.start
    with mmap.mmap(-1, NUMBER.size) as running:
        while first < numbers.stop:
            NUMBER.pack_into(running, 0, first)
            read, write = os.pipe()
            child = os.fork()
            if child == 0:
                os.close(read)
                _run(problem_of, range(first, min(first + batch, numbers.stop)), running, write)
            os.close(write)
            is_hanging = not _wait(read, running, hang_seconds)
            if is_hanging:
                os.kill(child, signal.SIGKILL)
            with os.fdopen(read, "rb") as said:
                lines = said.read().splitlines()
            _, status = os.waitpid(child, 0)
            yield from map(json.loads, lines)
            first += batch
            if status:
                (number,) = NUMBER.unpack_from(running)
                code = os.waitstatus_to_exitcode(status)
                ended = f"no progress in {hang_seconds} s" if is_hanging else f"ended with {code}"
                yield {"case": number, "problem": ended, "words": []}
                first = number + 1


def _run(problem_of, numbers, running, write):
    """Run cases in the child, and end it."""
    try:
        with os.fdopen(write, "wb") as out:
            for number in numbers:
                NUMBER.pack_into(running, 0, number)
                problem, words = problem_of(number)
                if problem:
                    found = {"case": number, "problem": problem, "words": words}
                    out.write(json.dumps(found).encode() + b"\n")
                    out.flush()
        os._exit(0)
    except BaseException:  # of the campaign itself
        traceback.print_exc()
    finally:
        os._exit(70)


def _wait(read, running, hang_seconds):
    """Wait until the child closes its pipe; False if it stays at one case for too long."""
    import select

    number, since = None, time.monotonic()
    poll = select.poll()
    poll.register(read, select.POLLHUP)
    while not any(event & select.POLLHUP for _, event in poll.poll(200)):
        if (now := bytes(running[: NUMBER.size])) != number:
            number, since = now, time.monotonic()
        elif time.monotonic() - since > hang_seconds:
            return False
    return True
