package top

import (
	"fmt"
	"strings"
	"testing"

	"warpgauge/extensions/live/apiv1"
	"warpgauge/internal/testkit"
)

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"llm-0":                   "llm-0",
		"日本 é":                    "日本 é",
		"\x1b]0;title\a\x1b[2Jx":  "?]0;title??[2Jx",
		"a\u009b31mb":             "a?31mb", // CSI as a single character
		"a\u202eb\u200bc":         "a?b?c",  // right-to-left and zero-width characters
		"a\r\nb\tc\x7f":           "a??b?c?",
		"a\xffb":                  "a?b",
		strings.Repeat("x", 5000): strings.Repeat("x", maxText),
	} {
		testkit.Equal(t, fmt.Sprintf("clean(%.40q)", in), want, clean(in))
	}
}

// TestEscapeSequences: whatever text an answer has, only printable characters reach the terminal.
func TestEscapeSequences(t *testing.T) {
	const evil = "\x1b]52;c;ZXZpbA==\a\x1b[31mevil\u009b2J\u202e"
	n := hopper()
	d := &n.devices.Devices[0]
	n.devices.Hostname, n.devices.Collectors[0].Reason = evil, evil
	d.Reason, d.GPU, d.UUID, d.PCIBusID, d.Node, d.Model, d.State = evil, evil, evil, evil, evil, evil, "stalled"
	d.Labels, d.Facts = map[string]string{evil: evil}, map[string]string{evil: evil}
	d.Instance = &apiv1.Instance{Profile: evil, ID: evil, UUID: evil}
	d.Users = []apiv1.User{{Namespace: evil, Pod: evil, Container: evil, Job: evil}}
	d.Processes = []apiv1.Process{{PID: 1, Name: evil, Pod: evil}}
	d.ID = evil
	n.fields.Devices[0].ID = evil
	n.fields.Devices[0].Fields[0].Absent = &apiv1.Absence{Reason: evil, Detail: evil}
	n.fields.Devices[0].Fields[0].Unit = evil
	n.fields.Devices[0].Fields[1].Labels = map[string]string{evil: evil}
	n.health.Reasons = []string{evil}
	n.events.Events[0].Device, n.events.Events[0].Kind, n.events.Events[0].Text = evil, evil, evil
	check := func(what string, lines ...string) {
		t.Helper()
		for _, l := range lines {
			for _, code := range []string{bold, alarm, reverse, off} {
				l = strings.ReplaceAll(l, code, "")
			}
			testkit.Equal(t, what, clean(l), l)
		}
	}
	for _, width := range []int{40, 80, 200} {
		m, s := watch(t, width, 40, n)
		for _, keys := range []string{"g", "p", "a", "n", "?"} {
			press(m, keys)
			check("key "+keys, m.frame()...)
		}
		press(m, "g", "home", "enter")
		s.tick(m, noon)
		check("details", m.frame()...)
		shows(t, m, "evil")
	}
	n.err = &evilError{evil}
	m, s := watch(t, 80, 24, n)
	s.tick(m, noon)
	check("error", m.frame()...)
	var b strings.Builder
	r := Once(t.Context(), []Target{{Name: evil, Node: n}})
	must(t, r.Table(&b))
	n.err = nil
	r = Once(t.Context(), []Target{{Name: evil, Node: n}})
	must(t, r.Table(&b))
	check("table", strings.Split(b.String(), "\n")...)
}

type evilError struct{ text string }

func (e *evilError) Error() string { return e.text }
