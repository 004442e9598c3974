package remote

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"warpgauge/extensions/remote/fleet"
	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/eventually"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/config"
	"warpgauge/pkg/field"
	"warpgauge/pkg/file"
	"warpgauge/pkg/lists"
	"warpgauge/pkg/session"
)

// newExporter returns a node of two GPUs and its Remote.
func newExporter(t *testing.T, change func(*Settings)) (*bench, *Remote) {
	t.Helper()
	e := &bench{t: t, series: 16}
	e.board.Store(gpus(2, listA))
	device := func(id string, level field.Level) session.DeviceStatus {
		return session.DeviceStatus{Device: collector.Device{ID: id, Level: level, Model: "H100"}, State: session.Up}
	}
	e.states = []session.CollectorStatus{
		{Name: "nvml", Up: true, Devices: []session.DeviceStatus{device("GPU-0", field.GPU), device("GPU-1", field.GPU)}},
		{Name: "dcgm", Cause: session.CauseStandby, Reason: "nvml serves", Devices: []session.DeviceStatus{
			device("GPU-0", field.GPU), device("MIG-0", field.Instance), device("MIG-0/0", field.ComputeInstance),
		}},
	}
	cfg := config.Default()
	settings := defaults()
	settings.Mode, settings.URL = ModeApply, "http://lists"
	change(&settings)
	local := files().Parse(&config.Content{CSV: []byte(listA), Name: "counters.csv"})
	desk := lists.New(local, lists.Options{Local: files(), Engine: e, Logger: zap.NewNop()})
	r := testkit.Get(New(t.Context(), Options{
		Settings: &settings, Config: cfg, Version: "1.2.3", Hostname: "node-7", Desk: desk, Engine: e, Page: e, Registerer: prometheus.NewRegistry(), Logger: zap.NewNop(),
	}))(t)
	return e, r
}

// TestFacts checks what a node reports to an OpAMP server.
func TestFacts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, r := newExporter(t, func(*Settings) {})
		e.costs = session.Costs{Collector: "nvml", Sources: map[string]session.SourceCost{
			"GPU-0": {Samples: 10, Time: time.Second, MissedTicks: 3}, "GPU-1": {Samples: 10, Time: 5 * time.Second}, "GPU-2": {},
		}}
		e.states[0].Devices[1].Device.Facts = []collector.Label{{Name: "DCGM_FI_DRIVER_VERSION", Value: "570"}}
		f := r.Facts()
		if f.GPUs != 2 || len(f.Models) != 1 || f.Stalled+f.Lost != 0 || f.Series != 16 || f.SampleSeconds != 0.5 || f.MissedTicks != 3 ||
			len(f.Devices) != 4 || len(f.Drivers) != 1 || f.AbsentFields != 2 || len(f.Collectors) != 2 || !f.Collectors[0].Healthy || !f.Collectors[1].Healthy || len(f.ListHash) != 64 {
			t.Errorf("facts = %+v", f)
		}
		testkit.ErrorIf(t, f.List.Status != string(lists.Waiting) || !f.List.Healthy, "list = %+v", f.List)
		gone := collector.Device{ID: "GPU-1", Level: field.GPU}
		e.states[0].Devices[1] = session.DeviceStatus{Device: gone, State: session.Lost, Reason: "GPU is lost"}
		e.states[1].Cause = session.CauseReleased
		if f := r.Facts(); f.Lost != 1 || f.Devices[1].Healthy || f.Devices[1].Error != "GPU is lost" || len(f.Drivers) != 1 || !f.Collectors[1].Healthy {
			t.Errorf("facts = %+v", f)
		}
		if o := r.Effective(); len(o.Content) == 0 || o.Origin != "counters.csv" {
			t.Errorf("effective = %+v", o)
		}
		r.Deliver(t.Context(), &lists.Offer{Content: []byte(listB)})
		testkit.Equal(t, "effective list", listB, string(r.Effective().Content))
		r.Deliver(t.Context(), &lists.Offer{Content: []byte("garbage")})
		if l := r.Facts().List; l.Healthy || l.Error == "" {
			t.Errorf("list = %+v", l)
		}
	})
}

// fleetNode is a node and a warpgauge-fleet with TLS and a token. Directory and state survive a restart of the server.
type fleetNode struct {
	*testing.T
	directory, state, token string
	address, askAt          string
	web                     *httptest.Server // supplies the certificate
}

