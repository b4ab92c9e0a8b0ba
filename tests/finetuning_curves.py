"""U-curves by hand: a step's time is a/f + b, its power p0 + p1 f V(f)^2, as on a real board."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from joulewise.domain.finetuning import ClockCost, ClockCurve, JobFeatures, ModelType

ORIN_MHZ = (306, 408, 510, 612, 714, 816, 918, 1020, 1122, 1224, 1300)
LENGTHS = (14.0, 51.0, 55.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """Times at 1 GHz and powers of a made-up job; the voltage rises above 600 MHz."""

    scaled_s: float = 0.1
    fixed_s: float = 0.02
    fixed_w: float = 8.0
    scaled_w: float = 15.0

    def cost(self, clock: int) -> ClockCost:
        """One step at a clock."""
        voltage = 1.0 + 0.6 * max(0.0, clock / 1000 - 0.6)
        time_s = self.scaled_s * 1000 / clock + self.fixed_s
        power_w = self.fixed_w + self.scaled_w * clock / 1000 * voltage**2
        return ClockCost(sm_clock_mhz=clock, time_s=time_s, energy_j=time_s * power_w)


def curve(
    job: str = "made-up/job",
    law: Law | None = None,
    *,
    features: JobFeatures | None = None,
    clocks: Sequence[int] = ORIN_MHZ,
    governor_mhz: int | None = None,
) -> ClockCurve:
    """One job; the governor runs at the highest clock unless another is named."""
    law = law or Law()
    top = law.cost(governor_mhz or clocks[-1])
    return ClockCurve(
        job=job,
        device="virtual:made-up",
        device_name="Made-up Orin",
        is_simulated=True,
        features=features,
        baseline=ClockCost(sm_clock_mhz=None, time_s=top.time_s, energy_j=top.energy_j),
        costs=tuple(law.cost(clock) for clock in clocks),
    )


def features_of(
    layers: int = 12,
    length: float = 51.0,
    *,
    hidden: int = 768,
    model_type: ModelType = ModelType.ENCODER,
) -> JobFeatures:
    """What is known of a made-up job."""
    return JobFeatures(
        model_type=model_type,
        layer_count=layers,
        hidden_count=hidden,
        mean_sequence_count=length,
        parameter_count=12 * layers * hidden * hidden,
    )


def training_curves(clocks: Sequence[int] = ORIN_MHZ) -> tuple[ClockCurve, ...]:
    """Twelve jobs: small models lose time on the host and like low clocks, big ones do not."""
    jobs = []
    for name, layers, hidden in (("s", 4, 256), ("m", 6, 512), ("l", 12, 768), ("xl", 24, 1024)):
        for length in LENGTHS:
            size = layers * hidden * hidden * length / 1e9
            law = Law(
                scaled_s=0.02 + size, fixed_s=0.06, fixed_w=6 + 0.5 * layers, scaled_w=16 + layers
            )
            features = features_of(layers, length, hidden=hidden)
            jobs.append(curve(f"{name}/{length:g}", law, features=features, clocks=clocks))
    return tuple(jobs)
