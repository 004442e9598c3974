//go:build linux && cgo

package dcgm

import (
	"slices"
	"testing"

	"warpgauge/collectors/dcgm/dcgmtest"
	"warpgauge/pkg/field"
)

// supplied are the fields of which a source has columns.
func (c *opened) supplied() (out []field.ID) {
	for _, col := range c.sources[0].Columns() {
		if !slices.Contains(out, col.Field) {
			out = append(out, col.Field)
		}
	}
	slices.Sort(out)
	return out
}

// TestProfilingOffered: what no metric group has is not asked for, and what cannot
// be known is.
func TestProfilingOffered(t *testing.T) {
	names := []string{"DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_PIPE_INT_ACTIVE"}
	for _, c := range []struct {
		name   string
		config dcgmtest.Config
		set    func(*dcgmtest.Engine)
		want   []field.ID
	}{
		{"groups with one of them", dcgmtest.Config{}, func(*dcgmtest.Engine) {}, []field.ID{150, 1002}},
		{"no profiling module", dcgmtest.Config{}, func(e *dcgmtest.Engine) { e.RefuseProfiling(-33) }, []field.ID{150}},
		{"GPUs without it", dcgmtest.Config{}, func(e *dcgmtest.Engine) { e.RefuseProfiling(-36) }, []field.ID{150}},
		{"another error", dcgmtest.Config{}, func(e *dcgmtest.Engine) { e.Return("dcgmProfGetSupportedMetricGroups", -3) }, []field.ID{150, 1002, 1016}},
		{"a library that cannot ask", dcgmtest.Config{Without: []string{"dcgmProfGetSupportedMetricGroups"}}, func(*dcgmtest.Engine) {}, []field.ID{150, 1002, 1016}},
	} {
		e := simulate(t, c.config)
		c.set(e)
		o := open1(t, remote(e), names...)
		if got := o.supplied(); !slices.Equal(got, c.want) {
			t.Errorf("%s: columns of %d, want %d", c.name, got, c.want)
		}
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestProfilingManyFields: the engine takes 64 profiling fields and 127 others in a
// group, and refuses more as a whole.
func TestProfilingManyFields(t *testing.T) {
	var all []uint16
	for id := range uint16(300) {
		all = append(all, 1000+id)
	}
	seen := 0
	for _, g := range fieldGroups(all) {
		seen += len(g)
		profiling := 0
		for _, id := range g {
			if profiles(field.ID(id)) {
				profiling++
			}
		}
		if profiling != 0 && profiling != len(g) || profiling > 64 || len(g) > 127 {
			t.Errorf("a group of %d fields, %d of profiling", len(g), profiling)
		}
	}
	if seen != len(all) {
		t.Errorf("%d fields in groups, want %d", seen, len(all))
	}
}
