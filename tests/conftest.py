"""What all suites share."""

import signal

# A shell that starts something in the background has it ignore SIGINT, and all its children too: Ctrl-C could then not
# be tested at all, and not be used either to end the tests.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