// serve starts the server and returns a function that stops it.
func (f *fleetNode) serve() (end func()) {
	s := fleet.New(fleet.Options{
		Directory: f.directory, ReloadInterval: 100 * time.Millisecond, State: file.Private{Path: f.state}, MaxAgents: 10, Registry: prometheus.NewRegistry(), Log: zap.NewNop(),
	})
	login, err := fleet.NewLogin(f.token)
	must(f.T, err)
	secure := &tls.Config{Certificates: f.web.TLS.Certificates, MinVersion: tls.VersionTLS12}
	agents := testkit.Get(net.Listen("tcp", f.address))(f.T)
	operators := testkit.Get(net.Listen("tcp", "127.0.0.1:0"))(f.T)
	f.address, f.askAt = agents.Addr().String(), operators.Addr().String()
	return testkit.Start(f.T, func(ctx context.Context) error {
		return s.Run(ctx,
			&fleet.Endpoint{Listener: tls.NewListener(agents, secure), Login: login, Serve: (*http.Server).Serve}, &fleet.Endpoint{Listener: operators, Serve: (*http.Server).Serve})
	})
}

// await waits until the cohort's state contains the words.
func (f *fleetNode) await(words ...string) {
	f.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	eventually.OK(f.T, strings.Join(words, " "), func() error {
		answer, err := client.Get("http://" + f.askAt + "/api/v1/fleet")
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		for _, word := range words {
			if !strings.Contains(string(text), word) {
				err = fmt.Errorf("%q is not in %s", word, text)
			}
		}
		return err
	})
}

// TestFleetDelivers: a node takes lists from warpgauge-fleet over TLS with a pinned CA and a token, also after the server
// restarts. It keeps its list when the next one is not acceptable.
func TestFleetDelivers(t *testing.T) {
	f := &fleetNode{T: t, directory: t.TempDir(), state: filepath.Join(t.TempDir(), "state"), address: "127.0.0.1:0", web: httptest.NewTLSServer(http.NotFoundHandler())}
	defer f.web.Close()
	f.token = filepath.Join(f.directory, "token")
	ca, list := filepath.Join(f.directory, "ca.pem"), filepath.Join(f.directory, "a.csv")
	must(t, errors.Join(os.WriteFile(f.token, []byte("secret\n"), 0o600),
		os.WriteFile(list, []byte("DCGM_FI_DEV_SM_CLOCK, gauge, clock\n"), 0o600),
		os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.web.Certificate().Raw}), 0o600),
		os.WriteFile(filepath.Join(f.directory, fleet.FleetFile), []byte("version: 1\ncohorts:\n- {name: all, list: a.csv, selector: {rack: r7}, rollout: {stages: [{percent: 100}]}}\n"), 0o600)))
	end := f.serve()
	b, r := newExporter(t, func(c *Settings) {
		c.URL, c.Interval, c.Limits.Lost = "opamp+https://"+f.address, time.Second, 1
		c.CAFile, c.TokenFile, c.NodeLabels = ca, f.token, map[string]string{"rack": "r7"}
	})
	endNode := testkit.Start(t, r.Run)
	f.await(`"state":"done"`)
	b.wantService("c")
	end()
	f.serve()
	must(t, os.WriteFile(list, []byte("DCGM_FI_DEV_GPU_TEMP, gauge, t, interval=50ms\n"), 0o600))
	f.await(`"state":"stopped"`, "node-7: ", "line 1: ", "the list in service stays, SHA-256 "+r.o.Desk.Status().InService.Hash)
	b.wantService("c")
	endNode()
}

// TestRunWaitsForDevices: Run sends no request before the collectors are open, and can end while it waits.
func TestRunWaitsForDevices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		e, r := newExporter(t, func(*Settings) {})
		r.source.(*URL).client.Transport = roundTrip(func(*http.Request) (*http.Response, error) {
			asked.Add(1)
			return nil, errors.New("no route")
		})
		e.states = []session.CollectorStatus{{Name: "nvml", Cause: session.CauseOpening}}
		testkit.Start(t, r.Run)
		time.Sleep(openPatience - time.Second)
		testkit.ErrorIf(t, asked.Load() > 0, "the server was asked before the devices were known")
		time.Sleep(time.Minute)
		testkit.ErrorIf(t, asked.Load() == 0, "a collector that hangs keeps the node from its server")
	})
}
