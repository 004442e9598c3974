package exporter

import (
	"io"
	"testing"
	"time"

	"go.uber.org/zap"

	"warpgauge/collectors/fake"
	"warpgauge/internal/testkit"
	"warpgauge/pkg/config"
	"warpgauge/pkg/config/configtest"
)

var (
	must     = testkit.Must
	tempFile = testkit.TempFile
)

// newProgram returns a program with the simulated node of a spec as its only vendor, and the configuration of its flags.
func newProgram(t *testing.T, o fake.Options, args ...string) (*Program, *config.Config) {
	t.Helper()
	set, cfg, err := configtest.Parse(t, nil, nil, append([]string{"--isolation=none"}, args...)...)
	must(t, err)
	v := Vendor{Name: fake.Name, Simulated: true}
	v.Open = testkit.Get(fake.Factory(o))(t)
	v.Processes = testkit.Get(fake.ProcessesFactory(o))(t)
	return &Program{
		Streams: Streams{Out: io.Discard, Err: io.Discard}, Flags: set,
		Vendors: func(*config.Config, time.Time, *zap.Logger) ([]Vendor, error) { return []Vendor{v}, nil },
	}, cfg
}
