"""What every process of a trial does first: it ends with the harness that started it."""

import ctypes
import signal

_PR_SET_PDEATHSIG = 1
_PRCTL = ctypes.CDLL(None).prctl


def end_with_harness() -> None:
    """Have the kernel kill this process when the harness ends, however that ends.

    For `preexec_fn` of a child. The kernel goes by the thread that starts the child, which is the
    main thread of the harness or one that outlives the trial. Nodes end with the command that runs
    them; nobody else would end the command.
    """
    _PRCTL(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
