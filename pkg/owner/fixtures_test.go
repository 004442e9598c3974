package owner

import (
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/kube"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/view"
)

func uuid(i int) string { return fmt.Sprintf("GPU-%08x-1111-2222-3333-44444444444a", i) }

func mig(i int) string { return fmt.Sprintf("MIG-%08x-1111-5222-3333-44444444444a", i) }

func gpu(i int) collector.Device {
	return collector.Device{
		ID: uuid(i), UUID: uuid(i), Level: field.GPU, GPU: fmt.Sprint(i), Node: fmt.Sprintf("nvidia%d", i),
		PCIBusID: fmt.Sprintf("00000000:%02X:00.0", 0x1a+i), Model: "NVIDIA H100",
	}
}

func instance(of collector.Device, id int, profile, migUUID string) collector.Device {
	d := of
	d.Level, d.Parent, d.ID = field.Instance, of.ID, fmt.Sprintf("%s/%d", of.ID, id)
	d.Instance.ID, d.Instance.Profile, d.Instance.UUID = fmt.Sprint(id), profile, migUUID
	return d
}

func compute(of collector.Device, id int, migUUID string) collector.Device {
	d := of
	d.Level, d.Parent, d.ID = field.ComputeInstance, of.ID, fmt.Sprintf("%s/%d", of.ID, id)
	d.Instance.ComputeID, d.Instance.UUID = fmt.Sprint(id), migUUID
	return d
}

func link(of collector.Device, id int) collector.Device {
	d := of
	d.Level, d.Parent, d.ID = field.Link, of.ID, fmt.Sprintf("%s/link%d", of.ID, id)
	d.Labels = []collector.Label{{Name: "nvlink", Value: fmt.Sprint(id)}}
	return d
}

// amd returns an AMD GPU; partition returns one of its partitions.
func amd(i int) collector.Device {
	id := fmt.Sprintf("GPU-%016x", 0xabc0+i)
	return collector.Device{
		ID: id, UUID: id, Level: field.GPU, GPU: fmt.Sprint(i), Node: fmt.Sprintf("card%d", i),
		PCIBusID: fmt.Sprintf("00000000:%02X:00.0", 0xc1+i), Model: "AMD Instinct MI300X",
	}
}

func partition(of collector.Device, id, render int, alias string) collector.Device {
	d := instance(of, id, "cpx", "")
	d.Node, d.Alias = fmt.Sprintf("renderD%d", render), alias
	return d
}

// machine returns two whole GPUs, a GPU with three instances, the last with two compute instances, and two AMD GPUs,
// the second divided.
func machine() []collector.Device {
	divided, amdDivided := gpu(2), amd(1)
	third := instance(divided, 3, "3g.40gb", "")
	return []collector.Device{
		gpu(0), gpu(1), divided,
		instance(divided, 0, "1g.10gb", mig(0)), instance(divided, 1, "2g.20gb", mig(1)),
		third, compute(third, 0, mig(30)), compute(third, 1, mig(31)),
		link(gpu(0), 1), link(divided, 1),
		amd(0), amdDivided, partition(amdDivided, 0, 129, ""), partition(amdDivided, 1, 130, "amdgpu_xcp_1"), partition(amdDivided, 2, 131, "amdgpu_xcp_2"),
		{ID: "nvswitch0", Level: field.Switch, Labels: []collector.Label{{Name: "nvswitch", Value: "nvswitch0"}}},
		{ID: "CPU-0", Level: field.CPU, Labels: []collector.Label{{Name: "cpu", Value: "0"}}},
	}
}

func boardOf(devices ...collector.Device) *view.Board {
	b := &view.Board{}
	b.Store(&view.View{Version: 1, Sources: []*view.Source{{Devices: devices}}})
	return b
}

// rig is a Keeper with fake clients.
type rig struct {
	*Keeper
	board *view.Board
	pods  answers[kube.Allocations]
	meta  answers[kube.Metadata]
	jobs  answers[Jobs]
	used  answers[Usage]
}

