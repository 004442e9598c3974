//go:build linux && cgo

package dcgm

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"warpgauge/collectors/dcgm/dcgmtest"
)

// simulated is a machine whose DCGM is ours.
type simulated struct {
	*dcgmtest.Engine
	o   Options
	mig map[int][]string
}

func newSimulated(tb testing.TB, h hardware) machine {
	tb.Helper()
	c := dcgmtest.Config{GPUs: h.gpus}
	if h.mig != nil {
		c.Preset = "a100-mig"
	}
	e := simulate(tb, c)
	o := remote(e)
	if h.embedded {
		o = embedded(e)
	}
	o.Interval = 10 * time.Millisecond
	m := &simulated{e, o, map[int][]string{}}
	if h.mig != nil {
		m.setMIG(0, h.mig...)
	}
	return m
}

func (m *simulated) options() Options                    { return m.o }
func (m *simulated) simulation() *dcgmtest.Engine        { return m.Engine }
func (m *simulated) xid(gpu, code int)                   { m.XID(gpu, code) }
func (m *simulated) lose(gpu int)                        { m.Lose(gpu) }
func (m *simulated) restore(gpu int)                     { m.Restore(gpu) }
func (m *simulated) silence() (release func())           { return m.Hang(dcgmtest.Every) }
func (m *simulated) stop()                               { m.Stop(-21) }
func (m *simulated) start()                              { m.Start() }
func (m *simulated) set(gpu int, name string, v float64) { m.put(gpu, name, dcgmtest.Number(v)) }
func (m *simulated) blank(gpu int, name string, why int) { m.put(gpu, name, dcgmtest.Blank(why)) }
func (m *simulated) unset(gpu int, name string)          { m.Unset(dcgmtest.GPU(gpu), settable[name].id) }

func (m *simulated) put(gpu int, name string, v dcgmtest.Value) {
	m.Set(dcgmtest.GPU(gpu), settable[name].id, v)
}

func (m *simulated) sick(gpu int) {
	m.Incident(dcgmtest.GPU(gpu), 0x10, 10, 101, "an XID of its memory") // DCGM_HEALTH_WATCH_MEM, warn, DCGM_FR_XID_ERROR
}

func (m *simulated) hang() (release func()) {
	m.Freeze(dcgmtest.Everything())
	return func() { m.Thaw(dcgmtest.Everything()) }
}

// setMIG: "3g" is "3g.20gb" of an A100.
func (m *simulated) setMIG(gpu int, profiles ...string) {
	var full []string
	for _, p := range profiles {
		full = append(full, p[:2]+map[string]string{"1g": ".5gb", "2g": ".10gb", "3g": ".20gb"}[p[:2]]+p[2:])
	}
	m.SetMIG(gpu, full...)
	m.mig[gpu] = profiles
}

// uuids: instances count from 1, compute instances from 0.
func (m *simulated) uuids(gpu int) map[string]string {
	out := map[string]string{}
	for i, p := range m.mig[gpu] {
		for c := range 2 {
			if c == 0 || strings.HasSuffix(p, "/2") {
				out[fmt.Sprintf("%d/%d", i+1, c)] = dcgmtest.MIGUUID(gpu, i+1, c)
			}
		}
	}
	return out
}

func (m *simulated) remove(gpu int) { m.Remove(dcgmtest.GPU(gpu)) }

func (m *simulated) setLink(gpu, link int, up bool) {
	state := dcgmtest.LinkDown
	if up {
		state = dcgmtest.LinkUp
	}
	m.SetLink(dcgmtest.GPU(gpu), link, state)
}

func (m *simulated) setPeers(a, b, status int) {
	m.SetPeer(a, b, status)
	m.SetPeer(b, a, status)
}
