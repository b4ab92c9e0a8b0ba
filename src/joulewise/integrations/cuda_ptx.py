"""The two tiny kernels that read a GPU's own clocks, as PTX text for the driver to compile.

`clock64` counts SM cycles, `globaltimer` nanoseconds; the latter moves in steps, which are about
a microsecond on many GPUs and a millisecond on some. PTX for compute capability 7.0 runs on it
and all later ones.
"""

from __future__ import annotations

PTX = """\
.version 7.0
.target sm_70
.address_size 64

// Writes pairs (globaltimer, clock64), one every step_ns, until the flag is set or the room is
// used up; records and flag lie in host memory that is mapped into the GPU's.
.visible .entry spin(
    .param .u64 records, .param .u64 flag, .param .u32 capacity, .param .u32 step_ns)
{
    .reg .pred %is_early, %is_full, %is_over;
    .reg .u32 %count, %capacity, %flag_value;
    .reg .u64 %record, %flag, %step, %next, %time, %cycle;

    ld.param.u64 %record, [records];
    ld.param.u64 %flag, [flag];
    ld.param.u32 %capacity, [capacity];
    ld.param.u32 %count, [step_ns];
    cvt.u64.u32 %step, %count;
    cvta.to.global.u64 %record, %record;
    cvta.to.global.u64 %flag, %flag;
    mov.u32 %count, 0;
    mov.u64 %next, %globaltimer;
again:
    mov.u64 %time, %globaltimer;
    mov.u64 %cycle, %clock64;
    setp.lt.u64 %is_early, %time, %next;
    @%is_early bra again;
    // The time comes last: a record whose time is there is whole.
    st.volatile.global.u64 [%record+8], %cycle;
    membar.sys;
    st.volatile.global.u64 [%record], %time;
    add.u64 %next, %time, %step;
    add.u64 %record, %record, 16;
    add.u32 %count, %count, 1;
    setp.ge.u32 %is_full, %count, %capacity;
    @%is_full bra done;
    ld.volatile.global.u32 %flag_value, [%flag];
    setp.ne.u32 %is_over, %flag_value, 0;
    @%is_over bra done;
    bra again;
done:
    ret;
}

// Writes one pair (globaltimer, clock64) for every SM that it runs on, for each counts for itself.
// Where two blocks share an SM their pairs may mix; they are microseconds apart.
.visible .entry stamp(.param .u64 records, .param .u32 capacity)
{
    .reg .pred %is_beyond;
    .reg .u32 %sm, %capacity;
    .reg .u64 %record, %offset, %time, %cycle;

    mov.u32 %sm, %smid;
    ld.param.u32 %capacity, [capacity];
    setp.ge.u32 %is_beyond, %sm, %capacity;
    @%is_beyond bra done;
    ld.param.u64 %record, [records];
    cvta.to.global.u64 %record, %record;
    mul.wide.u32 %offset, %sm, 16;
    add.u64 %record, %record, %offset;
    mov.u64 %time, %globaltimer;
    mov.u64 %cycle, %clock64;
    st.volatile.global.u64 [%record+8], %cycle;
    membar.sys;
    st.volatile.global.u64 [%record], %time;
done:
    ret;
}
"""
