//go:build linux && cgo

package main_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"testing"

	"warpgauge/collectors/dcgm/dcgmtest"
	"warpgauge/etc"
	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/eventually"
	"warpgauge/internal/testkit/golden"
)

// Rows that the shipped CSV files lack.
const (
	dcgmCounters = `
DCGM_FI_PROF_SM_ACTIVE, gauge, Share of time that at least one warp was on an SM.
DCGM_FI_DEV_FB_USED_PERCENT, gauge, Memory in use.
DCGM_EXP_XID_ERRORS_COUNT, gauge, XIDs within the window.
DCGM_EXP_XID_ERRORS_TOTAL, counter, XIDs since start.
DCGM_EXP_CLOCK_EVENTS_TOTAL, counter, Clock events since start.
DCGM_EXP_GPU_HEALTH_STATUS, gauge, Health by watch.
DCGM_EXP_P2P_STATUS, gauge, Reachability of peers.
`
	dcgmFabric = `
DCGM_FI_DEV_NVLINK_TX_THROUGHPUT_PER_LINK, gauge, Data sent on a link.
DCGM_FI_DEV_NVSWITCH_TEMPERATURE_CURRENT, gauge, Temperature of a switch.
DCGM_FI_DEV_NVSWITCH_LINK_THROUGHPUT_TX, counter, Data sent by a port.
`
	dcgmGrace = `
DCGM_FI_DEV_CPU_UTIL_TOTAL, gauge, Load of a core.
DCGM_FI_DEV_CPU_TEMP_CURRENT, gauge, Temperature of a CPU.
DCGM_FI_DEV_CPU_POWER_UTIL_CURRENT, gauge, Power of a CPU.
DCGM_FI_DEV_CONNECTX_HEALTH, gauge, Health of a network adapter.
DCGM_FI_DEV_CONNECTX_TEMP_CELSIUS, gauge, Temperature of a network adapter.
`
)

// TestE2EGoldenDCGM renders nodes simulated below DCGM, through the binary and its child:
// everything from the library's symbols to the page is the code of a real node. Growing values are
// fixed, so that pages do not change. Rewrite with -update.
func TestE2EGoldenDCGM(t *testing.T) {
	t.Parallel()
	exe := build(t)
	for _, node := range []struct {
		name   string
		config dcgmtest.Config
		csv    string
		set    func(*dcgmtest.Engine)
		awaits []string
	}{
		{
			"dcgm-dgx-h100", dcgmtest.Config{GPUs: 2}, dcgmCounters + dcgmFabric, setFabric,
			[]string{`DCGM_FI_DEV_NVSWITCH_TEMPERATURE_CURRENT{nvswitch="nvswitch3"`, `DCGM_FI_DEV_NVSWITCH_LINK_THROUGHPUT_TX{nvlink="1"`, `DCGM_FI_DEV_NVLINK_TX_THROUGHPUT_PER_LINK{`},
		},
		{"dcgm-a100-mig", dcgmtest.Config{Preset: "a100-mig"}, dcgmCounters, setInstances, []string{`GPU_I_ID="1"`}},
		{
			"dcgm-gb200", dcgmtest.Config{Preset: "gb200", GPUs: 2}, dcgmCounters + dcgmGrace, setGrace,
			[]string{`DCGM_FI_DEV_CPU_UTIL_TOTAL{cpucore="143"`, `DCGM_FI_DEV_CPU_POWER_UTIL_CURRENT{`, `DCGM_FI_DEV_CONNECTX_HEALTH{`},
		},
	} {
		t.Run(node.name, func(t *testing.T) {
			e := dcgmtest.New(t, node.config)
			freeze(e)
			e.Incident(dcgmtest.GPU(1), 0x10, 10, 85, "a row waits to be remapped")
			node.set(e)
			x := serve(t, exe, "--enable-only=dcgm", "--enable-dcgm=true", "--dcgm-library="+e.Library(), "-r", "localhost:5555",
				"--collect-interval=100", "--slow-interval=200ms", "--enable-exporter-metrics=false", "--no-hostname",
				"-f", file(t, "counters.csv", string(etc.DefaultCounters())+node.csv))
			awaits := append(node.awaits, `DCGM_FI_DEV_GPU_TEMP{gpu="1"`, "DCGM_FI_PROF_SM_ACTIVE{", "DCGM_FR_PENDING_ROW_REMAP", `health_watch="ALL"`, "peer_gpu=")
			x.raw(t, awaits)
			e.XID(0, 94)
			golden.Check(t, filepath.Join("testdata", "golden", node.name+".prom"), string(x.raw(t, append(awaits, `xid="94"} 1`))))
		})
	}
}

// freeze fixes the growing values.
func freeze(e *dcgmtest.Engine) {
	for gpu := range 8 {
		e.Set(dcgmtest.GPU(gpu), 156, dcgmtest.Number(1e9))
		e.Set(dcgmtest.GPU(gpu), 449, dcgmtest.Number(float64(1000*gpu)))
		e.Set(dcgmtest.GPU(gpu), 254, dcgmtest.Number(0.05))
	}
}

