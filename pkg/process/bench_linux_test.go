package process

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"warpgauge/pkg/collector/processes"
	"warpgauge/pkg/ring"
)

// children starts n processes that last as long as the benchmark.
func children(b *testing.B, n int) []int {
	read, write, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	var out []int
	var started []*exec.Cmd
	for range n {
		child := exec.Command("cat") // it ends with its input
		child.Stdin = read
		if err := child.Start(); err != nil {
			b.Fatal(err)
		}
		started, out = append(started, child), append(out, child.Process.Pid)
	}
	_ = read.Close()
	b.Cleanup(func() {
		_ = write.Close()
		for _, child := range started {
			_ = child.Wait()
		}
	})
	return out
}

// BenchmarkLook is one look at 8 GPUs with 32 processes each, all rows new: ours,
// and beside it the plain way, which reads and parses everything each time.
func BenchmarkLook(b *testing.B) {
	const gpus, each = 8, 32
	pids := children(b, gpus*each)
	var sources [][]string
	for i := range gpus {
		sources = append(sources, []string{fmt.Sprintf("GPU-%d", i)})
	}
	time.Sleep(2 * startSlack) // a process that is younger than a sample is not in it
	newRows := func(w *world) {
		w.now = time.Now()
		for i := range gpus {
			var list [each]processes.Process
			for j := range list {
				list[j] = proc(pids[i*each+j], float64(w.now.UnixNano()%1000), 1)
			}
			w.sample(i, 0, each, list[:]...)
			w.rings[i].Append(w.now.UnixNano(), w.stamps[i], w.rows[i])
		}
	}
	b.Run("ours", func(b *testing.B) {
		w := newWorld(b, sources...)
		w.client = New(&w.board, Options{Health: w.health})
		w.client.pidSpace = firstPIDNamespace
		newRows(w)
		w.client.look(time.Now())
		b.ReportAllocs()
		for b.Loop() {
			newRows(w)
			w.client.look(time.Now())
		}
		check(b, w.client.Snapshot().Devices, gpus, each)
	})
	b.Run("ours, no new rows", func(b *testing.B) {
		w := newWorld(b, sources...)
		w.client = New(&w.board, Options{Health: w.health, StaleAfter: time.Hour})
		w.client.pidSpace = firstPIDNamespace
		newRows(w)
		b.ReportAllocs()
		for b.Loop() {
			w.client.look(time.Now())
		}
		check(b, w.client.Snapshot().Devices, gpus, each)
	})
	b.Run("plain", func(b *testing.B) {
		w := newWorld(b, sources...)
		var last map[string]DeviceUse
		b.ReportAllocs()
		for b.Loop() {
			newRows(w)
			last = plainLook(b, w)
		}
		check(b, last, gpus, each)
	})
}

func check(b *testing.B, devices map[string]DeviceUse, gpus, each int) {
	b.Helper()
	n := 0
	for _, d := range devices {
		for _, u := range d.Users {
			n += u.Processes
		}
	}
	if n != gpus*each {
		b.Errorf("%d processes, want %d", n, gpus*each)
	}
}

var (
	plainPod       = regexp.MustCompile(`pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32})`)
	plainContainer = regexp.MustCompile(`([0-9a-f]{64})(\.scope)?`)
)

// plainLook is what one writes first.
func plainLook(b *testing.B, w *world) map[string]DeviceUse {
	out := make(map[string]DeviceUse)
	for i, r := range w.rings {
		var row ring.Row
		if !r.Latest(&row) {
			b.Fatal("no row")
		}
		list, _ := processes.Get(nil, row.Cells)
		type key struct{ pod, container string }
		users := make(map[key]*User)
		for _, p := range list {
			stat, err := os.ReadFile("/proc/" + strconv.Itoa(p.PID) + "/stat")
			if err != nil {
				b.Fatal(err)
			}
			if fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')'):])); len(fields) < 20 {
				b.Fatalf("stat %q", stat)
			}
			group, err := os.ReadFile("/proc/" + strconv.Itoa(p.PID) + "/cgroup")
			if err != nil {
				b.Fatal(err)
			}
			var k key
			for line := range strings.Lines(string(group)) {
				if m := plainPod.FindStringSubmatch(line); m != nil {
					k.pod = strings.ReplaceAll(m[1], "_", "-")
				}
				if m := plainContainer.FindStringSubmatch(line); m != nil {
					k.container = m[1]
				}
			}
			if users[k] == nil {
				users[k] = &User{PodUID: k.pod, ContainerID: k.container}
			}
			users[k].Processes++
			users[k].SM += p.Busy
			users[k].Memory += p.Memory
		}
		use := DeviceUse{Time: w.now}
		for _, u := range users {
			use.Users = append(use.Users, *u)
		}
		out[w.board.Load().Sources[i].Devices[0].ID] = use
	}
	return out
}