// answers is a fake Client.
type answers[T any] struct{ atomic.Pointer[T] }

func (a *answers[T]) Snapshot() *T { return a.Load() }

// newRig returns a rig whose clients, including processes, have not answered yet.
func newRig(change func(o *Options), devices ...collector.Device) *rig {
	r := &rig{board: boardOf(devices...)}
	r.pods.Store(&kube.Allocations{})
	r.meta.Store(&kube.Metadata{})
	r.jobs.Store(&Jobs{})
	r.used.Store(&Usage{})
	o := Options{Allocations: &r.pods, Metadata: &r.meta, Jobs: &r.jobs, Processes: &r.used, Claims: true}
	if change != nil {
		change(&o)
	}
	r.Keeper = New(r.board, o)
	return r
}

func withoutProcesses(o *Options) { o.Processes = nil }

func virtual(o *Options) { o.Virtual = true }

func all(changes ...func(*Options)) func(*Options) {
	return func(o *Options) {
		for _, c := range changes {
			c(o)
		}
	}
}

// give sets the kubelet's answer and refreshes. A line reads "ns/pod/container: resource id id".
func (r *rig) give(lines ...string) *rig {
	r.set(lines...)
	r.Refresh(time.Now())
	return r
}

// set sets the kubelet's answer without a Refresh.
func (r *rig) set(lines ...string) {
	r.pods.Store(&kube.Allocations{Version: r.pods.Load().Version + 1, Time: time.Now(), Pods: podsOf(lines...)})
}

func podsOf(lines ...string) []kube.Pod {
	var out []kube.Pod
	at := map[string]int{}
	for _, line := range lines {
		who, what, _ := strings.Cut(line, ": ")
		names, ids := strings.Split(who, "/"), strings.Fields(what)
		i, known := at[names[0]+"/"+names[1]]
		if !known {
			i = len(out)
			at[names[0]+"/"+names[1]] = i
			out = append(out, kube.Pod{PodName: kube.PodName{Namespace: names[0], Name: names[1]}})
		}
		c := kube.Container{Name: names[2]}
		if claim, found := strings.CutPrefix(ids[0], "claim="); found { // claim=name driver pool device
			c.Claims = []kube.Claim{{Namespace: names[0], Name: claim, Device: kube.DeviceName{Driver: ids[1], Pool: ids[2], Device: ids[3]}}}
		} else {
			c.Devices = []kube.Devices{{Resource: ids[0], IDs: ids[1:]}}
		}
		out[i].Containers = append(out[i].Containers, c)
	}
	return out
}

// tell changes the API server's answer.
func (r *rig) tell(change func(m *kube.Metadata)) *rig {
	next := *r.meta.Load()
	next.Version++
	next.PodsTime, next.SlicesTime, next.ClaimsTime = time.Now(), time.Now(), time.Now()
	change(&next)
	r.meta.Store(&next)
	r.Refresh(time.Now())
	return r
}

// know sets the API server's pods: "ns/pod uid label=value …".
func (r *rig) know(lines ...string) *rig {
	return r.tell(func(m *kube.Metadata) {
		m.Pods, m.ByUID = map[kube.PodName]kube.PodMeta{}, map[string]kube.PodName{}
		for _, line := range lines {
			words := strings.Fields(line)
			ns, pod, _ := strings.Cut(words[0], "/")
			name := kube.PodName{Namespace: ns, Name: pod}
			p := kube.PodMeta{UID: words[1], Labels: map[string]string{}}
			for _, l := range words[2:] {
				k, v, _ := strings.Cut(l, "=")
				p.Labels[k] = v
			}
			m.Pods[name], m.ByUID[p.UID] = p, name
		}
	})
}

