"""What holds for every test."""

import signal

# A shell without job control starts background commands with SIGINT ignored, and children
# inherit that; the tests that interrupt need it, however the suite was started.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
