import time
from dataclasses import replace
import numpy as np
from tests.fake_nvml import *
from joulewise.measure.replay_window import *
from joulewise.measure.settings import MeasureSettings
from joulewise.domain.points import OperatingPoint, AUTO
from joulewise.domain.plan import PlannedLaunch
from joulewise.domain.workload import *
from joulewise.workload.gpt3_xl import gpt3_xl
from joulewise.simulator.physics import steady_state
from joulewise.simulator.presets import preset

P=OperatingPoint(sm_clock_mhz=1500)
W=gpt3_xl().works
HOT=next(w for w in W if 'gemm_logits' in w.kernel)
COLD=replace(HOT,kernel='cold',compute_efficiency_ratio=HOT.compute_efficiency_ratio*.05,core_activity_ratio=0.05,memory_activity_ratio=0.05,flop_count=HOT.flop_count*.05)
def scaled(work,time_s,spec):
    for _ in range(5):
        t=steady_state(spec,[work],[P]).time_s[0,0]
        k=time_s/t
        work=replace(work,flop_count=work.flop_count*k,traffic_bytes=work.traffic_bytes*k)
    return work
def run(make_driver,prof,t,duty,phase,const=False):
    spec=preset(prof)
    d=make_driver(prof)
    d.set_knob(0,'counter_period_s',0.1); d.set_knob(0,'counter_phase_ratio',phase)
    a,b=scaled(HOT,t*duty,spec),scaled(COLD,t*(1-duty),spec)
    s=open_fake(d,(a,b))
    s.gpu.energy_counter_period_s
    s.gpu.request(P)
    launches=tuple(PlannedLaunch(kernel=w.kernel,pass_=list(Pass)[0],point=P) for w in (a,b))
    ms=MeasureSettings()
    with s.iterations.iterate(launches,(),lambda p:None,run='r') as loop:
        loop.run_iterations(max(1,int(60/t)))
        count=enough_iterations(t,0.1,ms)
        task=ReplayTask(schedule=Schedule(launches=launches),window=0,iteration_count=count,iteration_s=t)
        n0=d.progress(0).iteration_count;e0=d.true_energy_j(0)
        loop.run_iterations(1)
        n0=d.progress(0).iteration_count;e0=d.true_energy_j(0)
        w=measure_replay(s.gpu,loop,task,ms,lambda *a:None)
        loop.run_iterations(1)
        n1=d.progress(0).iteration_count;e1=d.true_energy_j(0)
    true=(e1-e0)/(n1-n0)
    return w.energy_j/true-1, w, true/t
def test_x(make_driver):
    rng=np.random.default_rng(1)
    allr=[]
    for t in (0.03,0.0371,0.05,0.0777,0.0995,0.1,0.1003,0.101,0.105,0.13,0.2,0.25,0.2503,0.251,0.3,0.33,0.5,0.51,0.77,1,1.03,1.37,2.5,3.33,5.05,10,10.03):
        errs=[]
        t0=time.time()
        for duty in (0.1,0.3,0.5,0.7,0.93):
            for ph in rng.random(2):
                e,w,p=run(make_driver,'rtx3080ti',t,duty,ph); errs.append(e)
        allr+=errs
        print('%7.4f'%t,'max %.5f mean %.5f'%(max(map(abs,errs)),np.mean(errs)),'D %.1f n %d'%(w.duration_s,w.iteration_count), 'P %.0f'%p,[c.kind.value for c in w.caveats],'%.2f s'%(time.time()-t0))
    print('all',np.mean(allr),np.std(allr)/len(allr)**.5)
