package owner

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestListing(t *testing.T) {
	w := newWorld(t, []string{"GPU-0", "GPU-1"})
	l := NewListing(&w.board)
	l.locations = newLocations(w.root)
	f := func(device string, want ...Process) {
		t.Helper()
		if diff := cmp.Diff(want, l.Of(device, w.now), cmpopts.EquateNaNs(), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("processes on %s (-want +got):\n%s", device, diff)
		}
	}
	row := func() {
		t.Helper()
		w.now = w.now.Add(time.Second)
		w.stamps[0][0], w.stamps[0][1] = w.now.UnixNano(), w.now.UnixNano()
		w.rings[0].Append(w.now.UnixNano(), w.stamps[0], w.rows[0])
	}
	f("GPU-0")
	w.run(100, time.Hour, inPodA)
	w.run(200, time.Hour, inJob)
	w.must(os.WriteFile(filepath.Join(w.root, "100", "comm"), []byte("python3\n"), 0o644))
	w.sample(0, 0, 3, sampled(100, 1<<30, 50), sampled(200, 5, math.NaN()), sampled(300, 1, 1))
	row()
	inPod := Process{Process: sampled(100, 1<<30, 50), Name: "python3", PodUID: strings.ReplaceAll(expand.Replace("<UID_A>"), "_", "-"), ContainerID: expand.Replace("<CTR-A>")}
	inSlurm := Process{Process: sampled(200, 5, math.NaN()), Job: "42"}
	gone := Process{Process: sampled(300, 1, 1)}
	f("GPU-0", inPod, inSlurm, gone)
	f("GPU-1")
	w.namespace("pid:[4026532000]", firstCgroupNamespace)
	l = NewListing(&w.board)
	l.locations = newLocations(w.root)
	row()
	f("GPU-0", Process{Process: sampled(100, 1<<30, 50)}, Process{Process: sampled(200, 5, math.NaN())}, gone)
}
