"""Many runs: made, judged, repeated, summarised."""

from testbed.campaign.executors import Executor
from testbed.campaign.tasks import Outcome, Task, carry_out

__all__ = ["Executor", "Outcome", "Task", "carry_out"]
