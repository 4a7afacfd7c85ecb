"""Many runs: carried out, judged, repeated, summed up."""

from testbed.campaign.executors import Executor
from testbed.campaign.tasks import Outcome, Task, carry_out

__all__ = ["Executor", "Outcome", "Task", "carry_out"]
