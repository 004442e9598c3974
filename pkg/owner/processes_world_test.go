package owner

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/view"
)

// world is a machine as the client sees it: the files in /proc and a board.
type world struct {
	t       testing.TB
	root    string
	board   view.Board
	rings   []*ring.Ring
	rows    [][]float64
	stamps  [][]int64
	now     time.Time
	changes int
	logs    *observer.ObservedLogs
	client  *Processes
}

const machineUptime = 1_000_000 * time.Second

// newWorld returns a world with a source for each list of devices.
func newWorld(t testing.TB, sources ...[]string) *world {
	w := &world{t: t, root: t.TempDir(), now: time.Unix(1_800_000_000, 0)}
	w.namespace(firstPIDNamespace, firstCgroupNamespace)
	testkit.Must(w.t, os.WriteFile(filepath.Join(w.root, "uptime"), fmt.Appendf(nil, "%.2f 5.00\n", machineUptime.Seconds()), 0o644))
	w.publish(sources...)
	core, logs := observer.New(zapcore.InfoLevel)
	w.logs = logs
	w.client = NewProcesses(&w.board, func() { w.changes++ }, zap.New(core))
	w.client.locations = newLocations(w.root)
	return w
}

func (w *world) publish(sources ...[]string) {
	v := &view.View{Version: w.board.Load().Version + 1}
	w.rings, w.rows, w.stamps = nil, nil, nil
	for i, ids := range sources {
		s := &view.Source{Collector: fmt.Sprintf("collector-%d", i)}
		for j, id := range ids {
			s.Devices = append(s.Devices, collector.Device{ID: id})
			s.Columns = collector.AppendProcessColumns(s.Columns, j)
		}
		s.Ring = ring.Make(16, len(s.Devices), len(s.Columns))
		v.Sources = append(v.Sources, s)
		w.rings = append(w.rings, s.Ring)
		row := make([]float64, len(s.Columns))
		collector.BlankProcesses(row)
		w.rows = append(w.rows, row)
		w.stamps = append(w.stamps, make([]int64, len(ids)))
	}
	w.board.Store(v)
}

func (w *world) namespace(pid, cgroup string) {
	w.t.Helper()
	ns := filepath.Join(w.root, "self", "ns")
	testkit.Must(w.t, os.RemoveAll(ns))
	testkit.Must(w.t, os.MkdirAll(ns, 0o755))
	testkit.Must(w.t, os.Symlink(pid, filepath.Join(ns, "pid")))
	testkit.Must(w.t, os.Symlink(cgroup, filepath.Join(ns, "cgroup")))
}

// run creates a process that started at the given time after boot.
func (w *world) run(pid int, start time.Duration, cgroup string) {
	w.t.Helper()
	dir := filepath.Join(w.root, strconv.Itoa(pid))
	testkit.Must(w.t, os.MkdirAll(dir, 0o755))
	stat := fmt.Sprintf("%d (a) b) S 1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 %d 171798691 3"+strings.Repeat(" 1", 28)+"\n", pid, start/(10*time.Millisecond))
	testkit.Must(w.t, os.WriteFile(filepath.Join(dir, "stat"), []byte(stat), 0o644))
	testkit.Must(w.t, os.WriteFile(filepath.Join(dir, "cgroup"), []byte(expand.Replace(cgroup)+"\n"), 0o644))
	testkit.Must(w.t, os.WriteFile(filepath.Join(dir, "comm"), []byte("python3\n"), 0o644))
}

// end removes a process.
func (w *world) end(pid int) {
	w.t.Helper()
	testkit.Must(w.t, os.RemoveAll(filepath.Join(w.root, strconv.Itoa(pid))))
}

// sample sets the processes that the library reports for a device in the next row.
func (w *world) sample(source, device, count int, list ...collector.Process) {
	collector.PutProcesses(w.rows[source][device*collector.ProcessWidth:][:collector.ProcessWidth], count, list)
	w.stamps[source][device] = w.now.UnixNano()
}

// look appends a row to each ring and polls 300 ms later.
func (w *world) look() *Usage {
	for i, r := range w.rings {
		r.Append(w.now.UnixNano(), w.stamps[i], w.rows[i])
	}
	return w.lookAgain(300 * time.Millisecond)
}

// lookAgain polls after a while, without new rows.
func (w *world) lookAgain(later time.Duration) *Usage {
	w.now = w.now.Add(later)
	w.client.poll(w.now)
	return w.client.Snapshot()
}

// Control groups of containers in pods A and B, a host service and a job.
const (
	inPodA = "0::/kubepods.slice/kubepods-pod<UID_A>.slice/cri-containerd-<CTR-A>.scope"
	inPodB = "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<UID_B>.slice/cri-containerd-<CTR-B>.scope"
	onHost = "0::/system.slice/Xorg.service"
	inJob  = "0::/system.slice/slurmstepd.scope/job_42/step_0/user/task_0"
)

func sampled(pid int, memory, busy float64) collector.Process {
	return collector.Process{PID: pid, Memory: memory, Busy: busy, Flags: collector.ProcessCompute}
}
