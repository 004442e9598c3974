package ring_test

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"warpgauge/pkg/ring"

	"warpgauge/internal/testkit"
)

// Dimensions of the rings in these tests: the row is long, so that most writers die in the middle of a row,
// and the ring is short, so that readers meet the writer.
const (
	tornRows   = 4
	tornStamps = 8
	tornCells  = 1000

	writerVariable = "SHM_TEST_WRITER" // makes this binary a writer into descriptor 3
	killsVariable  = "WARPGAUGE_TORN_KILLS"
	defaultKills   = 1000 // for CI; the full number is 10,000
)

// TestWriter is only a helper process: it continues a ring where the killed writer stopped, until it is killed too.
func TestWriter(t *testing.T) {
	if os.Getenv(writerVariable) == "" {
		t.Skip("runs in the processes that TestTornRows starts")
	}
	const passed = 3 // the first of exec.Cmd.ExtraFiles
	region, err := ring.OpenRegion(passed)
	testkit.Must(t, err)
	r := testkit.Get(ring.Attach(region.Words(), tornRows, tornStamps, tornCells))(t)
	r.Keep(region)
	stamps, cells := make([]int64, tornStamps), make([]float64, tornCells)
	for n := r.Head(); ; n++ {
		t := rowOf(n, stamps, cells)
		r.Append(t, stamps, cells)
	}
}

// rowOf makes row n: every word tells its row.
func rowOf(n uint64, stamps []int64, cells []float64) (t int64) {
	for i := range stamps {
		stamps[i] = int64(n)*31 + int64(i)
	}
	for i := range cells {
		cells[i] = float64(n)*7 + float64(i)
	}
	return int64(n) + 1
}

// whole reports whether every word of a row belongs to it.
func whole(row *ring.Row) bool {
	ok := row.Time == int64(row.N)+1
	for i, v := range row.Stamps {
		ok = ok && v == int64(row.N)*31+int64(i)
	}
	for i, v := range row.Cells {
		ok = ok && v == float64(row.N)*7+float64(i)
	}
	return ok
}

// TestTornRows kills writer processes at random instants while 16 readers check every row.
// WARPGAUGE_TORN_KILLS sets the number of kills.
func TestTornRows(t *testing.T) {
	kills := defaultKills
	if text, ok := os.LookupEnv(killsVariable); ok {
		n, err := strconv.Atoi(text)
		testkit.FatalIf(t, err != nil, "%s: %v", killsVariable, err)
		kills = n
	}
	const lanes, readers = 4, 16 // rings, each with one writer at a time
	var left, torn, read, followed, inside atomic.Int64
	left.Store(int64(kills))
	stop := make(chan struct{})
	var checking, killing sync.WaitGroup
	for range lanes {
		region := testkit.Get(ring.CreateRegion(ring.Words(tornRows, tornStamps, tornCells)))(t)
		r := ring.New(region.Words(), tornRows, tornStamps, tornCells)
		for i := range readers / lanes {
			checking.Go(func() {
				var row ring.Row
				follower := r.Follow()
				for {
					select {
					case <-stop:
						return
					case <-time.After(time.Duration(rand.IntN(400)) * time.Microsecond): // the writers need the cores
					}
					for range 4 {
						var got bool
						if i%2 == 0 {
							got = r.Latest(&row)
							read.Add(1)
						} else if got = follower.Next(&row); got {
							followed.Add(1)
						}
						if got && !whole(&row) {
							torn.Add(1)
						}
					}
				}
			})
		}
		r.Keep(region)
		memory := duplicate(t, region)
		killing.Go(func() {
			for left.Add(-1) >= 0 && !t.Failed() {
				killWriter(t, memory, r)
				var row ring.Row
				head := r.Head()
				testkit.ErrorIf(t, !r.Latest(&row) || row.N != head-1 || !whole(&row), "after a writer was killed at head %d the newest whole row is %d", head, row.N)
				if region.Words()[slotSequence(r.Head())].Load()%2 == 1 {
					inside.Add(1)
				}
			}
		})
	}
	killing.Wait()
	close(stop)
	checking.Wait()
	t.Logf("%d writers killed, %d of them inside a row; %d newest rows and %d followed rows checked", kills, inside.Load(), read.Load(), followed.Load())
	testkit.Equal(t, "torn rows that were read", int64(0), torn.Load())
	testkit.ErrorIf(t, inside.Load() == 0 || read.Load() == 0 || followed.Load() == 0, "no writer was killed inside a row, or none was read: this says nothing")
}

// duplicate returns the test's own descriptor of the memory.
func duplicate(t *testing.T, region *ring.Region) *os.File {
	t.Helper()
	fd := testkit.Get(unix.FcntlInt(uintptr(region.FD()), unix.F_DUPFD_CLOEXEC, 0))(t)
	f := os.NewFile(uintptr(fd), "memory")
	t.Cleanup(func() { f.Close() })
	return f
}

// killWriter starts a writer, lets it write for a random time and kills it.
func killWriter(t *testing.T, memory *os.File, r *ring.Ring) {
	cmd := exec.Command(os.Args[0], "-test.run=^TestWriter$")
	cmd.Env = append(os.Environ(), writerVariable+"=1", "GOMAXPROCS=1")
	cmd.ExtraFiles = []*os.File{memory}
	cmd.Stderr = os.Stderr
	head := r.Head()
	if err := cmd.Start(); err != nil {
		t.Error(err)
		return
	}
	for begin := time.Now(); r.Head() == head; time.Sleep(50 * time.Microsecond) {
		if time.Since(begin) > time.Minute {
			t.Error("a writer wrote nothing for a minute")
			break
		}
	}
	time.Sleep(time.Duration(rand.IntN(1000)) * time.Microsecond)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// slotSequence returns the place of row n's sequence, as documented in pkg/ring.
func slotSequence(n uint64) int {
	const header, fixed, line = 8, 2, 8
	stride := (fixed + tornStamps + tornCells + line - 1) / line * line
	return header + int(n%tornRows)*stride
}
