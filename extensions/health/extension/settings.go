package extension

import (
	"errors"
	"fmt"
	"path/filepath"

	"warpgauge/extensions/health"
	"warpgauge/pkg/config"
)

// Settings are the extension's flags.
type Settings struct {
	Mode         string   // ModeOn or ModeOff
	Directory    string   // for verdicts across restarts; "": memory only
	Rules        []string // NAME=off, NAME=on or NAME=NUMBER
	KernelLog    string   // KernelLogAuto, KernelLogOff or a path
	ExpectedGPUs int      // 0: unknown
	AMDSocket    string   // socket for AMD's device plugin; "": none

	NodeCondition, NodeEvents, NodeLabels bool // what to write to the Kubernetes node: a condition, events, AMD's labels
}

// Values of Settings.Mode, and special values of Settings.KernelLog.
const (
	ModeOn        = "on"
	ModeOff       = "off"
	KernelLogAuto = "auto"
	KernelLogOff  = "off"
)

const (
	group config.Group = "Health of devices"

	flagHealth    = "health"
	flagDirectory = "health-directory"
	flagAMDSocket = "health-amd-socket"
)

// Flags adds the extension's flags.
func (s *Settings) Flags(set *config.Set) {
	flag := func(name, metavar string, v config.Value, usage string) config.Flag {
		return config.Flag{Name: name, Group: group, Value: v, Metavar: metavar, Needs: flagHealth, Usage: usage}
	}
	directory := flag(flagDirectory, "DIR", config.Text(&s.Directory),
		"Directory that keeps verdicts on devices, so that faults outlive a restart of the exporter. Empty: in memory only.")
	directory.ShownDefault = "health in $STATE_DIRECTORY, which systemd sets; else empty"
	set.Add(config.Section{Origin: config.Own, Check: s.check, Flags: []config.Flag{
		{Name: flagHealth, Group: group, Value: config.OneOf(&s.Mode, ModeOn, ModeOff), Metavar: "on|off",
			Usage: "Judge the health of devices, and read the fields that the rules need in addition to the list. off: run no rule, read only the list, and watch neither the kernel's log nor the PCI bus."},
		directory,
		flag("health-rules", "RULE=VALUE,…", config.List(&s.Rules),
			"Changes to the rules of docs/health-rules.md: off, on, or a threshold in the rule's unit, such as corrected_errors=off,hot=95."),
		flag("kernel-log", "MODE|PATH", config.Text(&s.KernelLog),
			"The kernel's log, as a second source for faults of devices. auto: /dev/kmsg, if the exporter may read it; off; or a file in its format."),
		flag("expected-gpus", "N", config.Int(&s.ExpectedGPUs),
			"Number of GPUs that this node must have. 0: unknown. The exporter always expects the GPUs on the PCI bus, and the GPUs that it has served before."),
		flag(flagAMDSocket, "PATH", config.Text(&s.AMDSocket),
			"Unix socket on which AMD's device plugin asks for the health of GPUs, as it asks AMD's exporter. Empty: none."),
		flag("health-node-condition", "", config.Bool(&s.NodeCondition), "Write the health of this node's GPUs into a condition of the Kubernetes node."),
		flag("health-node-events", "", config.Bool(&s.NodeEvents), "Write a Kubernetes event of the node when the health of a GPU changes."),
		flag("health-node-labels", "", config.Bool(&s.NodeLabels),
			"Give the Kubernetes node the label metricsexporter.amd.com.gpu.<number>.state=unhealthy for each AMD GPU that must get no new work, as AMD's exporter does."),
	}})
}

func (s *Settings) check(*config.Config) error {
	_, err := health.Select(s.Rules)
	errs := []error{
		err,
		config.SocketPath(flagAMDSocket, &s.AMDSocket, true),
		config.AtLeast("expected-gpus", s.ExpectedGPUs, 0),
	}
	if s.Mode == ModeOff && (s.AMDSocket != "" || s.NodeCondition || s.NodeEvents || s.NodeLabels) {
		errs = append(errs, errors.New("--health is off: --health-amd-socket, --health-node-condition, --health-node-events and --health-node-labels need it"))
	}
	if s.Directory != "" && !filepath.IsAbs(s.Directory) {
		errs = append(errs, fmt.Errorf("--%s is %q: write an absolute path", flagDirectory, s.Directory))
	}
	if k := s.KernelLog; k != KernelLogAuto && k != KernelLogOff && !filepath.IsAbs(k) {
		errs = append(errs, fmt.Errorf("--kernel-log is %q: write auto, off or an absolute path", k))
	}
	return errors.Join(errs...)
}
