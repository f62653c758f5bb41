"""Train a run while its process is killed repeatedly, each time at another moment.

Called as `python killing.py CONFIG.json OUT NUMBER_OF_KILLS SEED`. Torch is imported once; each
process is a fork. Half of them are killed at a random time, half at a random file event, which is
during a save or a resume. Prints the number of both. The last process is not killed.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

from tilth.config.training import TrainingConfig
from tilth.training import resume, train

FILE_EVENTS = {"open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.truncate"}


def live(config, out, event_number):
    """Train to the end; with an event number, kill the process at that file event."""
    events = 0

    def hook(event, arguments):
        nonlocal events
        if event in FILE_EVENTS and out.name in str(arguments[0]):
            events += 1
            if events == event_number:
                os.kill(os.getpid(), signal.SIGKILL)

    if event_number:
        sys.addaudithook(hook)
    for _ in resume(out) if (out / "config.toml").exists() else train(config, out):
        pass


def main():
    config_file, out, num_kills, seed = sys.argv[1:]
    config, out = TrainingConfig.from_dict(json.loads(Path(config_file).read_text())), Path(out)
    draw, ends = random.Random(int(seed)), {"in time": 0, "at an event": 0}
    torch.set_num_threads(1)
    while True:
        is_last = sum(ends.values()) >= int(num_kills)
        by_event = draw.random() < 0.5
        child = os.fork()
        if child == 0:
            live(config, out, draw.randrange(1, 60) if by_event and not is_last else 0)
            os._exit(0)
        if not by_event and not is_last:
            time.sleep(draw.random() * float(os.environ.get("LONGEST_LIFE", "0.5")))
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            assert os.waitstatus_to_exitcode(status) == 0
            break
        ends["at an event" if by_event else "in time"] += 1
    print(json.dumps(ends))


if __name__ == "__main__":
    main()
