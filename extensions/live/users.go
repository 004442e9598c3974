package live

import (
	"sync"
	"time"

	"go.uber.org/zap"

	"warpgauge/extensions/live/api"
	"warpgauge/extensions/live/apiv1"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/exporter"
	"warpgauge/pkg/owner"
)

// viewTimeout is how long the exporter reads processes after a client has last asked for them.
const viewTimeout = time.Minute

// people implements api.People. The exporter reads processes while clients ask for them.
type people struct {
	owners   *owner.Keeper    // nil: pods are unknown
	list     *owner.Processes // nil: processes are unknown
	engine   interface{ ReadProcesses(wanted bool) }
	onDemand bool // processes are read for viewers only

	mu  sync.Mutex
	end *time.Timer // nil: processes are not read
}

func newPeople(c *exporter.Core) *people {
	v := &people{owners: c.Owners, engine: c.Engine}
	if board := c.Engine.Processes(); board != nil {
		v.list, v.onDemand = owner.NewProcesses(board, func() {}, zap.NewNop()), !c.Config.Kubernetes.ProcessValuesWanted()
	}
	return v
}

// Users returns the users of a device as the API names them.
func (v *people) Users(d *collector.Device) (out []apiv1.User) {
	if v.owners != nil {
		for _, u := range v.owners.Users(d) {
			out = append(out, apiv1.User(u))
		}
	}
	return out
}

// Viewed makes the exporter read processes for viewTimeout, unless it always does or cannot.
func (v *people) Viewed() {
	if !v.onDemand {
		return
	}
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

// Processes returns the processes on a device as the API names them.
func (v *people) Processes(d *collector.Device) (out []apiv1.Process) {
	if v.list == nil {
		return nil
	}
	for _, p := range v.list.On(d.ID, time.Now()) {
		one := apiv1.Process{PID: p.PID, Name: p.Name, Job: p.Job, Memory: api.Number(p.Memory), Busy: api.Number(p.Process.Busy)}
		if v.owners != nil {
			one.Pod = v.owners.Pod(p.PodUID)
		}
		out = append(out, one)
	}
	return out
}
