//go:build linux && cgo

package dcgm

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"warpgauge/collectors/dcgm/dcgmtest"
	"warpgauge/collectors/internal/dl"
	"warpgauge/collectors/nvml/nvmltest"
	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/loopback"
)

// realVariable is 1 if the loader finds NVIDIA's libdcgm.so.4 and its modules, and tests may use them.
const realVariable = "DCGM_TEST_REAL"

// nvidia is a machine with NVIDIA's DCGM and the simulated NVML. An engine in another
// process loads its own NVML; an embedded engine uses this process's.
type nvidia struct {
	tb   testing.TB
	node *nvmltest.Node
	host *dcgmtest.HostEngine // nil for an embedded engine
	o    Options
}

func newReal(tb testing.TB, h hardware) machine {
	tb.Helper()
	if os.Getenv(realVariable) != "1" {
		tb.Skipf("%s is not 1", realVariable)
	}
	c := nvmltest.Config{GPUs: h.gpus}
	if h.mig != nil {
		c.MIG = map[int][]string{0: migNames(h.mig)}
	}
	m := &nvidia{tb: tb, o: Options{Interval: 100 * time.Millisecond, SlowInterval: time.Second, ConnectTimeout: 2 * time.Second}}
	if h.embedded {
		m.node = nvmltest.New(tb, c)
		loadNVML(tb, m.node.Library())
		return m
	}
	n := testkit.Get(nvmltest.Write(tb.TempDir(), c, func(err error) { tb.Helper(); tb.Fatal(err) }))(tb)
	m.node, m.o.Engine = n, freeAddress(tb, h.tcp)
	m.host = dcgmtest.NewHostEngine(tb, n, m.o.Engine)
	return m
}

// loadNVML loads the library that DCGM then uses as libnvidia-ml.so.1 in this process.
func loadNVML(tb testing.TB, path string) {
	tb.Helper()
	nvmlLoaded.Do(func() {
		testkit.Get(dl.Open([]string{path}))(tb)
	})
}

var nvmlLoaded sync.Once

// freeAddress returns an address for an engine, which stays free for its restarts.
func freeAddress(tb testing.TB, tcp bool) string {
	tb.Helper()
	if tcp {
		port := testkit.Get(loopback.Reserve())(tb)
		tb.Cleanup(func() { _ = port.Close() })
		return port.Address()
	}
	return filepath.Join(testkit.ShortDir(tb), "socket")
}

func (m *nvidia) options() Options             { return m.o }
func (m *nvidia) simulation() *dcgmtest.Engine { return nil }
func (m *nvidia) set(gpu int, name string, v float64) {
	m.node.SetNumber(gpu, settable[name].key, v*settable[name].scale)
}
func (m *nvidia) xid(gpu, code int)         { m.node.XID(gpu, uint64(code)) }
func (m *nvidia) sick(gpu int)              { m.xid(gpu, 31) }
func (m *nvidia) lose(gpu int)              { m.node.Return(gpu, nvmltest.Every, "GPU_IS_LOST") }
func (m *nvidia) restore(gpu int)           { m.node.Restore(gpu) }
func (m *nvidia) hang() (release func())    { return m.node.Hang(1, nvmltest.Every) }
func (m *nvidia) stop()                     { m.host.Stop() }
func (m *nvidia) start()                    { m.host.Start() }
func (m *nvidia) silence() (release func()) { return m.host.Freeze() }

// blank sets the NVML error that DCGM turns into a blank.
func (m *nvidia) blank(gpu int, name string, why int) {
	code := map[int]string{dcgmtest.Null: "!UNKNOWN", dcgmtest.NotFound: "!NOT_FOUND", dcgmtest.NotSupported: "none", dcgmtest.NotPermitted: "!NO_PERMISSION"}
	m.node.Set(gpu, settable[name].key, code[why])
}

func (m *nvidia) setMIG(gpu int, profiles ...string) { m.node.SetMIG(gpu, migNames(profiles)...) }

func (m *nvidia) uuids(gpu int) map[string]string {
	out := map[string]string{}
	for _, in := range m.node.Instances(gpu) {
		out[fmt.Sprintf("%d/%d", in.GI, in.CI)] = in.UUID
	}
	return out
}

// migNames returns NVML's profiles of an H100: "3g" is "3g.40gb", "3g/2" has two compute instances of one slice.
func migNames(profiles []string) (out []string) {
	for _, p := range profiles {
		name := p[:2] + map[string]string{"1g": ".10gb", "2g": ".20gb", "3g": ".40gb"}[p[:2]]
		if !strings.HasSuffix(p, "/2") {
			out = append(out, name)
			continue
		}
		out = append(out, "1c."+name, "1c."+name)
	}
	return out
}

func (m *nvidia) setLink(gpu, link int, up bool) {
	state := 0.0
	if up {
		state = 1
	}
	m.node.SetNumber(gpu, "nvlink.state["+string(rune('0'+link))+"]", state)
}

// setPeers sets NVML's status, which DCGM copies.
func (m *nvidia) setPeers(a, b, status int) { m.node.P2P(a, b, status) }
