package ring_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/ring"
)

// TestModel does the same to a ring in ordinary memory and to a ring in shared memory, written through one
// mapping and read through another. It compares the answers and every word of memory.
func TestModel(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 0))
		rows, stamps, cells := 1+random.IntN(20), random.IntN(5), random.IntN(30)
		region, err := ring.CreateRegion(ring.Words(rows, stamps, cells))
		testkit.Must(t, err)
		fd := testkit.Get(unix.FcntlInt(uintptr(region.FD()), unix.F_DUPFD_CLOEXEC, 0))(t)
		other := testkit.Get(ring.OpenRegion(fd))(t)
		model := ring.Make(rows, stamps, cells)
		reader := ring.New(region.Words(), rows, stamps, cells)
		writer, err := ring.Attach(other.Words(), rows, stamps, cells)
		testkit.FatalIf(t, err != nil, "attach to the second mapping: %v", err)
		reader.Keep(region)
		writer.Keep(other)
		wantFollower, gotFollower := model.Follow(), reader.Follow()
		s, c := make([]int64, stamps), make([]float64, cells)
		for range 300 {
			switch random.IntN(3) {
			case 0:
				for range 1 + random.IntN(2*rows) {
					at := randomRow(random, s, c)
					model.Append(at, s, c)
					writer.Append(at, s, c)
				}
			case 1:
				var want, got ring.Row
				wantOK, gotOK := model.Latest(&want), reader.Latest(&got)
				testkit.FatalIf(t, wantOK != gotOK || wantOK && !sameRow(&want, &got), "seed %d: newest row: %v %+v, want %v %+v", seed, gotOK, got, wantOK, want)
			case 2:
				for range random.IntN(rows) {
					var want, got ring.Row
					wantOK, gotOK := wantFollower.Next(&want), gotFollower.Next(&got)
					testkit.FatalIf(t, wantOK != gotOK || wantOK && !sameRow(&want, &got), "seed %d: next row: %v %+v, want %v %+v", seed, gotOK, got, wantOK, want)
				}
			}
			if reader.Head() != model.Head() || gotFollower.Overruns() != wantFollower.Overruns() {
				t.Fatalf("seed %d: head %d and %d overruns, want %d and %d", seed,
					reader.Head(), gotFollower.Overruns(), model.Head(), wantFollower.Overruns())
			}
		}
		checkLayout(t, region, model, rows, stamps, cells)
	}
}

func randomRow(random *rand.Rand, stamps []int64, cells []float64) int64 {
	for i := range stamps {
		stamps[i] = int64(random.Uint64())
	}
	for i := range cells {
		cells[i] = math.Float64frombits(random.Uint64()) // NaNs with payloads, too
	}
	return int64(random.Uint64())
}

func sameRow(a, b *ring.Row) bool {
	bits := func(x, y float64) bool { return math.Float64bits(x) == math.Float64bits(y) }
	return a.N == b.N && a.Time == b.Time && slices.Equal(a.Stamps, b.Stamps) && slices.EqualFunc(a.Cells, b.Cells, bits)
}

// checkLayout decodes the memory by the documentation of pkg/ring, without its code, and compares the slot
// with the model's newest row.
func checkLayout(t *testing.T, region *ring.Region, model *ring.Ring, rows, stamps, cells int) {
	t.Helper()
	word := func(i int) uint64 { return region.Words()[i].Load() }
	power := 2
	for power < rows {
		power *= 2
	}
	header := []uint64{word(0), word(1), word(2), word(3), word(4)}
	want := []uint64{0x7761_7267_0000_0001, uint64(power), uint64(stamps), uint64(cells), model.Head()}
	testkit.Equal(t, fmt.Sprintf("header of a ring of %d rows", rows), want, header)
	var row ring.Row
	if !model.Latest(&row) {
		return
	}
	stride := (2 + stamps + cells + 7) / 8 * 8
	at := 8 + int(row.N)%power*stride
	slot := []uint64{2*row.N + 2, uint64(row.Time)}
	for _, v := range row.Stamps {
		slot = append(slot, uint64(v))
	}
	for _, v := range row.Cells {
		slot = append(slot, math.Float64bits(v))
	}
	var got []uint64
	for i := range slot {
		got = append(got, word(at+i))
	}
	testkit.Equal(t, fmt.Sprintf("slot of row %d of a ring of %d rows", row.N, rows), slot, got)
}
