package exporter

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/config"
	"warpgauge/pkg/field"
	"warpgauge/pkg/session"
)

func TestSignals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &signals{end: make(chan os.Signal, 2)}
		var ended error
		slow := func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(3 * time.Second)
			return ended
		}
		s.end <- syscall.SIGTERM
		err := s.guard(t.Context(), zap.NewNop(), slow)
		testkit.ErrorIf(t, err != nil, "after one signal: %v, want nil", err)
		s.end <- syscall.SIGTERM
		ended = errors.New("broken")
		err = s.guard(t.Context(), zap.NewNop(), slow)
		testkit.ErrorIf(t, !errors.Is(err, ended), "after one signal: %v, want what the exporter ended with", err)
		s.end <- syscall.SIGINT
		s.end <- syscall.SIGINT
		err = s.guard(t.Context(), zap.NewNop(), slow)
		testkit.ErrorIf(t, !errors.Is(err, ended), "after one signal, sent twice: %v, want what the exporter ended with", err)
		s.end <- syscall.SIGINT
		time.AfterFunc(time.Second, func() { s.end <- syscall.SIGINT })
		start := time.Now()
		err = s.guard(t.Context(), zap.NewNop(), slow)
		testkit.ErrorIf(t, !errors.Is(err, errForced) || time.Since(start) != time.Second, "after two signals: %v after %v, want %v at once", err, time.Since(start), errForced)
		time.Sleep(time.Minute) // the bubble waits for slow
	})
}

func TestNotReady(t *testing.T) {
	up := session.CollectorStatus{Name: "nvml", Up: true, Devices: make([]session.DeviceStatus, 2)}
	starting := session.CollectorStatus{Name: "nvml", Up: true, Devices: []session.DeviceStatus{{Cause: session.CauseStarting}, {}}}
	opening := session.CollectorStatus{Name: "dcgm", Cause: session.CauseOpening, Reason: "being opened"}
	absent := session.CollectorStatus{Name: "rocm", Cause: session.CauseNotLoaded, Reason: "no library"}
	for _, c := range []struct {
		in   []session.CollectorStatus
		want string
	}{
		{nil, "[no collector is enabled]"},
		{[]session.CollectorStatus{up}, "[]"},
		{[]session.CollectorStatus{absent, up}, "[]"},
		{[]session.CollectorStatus{absent}, "[collector rocm: no library]"},
		{[]session.CollectorStatus{opening, up}, "[collector dcgm: being opened]"},
		{[]session.CollectorStatus{starting}, "[collector nvml: 1 device not sampled yet]"},
	} {
		testkit.Equal(t, fmt.Sprintf("notReady(%v)", c.in), c.want, fmt.Sprint(notReady(c.in)))
	}
}

func TestUnmetRequirements(t *testing.T) {
	gpu := func(state session.State) []session.DeviceStatus {
		return []session.DeviceStatus{{Device: collector.Device{Level: field.GPU}, State: state}}
	}
	table := []Vendor{{Name: "dcgm", Maker: field.VendorNVIDIA}, {Name: "nvml", Maker: field.VendorNVIDIA}, {Name: "rocm", Maker: field.VendorAMD}, {Name: "fake"}}
	nvml := session.CollectorStatus{Name: "nvml", Up: true, Devices: gpu(session.Up)}
	lost := session.CollectorStatus{Name: "nvml", Up: true, Devices: gpu(session.Lost)}
	released := session.CollectorStatus{Name: "nvml", Cause: session.CauseReleased}
	dcgm := session.CollectorStatus{Name: "dcgm", Cause: session.CauseNotLoaded, Reason: "no engine"}
	opening := session.CollectorStatus{Name: "dcgm", Cause: session.CauseOpening, Reason: "being opened"}
	standby := session.CollectorStatus{Name: "dcgm", Cause: session.CauseStandby}
	rocm := session.CollectorStatus{Name: "rocm", Up: true, Devices: gpu(session.Up)}
	fake := session.CollectorStatus{Name: "fake", Up: true, Devices: gpu(session.Up)}
	for _, c := range []struct {
		require string
		byName  string // a collector enabled by name
		all     []session.CollectorStatus
		want    string
	}{
		{"none", "", nil, "[]"},
		{"none", "", []session.CollectorStatus{lost}, "[]"},
		{"any", "", []session.CollectorStatus{dcgm, nvml}, "[]"},
		{"any", "", []session.CollectorStatus{dcgm, lost}, "[--require=any: no such GPU is up]"},
		{"any", "", []session.CollectorStatus{fake}, "[]"},
		{"nvidia", "", []session.CollectorStatus{nvml}, "[]"},
		{"nvidia", "", []session.CollectorStatus{released}, "[]"},
		{"nvidia", "", []session.CollectorStatus{rocm, fake}, "[--require=nvidia: no such GPU is up]"},
		{"amd", "", []session.CollectorStatus{rocm}, "[]"},
		{"amd", "", []session.CollectorStatus{nvml}, "[--require=amd: no such GPU is up]"},
		{"none", "dcgm", []session.CollectorStatus{dcgm, nvml}, "[collector dcgm, which is enabled by name: no engine]"},
		{"none", "dcgm", []session.CollectorStatus{opening, nvml}, "[]"},
		{"none", "dcgm", []session.CollectorStatus{standby, nvml}, "[]"},
		{"none", "nvml", []session.CollectorStatus{released}, "[]"},
	} {
		cfg := config.Default()
		cfg.Require = c.require
		rows := slices.Clone(table)
		for i := range rows {
			if rows[i].Name == c.byName {
				rows[i].Setting = config.On
			}
		}
		testkit.Equal(t, fmt.Sprintf("--require=%s, %q enabled by name", c.require, c.byName), c.want, fmt.Sprint(unmet(cfg, rows, c.all)))
	}
}