// TestE2EParity starts the binary as NVIDIA's GPU Operator starts dcgm-exporter next to nv-hostengine: the loader finds
// libdcgm, and the environment sets the rest. The page must have dcgm-exporter's (4.5.3-4.8.2, on a DGX H100) families,
// types and labels in its order, and in addition DCGM_FI_DEV_XID_ERRORS of 0 (docs/compatibility.md).
func TestE2EParity(t *testing.T) {
	t.Parallel()
	engine := dcgmtest.New(t, dcgmtest.Config{GPUs: 2})
	freeze(engine)
	list := testkit.Get(filepath.Abs("../../etc/dcp-metrics-included.csv"))(t)
	// Enable the collector by name, because this machine may lack an NVIDIA GPU.
	x := serving(t, "env", "LD_LIBRARY_PATH="+filepath.Dir(engine.Library()), "WARPGAUGE_ENABLE_DCGM=true", "WARPGAUGE_EXPORTER_METRICS=none",
		"DCGM_EXPORTER_LISTEN=127.0.0.1:0", "DCGM_EXPORTER_KUBERNETES=true", "NODE_NAME=worker-7", "DCGM_EXPORTER_COLLECTORS="+list,
		"DCGM_REMOTE_HOSTENGINE_INFO=nvidia-dcgm:5555", build(t))
	page := x.raw(t, []string{`DCGM_FI_DEV_GPU_TEMP{gpu="1"`, "DCGM_FI_DEV_FB_RESERVED{", "DCGM_FI_DEV_VGPU_LICENSE_STATUS{", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{"})
	golden.Check(t, filepath.Join("testdata", "golden", "dcgm-exporter.prom"), string(page))
}

// setFabric sets values of links and switches, and leaves two ports of each switch up.
func setFabric(e *dcgmtest.Engine) {
	for _, of := range []int{780, 1530} { // each belongs to one side of a link
		e.Set(dcgmtest.All(dcgmtest.KindLink), of, dcgmtest.Blank(dcgmtest.NotSupported))
	}
	for gpu := range 2 {
		for link := range 18 {
			e.Set(dcgmtest.Link(dcgmtest.GPU(gpu), link), 1530, dcgmtest.Number(float64(100*gpu+link)))
		}
	}
	for s := range 4 {
		e.Set(dcgmtest.Switch(s), 858, dcgmtest.Number(float64(40+s)))
		for port := range 32 {
			if port < 2 {
				e.Set(dcgmtest.Link(dcgmtest.Switch(s), port), 780, dcgmtest.Number(float64(1000*s+port)))
			} else {
				e.SetLink(dcgmtest.Switch(s), port, dcgmtest.LinkDown)
			}
		}
	}
}

func setInstances(e *dcgmtest.Engine) {
	e.Set(dcgmtest.All(dcgmtest.KindInstance), 230, dcgmtest.Blank(dcgmtest.NotFound)) // no XID yet
	e.Set(dcgmtest.All(dcgmtest.KindInstance), 252, dcgmtest.Number(1024))
	e.Set(dcgmtest.All(dcgmtest.KindInstance), 251, dcgmtest.Number(3840))
	e.Set(dcgmtest.All(dcgmtest.KindInstance), 1002, dcgmtest.Number(0.25))
}

// setGrace sets values of CPUs and cores, and adds two network adapters. The engine has not read the second yet.
func setGrace(e *dcgmtest.Engine) {
	for adapter := range 2 {
		e.Add(dcgmtest.ConnectX(adapter), true)
		e.Set(dcgmtest.ConnectX(adapter), 1300, dcgmtest.Number(float64(1-adapter)))
		e.Set(dcgmtest.ConnectX(adapter), 1310, dcgmtest.Number(54.5+float64(adapter)))
	}
	e.Set(dcgmtest.All(dcgmtest.KindCore), 1100, dcgmtest.Number(0.5))
	for cpu := range 2 {
		e.Set(dcgmtest.CPU(cpu), 1110, dcgmtest.Number(float64(50+cpu)))
		e.Set(dcgmtest.CPU(cpu), 1130, dcgmtest.Number(float64(200+cpu)))
	}
}

// raw waits for a page that contains all texts and is the same twice.
func (e *exporter) raw(t *testing.T, wants []string) (body []byte) {
	t.Helper()
	client := newClient(t)
	defer client.CloseIdleConnections()
	eventually.OK(t, "a page that is complete", func() error {
		before := body
		body = get(t, client, e.url+"/metrics").body
		for _, want := range wants {
			if !bytes.Contains(body, []byte(want)) {
				return fmt.Errorf("the page lacks %q", want)
			}
		}
		if !bytes.Equal(before, body) {
			return fmt.Errorf("the page still changes")
		}
		return nil
	})
	return body
}
