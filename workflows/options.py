"""How activities are called, named by intent. Whether an error is worth a retry is decided where it is known
(`activities.failures`); here is only how patient we are.

Real durations all: a compressed day does not make the world faster. A worker that is killed in the middle of a
call costs its `start_to_close_timeout` (or `heartbeat_timeout`, where it beats): short ones recover soon.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TypedDict

from temporalio.common import Priority, RetryPolicy
from temporalio.workflow import ActivityCancellationType

_EAGER = RetryPolicy(
    initial_interval=timedelta(milliseconds=500),
    backoff_coefficient=2,
    maximum_interval=timedelta(seconds=15),
)


class Options(TypedDict, total=False):
    """The part of `workflow.start_activity` that a preset decides."""

    start_to_close_timeout: timedelta
    schedule_to_close_timeout: timedelta
    schedule_to_start_timeout: timedelta
    heartbeat_timeout: timedelta
    retry_policy: RetryPolicy
    cancellation_type: ActivityCancellationType
    priority: Priority


# One short call of a server that is usually there; given up after two minutes, to be named and tried again.
QUICK = Options(
    start_to_close_timeout=timedelta(seconds=10),
    schedule_to_close_timeout=timedelta(minutes=2),
    retry_policy=_EAGER,
)

# The same, where nothing can go on without it: tried until it works or its caller is no longer interested.
PERSISTENT = Options(start_to_close_timeout=timedelta(seconds=10), retry_policy=_EAGER)

# A creation: when it is no longer wanted, its last attempt is waited for, so that the undoing comes after it.
CREATION = Options(
    start_to_close_timeout=timedelta(seconds=10),
    retry_policy=_EAGER,
    cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
)

# A call on a site's queue that somebody waits for: a site without workers is named, not waited for.
SITE = Options(
    start_to_close_timeout=timedelta(seconds=60),
    schedule_to_close_timeout=timedelta(seconds=90),
    retry_policy=_EAGER,
)

# Pure computation in a worker.
COMPUTE = Options(start_to_close_timeout=timedelta(seconds=30), retry_policy=_EAGER)

# A long effect that heartbeats while it moves: staging weights, pulling an image, waiting for pods to go.
LONG = Options(
    start_to_close_timeout=timedelta(hours=6),
    heartbeat_timeout=timedelta(seconds=10),
    retry_policy=_EAGER,
    cancellation_type=ActivityCancellationType.TRY_CANCEL,
)

# A proof: the engine has loaded, so an answer is near or something is wrong with it.
PROOF = Options(
    start_to_close_timeout=timedelta(seconds=30),
    schedule_to_close_timeout=timedelta(seconds=90),
    retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=250), maximum_interval=timedelta(seconds=5)),
)

# Whatever stands between a node and its owner's deadline goes first.
URGENT = Options(
    start_to_close_timeout=timedelta(seconds=30),
    heartbeat_timeout=timedelta(seconds=5),
    retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=250), maximum_interval=timedelta(seconds=1)),
    cancellation_type=ActivityCancellationType.TRY_CANCEL,
    priority=Priority(priority_key=1),
)
