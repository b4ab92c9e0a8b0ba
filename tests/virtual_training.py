"""A training program on a virtual board, in virtual time: the live governor without waiting."""

from __future__ import annotations

from collections.abc import Callable

from joulewise.domain.finetuning import StepMark
from joulewise.domain.ports import Gpu, KernelLoop
from joulewise.domain.session import DeviceSession
from joulewise.finetune.learning_cost import LOOK_S
from joulewise.finetune.live import LiveGovernor
from joulewise.workflow.finetune_running import LiveSteering, Steered
from joulewise.workflow.leasing import lease_on
from joulewise.workflow.point_watch import Notice

_RUN = "fine-tuning"


class VirtualTraining:
    """Steps of one job on a virtual board, marked as a program would mark them.

    A step is one launch of the kernel that stands for it. It is a source of marks, and calls back
    often enough for power to be read, as time passes on the board while it runs.
    """

    def __init__(self, gpu: Gpu, planned_count: int | None = None) -> None:
        """Run nothing yet; `planned_count` is told as a program would tell it."""
        self.doubt: str | None = None
        self.planned_count = planned_count
        self.is_ambiguous = False
        self._gpu = gpu
        self._unread: list[StepMark] = []
        self._step_count = 0
        self._usual_s = 0.0

    def read(self, now_s: float) -> tuple[StepMark, ...]:  # noqa: ARG002 - as a file is read
        """Marks since the last look."""
        marks, self._unread = tuple(self._unread), []
        return marks

    def run(
        self,
        loop: KernelLoop,
        step_count: int,
        look: Callable[[], None],
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        """Take so many steps, or fewer where it is over sooner, and look meanwhile."""
        self._mark()
        last_s = self._gpu.now_s()
        for number in range(step_count):
            if is_over():
                return
            loop.begin_window(number)
            self._pass_most_of_a_step(loop, look)
            timing = loop.end_window()
            self._usual_s = timing.elapsed_s / timing.launch_count
            self._step_count += timing.launch_count
            self._mark()
            if self._gpu.now_s() - last_s >= LOOK_S:
                look()
                last_s = self._gpu.now_s()

    def _pass_most_of_a_step(self, loop: KernelLoop, look: Callable[[], None]) -> None:
        """Power is read within long steps, too; their end is left to the loop."""
        left_s = self._usual_s - LOOK_S
        while left_s > LOOK_S:
            loop.run_for(LOOK_S)
            look()
            left_s -= LOOK_S

    def _mark(self) -> None:
        self._unread.append(StepMark(step=self._step_count, time_s=self._gpu.now_s()))


def steer_virtual(
    session: DeviceSession,
    kernel: str,
    governor: LiveGovernor,
    step_count: int,
    notice: Notice = lambda _: None,
) -> Steered:
    """Train so many steps on a virtual board under this governor, under a lease.

    `kernel` stands for one step. Raises what the device raises.
    """
    gpu = session.gpu
    training = VirtualTraining(gpu)
    with lease_on(gpu) as lease:
        steering = LiveSteering(gpu, lease, governor, training, notice)
        steering.begin()
        with session.runner.loop(kernel, run=_RUN) as loop:
            training.run(loop, step_count, steering.look)
        steering.look()
        return steering.steered()
