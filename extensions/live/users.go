package live

import (
	"math"
	"sync"
	"time"

	"warpgauge/extensions/live/apiv1"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/owner"
)

// users returns the users of a device as the API names them.
func users(k *owner.Keeper, d *collector.Device) (out []apiv1.User) {
	for _, u := range k.Users(d) {
		out = append(out, apiv1.User{Namespace: u.Namespace, Pod: u.Pod, PodUID: u.PodUID, Container: u.Container, Job: u.Job})
	}
	return out
}

// viewTimeout is how long the exporter reads processes after a client has last asked for them.
const viewTimeout = time.Minute

// viewedProcesses lists the processes on devices. The exporter reads them while clients ask.
type viewedProcesses struct {
	owners *owner.Keeper // nil: pods are unknown
	list   *owner.Processes
	engine interface{ ReadProcesses(wanted bool) }

	mu  sync.Mutex
	end *time.Timer // nil: processes are not read
}

// viewed makes the exporter read processes for viewTimeout.
func (v *viewedProcesses) viewed() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.end != nil && v.end.Stop() {
		v.end.Reset(viewTimeout)
		return
	}
	v.engine.ReadProcesses(true)
	var end *time.Timer
	end = time.AfterFunc(viewTimeout, func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		if v.end == end { // else a client asked when the time was over
			v.end = nil
			v.engine.ReadProcesses(false)
		}
	})
	v.end = end
}

// on returns the processes on a device as the API names them.
func (v *viewedProcesses) on(d *collector.Device) (out []apiv1.Process) {
	for _, p := range v.list.On(d.ID, time.Now()) {
		one := apiv1.Process{PID: p.PID, Name: p.Name, Job: p.Job, Memory: number(p.Memory), Busy: number(p.Process.Busy)}
		if v.owners != nil {
			one.Pod = v.owners.Pod(p.PodUID)
		}
		out = append(out, one)
	}
	return out
}

// number returns nil for an unknown value.
func number(v float64) *float64 {
	if math.IsNaN(v) {
		return nil
	}
	return &v
}
