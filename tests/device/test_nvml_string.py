"""Device strings of NVIDIA GPUs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulewise.device.nvml_string import (
    NvmlOptions,
    PciAddress,
    is_nvml,
    parse_nvml,
    pci_address,
)
from joulewise.domain.errors import InputError, NotSupported

UUID = "GPU-4ad1c0de-0000-4000-8000-00000000abcd"


@pytest.mark.parametrize(
    ("device", "selector", "is_memory_lock_allowed"),
    [
        ("nvml", None, False),
        ("nvml:0", "0", False),
        (" nvml : 12 ", "12", False),
        ("nvml:GPU-4ad1", "GPU-4ad1", False),
        (f"nvml:{UUID},memory_lock=on", UUID, True),
        ("nvml,memory_lock=on", None, True),
        ("nvml:0, memory_lock = off", "0", False),
        ("nvml:00000000:01:00.0", "00000000:01:00.0", False),
        ("nvml:0000:01:00.0", "0000:01:00.0", False),
        ("nvml:C1:00.0,memory_lock=on", "C1:00.0", True),
        ("nvml:01:00", "01:00", False),
    ],
)
def test_a_gpu_is_named_by_index_uuid_or_pci_id(
    device: str,
    selector: str | None,
    *,
    is_memory_lock_allowed: bool,
) -> None:
    expected = NvmlOptions(selector=selector, is_memory_lock_allowed=is_memory_lock_allowed)

    assert expected == parse_nvml(device)


@pytest.mark.parametrize("device", ["virtual:rtx3080ti", "nvmlx:0", "cuda:0", "", "GPU-4ad1"])
def test_other_devices_are_none_of_nvidia(device: str) -> None:
    assert not is_nvml(device)
    with pytest.raises(InputError, match="does not name an NVIDIA GPU"):
        parse_nvml(device)


@pytest.mark.parametrize(
    ("device", "said"),
    [
        ("nvml:", "names no GPU after the colon"),
        ("nvml:rtx", "is no index, UUID or PCI id"),
        ("nvml:-1", "is no index, UUID or PCI id"),
        ("nvml:99999", "is no index, UUID or PCI id"),
        ("nvml:GPU-4ad1.*", "is no index, UUID or PCI id"),
        ("nvml:1:00.0", "is no index, UUID or PCI id"),
        ("nvml:0,memory_lock", "is no value for the option 'memory_lock'"),
        ("nvml:0,memory_lock=yes", "'yes' is no value for the option 'memory_lock'"),
        ("nvml:0,memory_lock=on,memory_lock=on", "gives 'memory_lock' twice"),
        ("nvml:0,noise=0", "has the unknown option 'noise'"),
        ("nvml:0,", "has the unknown option ''"),
    ],
)
def test_what_cannot_be_read_is_refused_with_a_hint(device: str, said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        parse_nvml(device)

    assert caught.value.hint


@pytest.mark.parametrize("instance", ["MIG-4ad1c0de", "mig-4ad1", "MIG-GPU-4ad1c0de/1/0"])
def test_a_mig_uuid_is_refused_with_the_reason_and_does_not_crash(instance: str) -> None:
    with pytest.raises(NotSupported, match="all instances of a GPU share one clock") as caught:
        parse_nvml(f"nvml:{instance}")

    assert "GPU- UUID" in (caught.value.hint or "")


def test_the_canonical_string_names_the_gpu_wherever_it_is_plugged_in() -> None:
    assert f"nvml:{UUID}" == parse_nvml("nvml:0").spec(UUID)
    assert f"nvml:{UUID},memory_lock=on" == parse_nvml("nvml,memory_lock=on").spec(UUID)


@given(is_on=st.booleans())
def test_a_canonical_string_means_itself(*, is_on: bool) -> None:
    spec = NvmlOptions(selector=UUID, is_memory_lock_allowed=is_on).spec(UUID)

    assert spec == parse_nvml(spec).spec(UUID)


@given(domain=st.integers(0, 0xFFFF), bus=st.integers(0, 0xFF), slot=st.integers(0, 0x1F))
def test_all_ways_to_write_a_pci_id_are_the_same_place(domain: int, bus: int, slot: int) -> None:
    place = PciAddress(domain=f"{domain:08x}", bus=f"{bus:02x}", slot=f"{slot:02x}")
    tail = f"{bus:02X}:{slot:02X}"

    assert place == pci_address(f"{domain:08X}:{tail}.0")
    assert place == pci_address(f"{domain:04x}:{tail}.0")
    assert place == pci_address(str(place))
    assert (domain == 0) == (place == pci_address(tail))
