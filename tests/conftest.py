"""What every test relies on."""

import signal

# Where the suite is started in the background, a shell has Ctrl-C ignored, and every child would
# inherit that: tests of interruption need the usual handling.
signal.signal(signal.SIGINT, signal.default_int_handler)
