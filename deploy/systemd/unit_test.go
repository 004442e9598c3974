// Package systemd_test checks the unit against the behaviour of systemd's releases; deploy/systemd/test starts it under
// this machine's systemd.
package systemd_test

import (
	"os"
	"regexp"
	"testing"

	"warpgauge/internal/testkit"
)

// TestDevicePolicy finds settings with which some release of systemd hides /dev/nvidia* from the service. Without a
// device policy (DevicePolicy=auto, no DeviceAllow=) a service may open every device; with one entry in DeviceAllow=,
// it may open only that device and a few of the kernel's.
func TestDevicePolicy(t *testing.T) {
	unit := testkit.Get(os.ReadFile("warpgauge.service"))(t)
	for _, c := range []struct{ setting, releases, implies, source string }{
		{`DevicePolicy=(closed|strict)`, "all", "", "systemd.resource-control(5)"},
		{`DeviceAllow=.+`, "all", "DevicePolicy=closed, if that is auto", "systemd.resource-control(5)"},
		{`PrivateDevices=(yes|true|on|1)`, "all", "DevicePolicy=closed, another /dev", "systemd.exec(5)"},
		{`ProtectClock=(yes|true|on|1)`, "245 to 251", "DeviceAllow=char-rtc r", "systemd issue 18142, corrected by pull request 25075"},
	} {
		if found := regexp.MustCompile(`(?m)^` + c.setting + `$`).Find(unit); found != nil {
			t.Errorf("%s hides the GPUs with systemd of these releases: %s; it implies %q (%s)", found, c.releases, c.implies, c.source)
		}
	}
}

// TestWhatHealthNeeds: the exporter can use a state directory, a directory for its socket, and the kernel's log, and
// gets no capability for them.
func TestWhatHealthNeeds(t *testing.T) {
	unit := testkit.Get(os.ReadFile("warpgauge.service"))(t)
	for setting, want := range map[string]bool{
		`StateDirectory=warpgauge`:          true,
		`ProtectKernelLogs=(yes|true|on|1)`: false, // hides /dev/kmsg
		`RuntimeDirectory=(.* )?warpgauge`:  false, // tmpfiles.d of the package makes /run/warpgauge
		`CapabilityBoundingSet=.+`:          false, `AmbientCapabilities=.+`: false,
	} {
		testkit.Equal(t, setting, want, regexp.MustCompile(`(?m)^`+setting+`$`).Match(unit))
	}
}
