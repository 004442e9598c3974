package recorder

import (
	"fmt"
	"math"
	"math/bits"
	"strings"
	"time"

	"warpgauge/extensions/live/api"
	"warpgauge/extensions/live/apiv1"
	"warpgauge/extensions/live/history"
	"warpgauge/pkg/field"
)

// What sets off a recording.
const (
	causeXID      = "xid"
	causeDevice   = "device_state"
	causeECC      = "ecc"
	causeThrottle = "throttling"
	causeNVLink   = "nvlink_errors"
	causeHealth   = "health"
	causeOperator = "operator"
)

var causes = []string{causeXID, causeDevice, causeECC, causeThrottle, causeNVLink, causeHealth, causeOperator}

// triggerOf returns what an event sets off: an XID, or a device that is lost, stalled or absent.
func triggerOf(e *apiv1.Event) (Trigger, bool) {
	t := Trigger{Device: e.Device, Text: e.Text, Time: e.Time}
	switch e.Kind {
	case api.KindXID:
		t.Cause = causeXID
	case api.KindDevice:
		t.Cause = causeDevice
	}
	return t, t.Cause != "" && e.Bad
}

// Counters whose growth sets off a recording: at once, or by so much within nvlinkWindow.
var (
	eccCounters = []string{
		"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "DCGM_FI_DEV_RETIRED_DBE",
	}
	nvlinkCounters = []string{
		"DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL",
		"DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
		"DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_PER_LINK_TOTAL", "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_PER_LINK_TOTAL",
		"DCGM_FI_DEV_NVLINK_REPLAY_ERROR_PER_LINK_TOTAL", "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_PER_LINK_TOTAL",
		"DCGM_FI_DEV_NVLINK_COUNT_RX_ERRORS", "DCGM_FI_DEV_NVLINK_COUNT_RX_SYMBOL_ERRORS", "DCGM_FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS",
	}
)

const (
	nvlinkBurst  = 100
	nvlinkWindow = time.Minute

	// The clock event reasons that are throttling: hw_slowdown, sw_thermal, hw_thermal and
	// hw_power_brake. The others are settings, or a limit at which a busy GPU always runs.
	throttling = 1<<3 | 1<<5 | 1<<6 | 1<<7
)

// watch finds triggers in the history.
type watch struct {
	fields map[field.ID]rule
	states map[watched]*state
}

// rule says what a new value sets off.
type rule struct {
	cause  string
	growth float64 // of a counter
	window time.Duration
}

type watched struct {
	device string
	field  field.ID
	labels string
}

// state is what was seen of a series.
type state struct {
	rule
	next  int64   // ms: samples from here on are new
	known bool    // there was a value
	value float64 // of a mask, the last one; of a counter, that from which growth counts
	at    int64   // ms, of that
	used  bool
}

func newWatch() watch {
	w := watch{fields: map[field.ID]rule{field.ClockEventReasons: {cause: causeThrottle}}, states: map[watched]*state{}}
	add := func(names []string, r rule) {
		for _, name := range names {
			if d, _, ok := field.ByName(name); ok {
				w.fields[d.ID] = r
			}
		}
	}
	add(eccCounters, rule{cause: causeECC, growth: 1})
	add(nvlinkCounters, rule{cause: causeNVLink, growth: nvlinkBurst, window: nvlinkWindow})
	return w
}

// scan returns what the samples since the last scan set off.
func (w *watch) scan(h *history.History, now time.Time) (out []Trigger) {
	for id, r := range w.fields {
		for _, s := range h.Series(history.Match{Field: id}) {
			k := watched{s.Device, id, fmt.Sprint(s.Labels)}
			st := w.states[k]
			if st == nil {
				st = &state{rule: r, next: now.Add(-time.Minute).UnixMilli()}
				w.states[k] = st
			}
			st.used = true
			if s.Buffered || s.Last < st.next && s.Last > st.next-forget.Milliseconds() {
				continue
			}
			if s.Last < st.next { // the clock was set back
				st.next = s.Last
			}
			for at, v := range h.Samples(s, st.next, math.MaxInt64) {
				st.next = at + 1
				if text := st.take(at, v); text != "" {
					d, _ := field.ByID(id)
					out = append(out, Trigger{Cause: r.cause, Device: s.Device, Text: d.Name + " " + text, Time: time.UnixMilli(at)})
				}
			}
		}
	}
	for k, st := range w.states {
		if !st.used {
			delete(w.states, k)
		}
		st.used = false
	}
	return out
}

// take takes the next value. It says what it sets off.
func (s *state) take(at int64, v float64) (text string) {
	if math.IsNaN(v) || v < 0 {
		return ""
	}
	before, known := s.value, s.known
	if s.cause == causeThrottle {
		s.value, s.known = v, true
		if began := mask(v) &^ mask(before) & throttling; known && began != 0 {
			return "began: " + reasons(began)
		}
		return ""
	}
	if grown := v - before; known && grown >= s.growth {
		s.value, s.at = v, at
		return fmt.Sprintf("grew by %v to %v", grown, v)
	}
	if !known || v < before || s.window > 0 && at-s.at > s.window.Milliseconds() {
		s.value, s.at, s.known = v, at, true
	}
	return ""
}

func mask(v float64) uint64 {
	if v >= 0 && v < 1<<53 {
		return uint64(v)
	}
	return 0
}

func reasons(mask uint64) string {
	var out []string
	for ; mask != 0; mask &= mask - 1 {
		name, _ := field.ClockReason(bits.TrailingZeros64(mask))
		out = append(out, name)
	}
	return strings.Join(out, ", ")
}
