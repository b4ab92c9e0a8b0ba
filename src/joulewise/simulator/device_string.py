"""Device strings of virtual and recorded GPUs: `virtual:rtx3080ti,noise=0,seed=7`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from joulewise.domain.errors import InputError
from joulewise.domain.transition_presets import STALL_POWER_W, transition_preset_names
from joulewise.simulator.noise import DEFAULT_NOISE, STRESS_NOISE, NoiseLevel

PREFIX = "virtual"
RECORDED_PREFIX = "recorded"

OPTIONS: Mapping[str, str] = {
    "noise": "`default`, `stress`, 0 for none, or a multiple of the default",
    "seed": "an integer that picks the board and its noise",
    "shift": "spread between measuring runs, 0.0045 or 0.45%",
    "gain": "spread of the power sensor's scale between boards, 0.02 or 2%",
    "control": "`allowed`, or `denied` to refuse every change of clocks",
    "lag": "time until a requested point takes effect, 0.02 or 20ms",
    "stall": "time that the GPU waits at every change of point, 0.001 or 1ms; no lag then, "
    "unless one is given",
    "stall_power": "power drawn while it waits, 60 or 60W; goes with stall",
    "transition": f"what a change costs: {', '.join(transition_preset_names())}",
    "counter_period": "time between two movements of the energy counter, 0.1 or 100ms",
    "ambient": "air temperature in °C, 25 or 25C",
    "lost_after": "virtual seconds until the device is lost",
    "foreign": "virtual seconds FROM..TO in which another process loads the GPU",
    "counter_reset": "virtual seconds after which the energy counter starts anew, once",
}

# A recording is free of noise, tells its own temperatures, and is of one board.
RECORDED_OPTIONS = tuple(
    name for name in OPTIONS if name not in ("noise", "seed", "shift", "gain", "ambient", "foreign")
)

_NUMBER = r"([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)"
_RATIO = re.compile(_NUMBER + r"\s*(%?)", re.IGNORECASE)
_DURATION = re.compile(_NUMBER + r"\s*(us|ms|s|)", re.IGNORECASE)
_POWER = re.compile(_NUMBER + r"\s*(?:W|)", re.IGNORECASE)
_TEMPERATURE = re.compile(_NUMBER + r"\s*(?:°?C|)", re.IGNORECASE)
_SCALE_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "": 1.0}
_SHORTEST_COUNTER_PERIOD_S = 0.001
# Beyond these the arithmetic of virtual time and noise ends; nothing real comes near.
_LONGEST_S = 1e12
_LOUDEST_RATIO = 100.0
_COLDEST_C, _HOTTEST_C = -40.0, 120.0
_HIGHEST_W = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualOptions:
    """A parsed device string; `None` leaves a value to the preset or to the noise level.

    `preset` is the file of a recorded device.
    """

    preset: str
    prefix: str = PREFIX
    noise: str = "default"
    seed: int = 0
    shift_ratio: float | None = None
    gain_ratio: float | None = None
    is_control_denied: bool = False
    lag_s: float | None = None
    stall_s: float | None = None
    stall_power_w: float | None = None
    transition: str | None = None
    counter_period_s: float | None = None
    ambient_c: float | None = None
    lost_after_s: float | None = None
    foreign_from_s: float | None = None
    foreign_to_s: float | None = None
    counter_reset_s: float | None = None

    @property
    def is_recorded(self) -> bool:
        """Whether this is a recorded device, which knows no noise."""
        return self.prefix == RECORDED_PREFIX

    @property
    def spec(self) -> str:
        """The shortest device string that means the same, options in one fixed order."""
        texts = {
            "noise": None if self.noise == "default" or self.is_recorded else self.noise,
            "seed": str(self.seed) if self.seed else None,
            "shift": _text(self.shift_ratio),
            "gain": _text(self.gain_ratio),
            "control": "denied" if self.is_control_denied else None,
            "lag": _text(self.lag_s),
            "stall": _text(self.stall_s),
            "stall_power": _text(self.stall_power_w),
            "transition": self.transition,
            "counter_period": _text(self.counter_period_s),
            "ambient": _text(self.ambient_c),
            "lost_after": _text(self.lost_after_s),
            "foreign": _range_text(self.foreign_from_s, self.foreign_to_s),
            "counter_reset": _text(self.counter_reset_s),
        }
        options = [f"{name}={text}" for name, text in texts.items() if text is not None]
        return f"{self.prefix}:{','.join([self.preset, *options])}"

    @property
    def noise_level(self) -> NoiseLevel:
        """The noise that these options ask for."""
        if self.noise == "default":
            level = DEFAULT_NOISE
        elif self.noise == "stress":
            level = STRESS_NOISE
        else:
            level = DEFAULT_NOISE.scaled(float(self.noise))
        if self.shift_ratio is not None:
            level = replace(level, run_shift_ratio=self.shift_ratio)
        if self.gain_ratio is not None:
            level = replace(level, gain_ratio=self.gain_ratio)
        return level


def is_virtual(device: str) -> bool:
    """Whether this device string names a virtual GPU."""
    return device.strip().partition(":")[0].strip() == PREFIX


def is_recorded(device: str) -> bool:
    """Whether this device string names a recorded sweep."""
    return device.strip().partition(":")[0].strip() == RECORDED_PREFIX


def parse_recorded(device: str) -> VirtualOptions:
    """Read `recorded:FILE,option=value`; the file may itself have commas in its name.

    Raises:
        InputError: not a recorded device, or a value that cannot be read.
    """
    file, texts = device.strip().partition(":")[2].strip(), list[str]()
    while (rest := file.rpartition(","))[2].partition("=")[0].strip() in RECORDED_OPTIONS:
        file, texts = rest[0].strip(), [rest[2], *texts]
    if not is_recorded(device) or not file:
        raise InputError(
            f"{device!r} does not name a recorded sweep",
            field="device",
            hint="Write recorded:FILE or recorded:FILE,option=value, as in "
            "recorded:sweep.parquet,lag=5ms.",
        )
    options = _options(file, _option_texts(device, texts))
    return replace(options, prefix=RECORDED_PREFIX, noise="0")


def parse_device(device: str) -> VirtualOptions:
    """Read a device string; which presets exist is for `presets.preset` to say.

    Raises:
        InputError: not a virtual device, or an option or value that is unknown; names the
            field and what is known.
    """
    prefix, _, rest = device.strip().partition(":")
    preset, *parts = (part.strip() for part in rest.split(","))
    if prefix.strip() != PREFIX or not preset:
        raise InputError(
            f"{device!r} does not name a virtual device",
            field="device",
            hint="Write virtual:NAME or virtual:NAME,option=value, as in "
            "virtual:rtx3080ti,noise=0,seed=7; `joulewise devices` lists the names.",
        )
    return _options(preset, _option_texts(device, parts))


def _options(preset: str, texts: Mapping[str, str]) -> VirtualOptions:
    foreign_from_s, foreign_to_s = _foreign(texts)
    return VirtualOptions(
        preset=preset,
        noise=_noise(texts),
        seed=_seed(texts),
        shift_ratio=_read(texts, "shift", _ratio),
        gain_ratio=_read(texts, "gain", _ratio),
        is_control_denied=_is_control_denied(texts),
        lag_s=_read(texts, "lag", _duration),
        stall_s=_read(texts, "stall", _duration),
        stall_power_w=_stall_power_w(texts),
        transition=_transition(texts),
        counter_period_s=_read(texts, "counter_period", _counter_period),
        ambient_c=_read(texts, "ambient", _temperature),
        lost_after_s=_read(texts, "lost_after", _duration),
        foreign_from_s=foreign_from_s,
        foreign_to_s=foreign_to_s,
        counter_reset_s=_read(texts, "counter_reset", _duration),
    )


def _option_texts(device: str, parts: list[str]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for part in parts:
        name, equals, text = (piece.strip() for piece in part.partition("="))
        if name not in OPTIONS:
            raise InputError(
                f"{device!r} has the unknown option {name!r}",
                field=name or "device",
                hint=f"Known options: {', '.join(OPTIONS)}.",
            )
        if name in texts:
            raise InputError(
                f"{device!r} gives {name!r} twice", field=name, hint="Keep one of the two."
            )
        if not equals or not text:
            raise _refuse(name, text)
        texts[name] = text
    return texts


def _refuse(name: str, text: str) -> InputError:
    return InputError(
        f"{text!r} is no value for the option {name!r}",
        field=name,
        hint=f"{name} is {OPTIONS[name]}.",
    )


def _read(
    texts: Mapping[str, str], name: str, parse: Callable[[str], float | None]
) -> float | None:
    if name not in texts:
        return None
    value = parse(texts[name])
    if value is None or not math.isfinite(value):
        raise _refuse(name, texts[name])
    return value


def _ratio(text: str) -> float | None:
    match = _RATIO.fullmatch(text)
    if match is None:
        return None
    value = _scaled(match[1], 0.01 if match[2] else 1.0)
    return value if 0 <= value < 1 else None


def _duration(text: str) -> float | None:
    match = _DURATION.fullmatch(text)
    if match is None:
        return None
    value = _scaled(match[1], _SCALE_S[match[2].lower()])
    return value if 0 <= value <= _LONGEST_S else None


def _scaled(text: str, factor: float) -> float:
    """The number people mean: 0.45 % is 0.0045, not the float next to it."""
    return float(f"{float(text) * factor:.15g}") if factor != 1 else float(text)


def _counter_period(text: str) -> float | None:
    value = _duration(text)
    return value if value is not None and value >= _SHORTEST_COUNTER_PERIOD_S else None


def _temperature(text: str) -> float | None:
    match = _TEMPERATURE.fullmatch(text)
    value = None if match is None else float(match[1])
    return value if value is not None and _COLDEST_C <= value <= _HOTTEST_C else None


def _noise(texts: Mapping[str, str]) -> str:
    text = texts.get("noise", "default")
    if text in ("default", "stress"):
        return text
    value = _read(texts, "noise", _multiplier)
    if value is None or value == 1:
        return "default"
    return _number_text(value)


def _multiplier(text: str) -> float | None:
    match = re.fullmatch(_NUMBER, text, re.IGNORECASE)
    value = None if match is None else float(match[1])
    return value if value is not None and 0 <= value <= _LOUDEST_RATIO else None


def _seed(texts: Mapping[str, str]) -> int:
    text = texts.get("seed", "0")
    if not re.fullmatch(r"[-+]?\d{1,18}", text, re.ASCII):
        raise _refuse("seed", text)
    return int(text)


def _is_control_denied(texts: Mapping[str, str]) -> bool:
    text = texts.get("control", "allowed")
    if text not in ("allowed", "denied"):
        raise _refuse("control", text)
    return text == "denied"


def _stall_power_w(texts: Mapping[str, str]) -> float | None:
    """Power during a stall, where it differs from the usual assumption."""
    if "stall_power" in texts and "stall" not in texts:
        raise InputError(
            "a stall power needs a stall",
            field="stall_power",
            hint="Write stall=1ms,stall_power=60W.",
        )
    value = _read(texts, "stall_power", _power)
    return None if value == STALL_POWER_W else value


def _transition(texts: Mapping[str, str]) -> str | None:
    text = texts.get("transition")
    if text is None:
        return None
    if text not in transition_preset_names():
        raise _refuse("transition", text)
    also = [name for name in ("lag", "stall") if name in texts]
    if also:
        raise InputError(
            f"transition={text} already says what {also[0]}= says",
            field=also[0],
            hint="Keep one of the two.",
        )
    return text


def _power(text: str) -> float | None:
    match = _POWER.fullmatch(text)
    value = None if match is None else float(match[1])
    return value if value is not None and 0 <= value <= _HIGHEST_W else None


def _foreign(texts: Mapping[str, str]) -> tuple[float | None, float | None]:
    if "foreign" not in texts:
        return None, None
    text = texts["foreign"]
    start, dots, stop = text.partition("..")
    start_s, stop_s = _duration(start.strip()), _duration(stop.strip())
    if not dots or start_s is None or stop_s is None or not start_s < stop_s < math.inf:
        raise _refuse("foreign", text)
    return start_s, stop_s


def _number_text(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)


def _text(value: float | None) -> str | None:
    return None if value is None else _number_text(value)


def _range_text(start_s: float | None, stop_s: float | None) -> str | None:
    if start_s is None or stop_s is None:
        return None
    return f"{_number_text(start_s)}..{_number_text(stop_s)}"
