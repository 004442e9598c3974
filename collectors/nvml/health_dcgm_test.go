//go:build linux && cgo

package nvml

import (
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/field"
)

// dcgmRule is a line of testdata/dcgm-health.csv, whose header describes the columns.
type dcgmRule struct {
	watch, code, result, reading string
	bad, good                    []string
}

func dcgmRules(t *testing.T) []dcgmRule {
	t.Helper()
	raw := testkit.Get(os.ReadFile("testdata/dcgm-health.csv"))(t)
	var out []dcgmRule
	for line := range strings.Lines(string(raw)) {
		if strings.HasPrefix(line, "#") || strings.HasPrefix(line, "watch,") {
			continue
		}
		f := strings.Split(strings.TrimSpace(line), ",")
		testkit.FatalIf(t, len(f) != 7 || f[6] == "", "not a rule with its lines: %q", line)
		out = append(out, dcgmRule{f[0], f[1], f[2], f[3], strings.Fields(f[4]), strings.Fields(f[5])})
	}
	return out
}

// TestHealthIsDCGMs compares the result and the code with DCGM's, for each value of the readings in DCGM's rules.
func TestHealthIsDCGMs(t *testing.T) {
	for _, r := range dcgmRules(t) {
		judge := r.judgeReading
		switch r.reading {
		case "links":
			continue // TestHealthLinks
		case "xid":
			judge = r.judgeXID
		}
		for _, v := range r.bad {
			got, want := judge(t, v), r.result+" "+r.code
			testkit.ErrorIf(t, got != want, "%s %s: watch %s is %q, DCGM says %q", r.reading, v, r.watch, got, want)
		}
		for _, v := range r.good {
			got := judge(t, v)
			testkit.ErrorIf(t, strings.HasSuffix(got, " "+r.code), "%s %s: watch %s is %q, not for DCGM", r.reading, v, r.watch, got)
		}
	}
}

func (r dcgmRule) judgeXID(t *testing.T, code string) string {
	n := testkit.Get(strconv.ParseUint(code, 10, 64))(t)
	s := &fakeEvents{}
	p := newHealthPart(nil, fakeXIDs(t, s, zap.NewNop()), nil, nil)
	s.xid(n, noInstance, noInstance)
	return watches(t, p)[r.watch]
}

// judgeReading returns the result for a board whose readings are all healthy except one. The reading has its value
// after a minute.
func (r dcgmRule) judgeReading(t *testing.T, value string) (got string) {
	number, minute := strings.CutSuffix(r.reading, " a minute")
	id, err := strconv.Atoi(number)
	must(t, err)
	v := math.NaN()
	if value != "-" {
		if v, err = strconv.ParseFloat(value, 64); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		stub := newStub(healthy())
		before := stub.values[field.ID(id)]
		if minute {
			v += before
		}
		p := newHealthPart(stub, nil, nil, nil)
		for range 3 {
			watches(t, p)
			time.Sleep(20 * time.Second)
		}
		if field.ID(id) == field.InfoROMValid {
			time.Sleep(infoROMEvery)
		}
		stub.values[field.ID(id)] = v
		got = watches(t, p)[r.watch]
	})
	return got
}

// TestNoRuleOfOurOwn checks that each rule here is one of DCGM's.
func TestNoRuleOfOurOwn(t *testing.T) {
	ours, theirs := map[string]bool{}, map[string]bool{}
	for _, r := range healthRules() {
		for _, id := range r.Readings {
			if id != field.PCIeGeneration && id != field.PCIeWidth { // inputs of the replay limit
				ours[fmt.Sprintf("%s %s %d", r.watch, r.code, id)] = true
			}
		}
		if r.Readings == nil {
			ours[r.watch+" "+r.code+" links"] = true
		}
	}
	for _, r := range xidRules {
		for _, xid := range r.xids {
			ours[fmt.Sprintf("%s %s xid %d %v", r.watch, r.code, xid, r.result)] = true
		}
	}
	for _, r := range dcgmRules(t) {
		key := r.watch + " DCGM_FR_" + r.code + " " + strings.TrimSuffix(r.reading, " a minute")
		if r.reading == "xid" {
			key += " " + r.bad[0] + " " + map[string]string{"warn": "10", "fail": "20"}[r.result]
		}
		theirs[key] = true
	}
	testkit.Equal(t, "rules of DCGM (-) and ours (+)", slices.Sorted(maps.Keys(theirs)), slices.Sorted(maps.Keys(ours)))
}
