package slurm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"warpgauge/internal/testkit"
)

// TestHealthCheck runs warpgauge-health with fake programs for Slurm and warpgauge.
func TestHealthCheck(t *testing.T) {
	const (
		failed = "GPU 3 xid_79: reboot"
		idle   = "NodeName=n1 Arch=x86_64 State=IDLE ThreadsPerCore=1 Comment=rack 7"
		drain  = "update NodeName=n1 State=DRAIN Reason=warpgauge: " + failed
	)
	for _, tt := range []struct {
		name    string
		health  string // body of the fake warpgauge
		node    string // body of scontrol show node; "": slurmctld does not answer
		refuses bool   // scontrol update fails
		want    string // arguments of scontrol update
		log     string // part of the log
	}{
		{"no GPU has failed", "echo '8 devices, none is failed'", idle, false, "", ""},
		{"one has", "echo '" + failed + "'; exit 1", idle, false, drain, "drained n1: " + failed},
		{"with jobs", "echo '" + failed + "'; exit 1", "NodeName=n1 State=MIXED+CLOUD ThreadsPerCore=1", false, drain, "drained n1"},
		{"drained already", "echo '" + failed + "'; exit 1", "NodeName=n1 State=IDLE+DRAIN ThreadsPerCore=1 Reason=new disk [ops@2026-11-22T12:00:00]", false, "", ""},
		{"draining", "echo '" + failed + "'; exit 1", "NodeName=n1 State=MIXED+DRAIN ThreadsPerCore=1 Reason=warpgauge: GPU 1 xid_48: reset_gpu [root@2026-11-22T12:00:00]", false, "", ""},
		{"down", "echo '" + failed + "'; exit 1", "NodeName=n1 State=DOWN* ThreadsPerCore=1 Reason=Not responding [slurm@2026-11-22T12:00:00]", false, "", ""},
		{"an operator's note", "echo '" + failed + "'; exit 1", idle + " Reason=to be moved [on Monday] [ops@2026-11-22T12:00:00]", false,
			"update NodeName=n1 State=DRAIN Reason=to be moved [on Monday]; warpgauge: " + failed, "drained n1"},
		{"the exporter does not know", "echo 'cannot tell: no exporter answers'; exit 2", idle, false, "", "nothing is done: cannot tell: no exporter answers"},
		{"a warpgauge without the command", "echo 'unknown command' >&2; exit 1", idle, false, "", "nothing is done: warpgauge does not answer"},
		{"it hangs", "exec sleep 1000", idle, false, "", "nothing is done: warpgauge does not answer"},
		{"it crashes", "kill -SEGV $$", idle, false, "", "nothing is done"},
		{"slurmctld does not answer", "echo '" + failed + "'; exit 1", "", false, "", failed + "; the node is not drained"},
		{"Slurm refuses", "echo '" + failed + "'; exit 1", idle, true, drain, failed + "; n1 cannot be drained: Invalid user"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.script = testkit.Get(filepath.Abs("warpgauge-health"))(t)
			n.set("WARPGAUGE_HEALTH_TIMEOUT=0") // one second is added
			n.set("WARPGAUGE_HEALTH_FLAGS='--token-file=/t --ca-file=/ca'")
			n.program("warpgauge", `printf '%s\n' "$*" >>"`+n.root+`/asked"; `+tt.health)
			show, update := "exit 1", "exit 0"
			if tt.node != "" {
				show = "echo '" + tt.node + "'"
			}
			if tt.refuses {
				update = "echo 'Invalid user'; exit 1"
			}
			n.program("scontrol", `if [ "$1" = update ]; then printf '%s\n' "$*" >>"`+n.root+`/update"; `+update+`; fi; `+show)
			code, text := n.run(nil, "SLURMD_NODENAME=n1")
			testkit.Equal(t, "exit code: "+text, 0, code)
			testkit.Equal(t, "scontrol", tt.want, n.text("update"))
			got := n.text("log")
			testkit.ErrorIf(t, !strings.Contains(got, tt.log) || tt.log == "" && got != "", "log %q, want %q", got, tt.log)
			testkit.Equal(t, "warpgauge", "health --output=line --timeout=0s --token-file=/t --ca-file=/ca", n.text("asked"))
		})
	}
}

// text returns what a fake program has written; "" if nothing.
func (n *node) text(name string) string {
	text, _ := os.ReadFile(filepath.Join(n.root, name)) // missing if the program was not called
	return strings.TrimSpace(string(text))
}
