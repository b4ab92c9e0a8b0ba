import sys
from tests.fake_nvml import driver, fake_library, make_driver
from tests.nvml.works import WORKS
from joulewise.simulator.fake_runner import open_fake_session_parts
from joulewise.workflow.hardware import open_hardware
from joulewise.workflow.command import Command
from joulewise.workflow.finetune_running import finetune_while
from joulewise.workflow.finetune_running_advice import AskedGovernor, governor_for
CODE="""
import time
from joulewise.integrations.step_marks import StepMarker
m=StepMarker.from_environment(); m.begin()
for i in range(700):
    time.sleep(0.04); m.step()
"""
def test_it(make_driver):
    d=make_driver("rtx3080ti", is_virtual_time=False)
    runner,_,_=open_fake_session_parts(d,0,WORKS)
    gpu=open_hardware("nvml:0")
    g=governor_for(gpu,AskedGovernor(pair_count=3))
    with runner.loop("gemm", run="x"):
        r=finetune_while(gpu,g,Command([sys.executable,"-c",CODE]),print)
    s=r.steered
    for c in s.probed: print(c)
    print(s.outcome,s.choice,s.saving,s.step_counts,s.energy_j,s.uncertainty_j,r.trouble,r.is_given_back,g.settings)
    for c in r.caveats: print(c.kind,c.seen)
    assert 0
