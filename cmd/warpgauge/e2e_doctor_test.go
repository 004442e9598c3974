//go:build linux && cgo

package main_test

import (
	"fmt"
	"strings"
	"testing"

	"warpgauge/collectors/nvml/nvmltest"
	"warpgauge/internal/testkit/eventually"
)

// TestE2EDoctorNVML has one GPU hang and another fall off the bus: doctor and top say so.
func TestE2EDoctorNVML(t *testing.T) {
	t.Parallel()
	n := &nvmlNode{exe: build(t), isolation: "process"}
	n.start(t, nvmltest.Config{}, "--sample-deadline=500ms")
	n.page(t, "8 GPUs", gpus(allGPUs...))
	release := n.Hang(3, nvmltest.Every)
	defer release()
	n.Lose(5)
	ctl := buildControl(t)
	run := func(what string, texts []string, args ...string) {
		t.Helper()
		eventually.OK(t, what, func() error {
			code, out := runToEnd(t, ctl, args...)
			for _, text := range texts {
				if !strings.Contains(out, text) {
					return fmt.Errorf("code %d, the output lacks %q:\n%s", code, text, out)
				}
			}
			return nil
		})
	}
	run("the doctor of the exporter", []string{"nvml is in use", "stalled: GPU 3: ", "look for XIDs in the kernel log", "lost: GPU 5: ", "XID 79"}, "doctor", "--url="+n.url)
	run("the state of each GPU", []string{"3    ", "stalled", "lost"}, "top", "--once", "--url="+n.url)
	// A call that hangs keeps the library of a second exporter from opening: its doctor says so.
	second := serve(t, n.exe, "--enable-only=nvml", "--enable-nvml=true", "--nvml-library="+n.Library(), "--sample-deadline=500ms")
	run("the doctor of an exporter that opens its library", []string{"nvml does not work: not opened yet", "the driver hangs"}, "doctor", "--url="+second.url)
}