// describe adds a device to a ResourceSlice of pool node-1.
func (r *rig) describe(driver, name string, d kube.SliceDevice) *rig {
	return r.tell(func(m *kube.Metadata) {
		if m.Slices = maps.Clone(m.Slices); m.Slices == nil {
			m.Slices = map[kube.DeviceName]kube.SliceDevice{}
		}
		m.Slices[kube.DeviceName{Driver: driver, Pool: "node-1", Device: name}] = d
	})
}

// schedule sets the jobs of the job directory.
func (r *rig) schedule(jobs map[string][]string) *rig {
	r.jobs.Store(&Jobs{Version: r.jobs.Load().Version + 1, Time: time.Now(), ByDevice: jobs})
	r.Refresh(time.Now())
	return r
}

// use sets the processes on a device.
func (r *rig) use(device string, complete bool, processes ...Process) *rig {
	next := &Usage{Time: time.Now(), Devices: map[string]DeviceUse{}}
	maps.Copy(next.Devices, r.used.Load().Devices)
	next.Devices[device] = DeviceUse{Time: time.Now(), Complete: complete, Processes: processes}
	r.used.Store(next)
	r.Refresh(time.Now())
	return r
}

// device returns a device of the board.
func (r *rig) device(tb testing.TB, id string) *collector.Device {
	tb.Helper()
	for _, s := range r.board.Load().Sources {
		for i := range s.Devices {
			if s.Devices[i].ID == id {
				return &s.Devices[i]
			}
		}
	}
	tb.Fatalf("no device %q", id)
	return nil
}

// owners returns the labels of the users of a device, one text each.
func (r *rig) owners(tb testing.TB, id string) (out []string) {
	tb.Helper()
	for _, o := range r.Owners(r.device(tb, id)) {
		out = append(out, labelText(o))
	}
	return out
}

func labelText(o view.Owner) string {
	var out []string
	for _, l := range o.PodLabels {
		out = append(out, l.Name+"="+l.Value)
	}
	if len(out) > 0 {
		out = append(out, "|")
	}
	for _, l := range o.Labels {
		out = append(out, l.Name+"="+l.Value)
	}
	return strings.Join(out, " ")
}

// wants checks the labels of the users of a device.
func (r *rig) wants(tb testing.TB, what, device string, want ...string) {
	tb.Helper()
	testkit.Equal(tb, what, want, r.owners(tb, device))
}

// measured returns a source whose devices report 40 °C, 80 % and 1000 MiB.
func measured(tb testing.TB, devices ...collector.Device) *view.Source {
	tb.Helper()
	list, problems, err := field.Parse(strings.NewReader("DCGM_FI_DEV_GPU_TEMP,gauge,Temperature.\nDCGM_FI_DEV_GPU_UTIL,gauge,Utilisation.\nDCGM_FI_DEV_FB_USED,gauge,Memory.\nDCGM_FI_DEV_FB_USED_BYTES,gauge,Memory.\n"), field.ParseOptions{})
	if err != nil || len(problems) != 0 {
		tb.Fatal(err, problems)
	}
	s := &view.Source{Collector: "test", Fields: list, Devices: devices}
	var row []float64
	for i, d := range devices {
		if d.Level == field.Link || d.Level == field.Switch || d.Level == field.CPU {
			continue
		}
		for _, c := range []struct {
			id    field.ID
			value float64
		}{{150, 40}, {gpuUtil, 80}, {fbUsed, 1000}} {
			if d.Level != field.GPU && c.id != fbUsed {
				continue
			}
			s.Columns = append(s.Columns, collector.Column{Device: i, Field: c.id})
			row = append(row, c.value)
		}
	}
	s.Ring = ring.Make(8, len(devices), len(s.Columns))
	stamps := make([]int64, len(devices))
	for i := range stamps {
		stamps[i] = time.Now().UnixNano()
	}
	s.Ring.Append(time.Now().UnixNano(), stamps, row)
	return s
}
