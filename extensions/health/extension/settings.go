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
	Mode          string   // ModeOn or ModeOff
	Directory     string   // for verdicts across restarts; "": memory only
	Rules         []string // NAME=off, NAME=on or NAME=NUMBER
	KernelLog     string   // KernelLogAuto, KernelLogOff or a path
	ExpectedGPUs  int      // 0: unknown
	AMDSocket     string   // socket for AMD's device plugin; "": none
	NodeCondition bool     // write a condition to the Kubernetes node
	NodeEvents    bool     // write events about the Kubernetes node
	NodeLabels    bool     // write AMD's labels to the Kubernetes node
}

// Values of Settings.Mode, and special values of Settings.KernelLog.
const (
	ModeOn        = "on"
	ModeOff       = "off"
	KernelLogAuto = "auto"
	KernelLogOff  = "off"
)

const group config.Group = "Health of devices"

const (
	flagDirectory = "health-directory"
	flagAMDSocket = "health-amd-socket"
)

// Flags adds the extension's flags.
func (s *Settings) Flags(set *config.Set) {
	flag := func(name, metavar string, v config.Value, usage string) config.Flag {
		return config.Flag{Name: name, Group: group, Value: v, Metavar: metavar, Usage: usage}
	}
	directory := flag(flagDirectory, "DIR", config.Text(&s.Directory),
		"Where verdicts on devices are kept, so that a fault is not forgotten when the exporter restarts. Empty: in memory only.")
	directory.ShownDefault = "health in $STATE_DIRECTORY, which systemd sets; else empty"
	set.Add(config.Section{Origin: config.Own, Check: s.check, Flags: []config.Flag{
		flag("health", "on|off", config.OneOf(&s.Mode, ModeOn, ModeOff),
			"Judge the health of devices, and read for it what the list does not name. off: no rule runs, nothing is read but the list, and the kernel's log and the PCI bus are not watched."),
		directory,
		flag("health-rules", "RULE=VALUE,…", config.List(&s.Rules),
			"Rules of health that differ from docs/health-rules.md: off or on, or a threshold in the rule's unit. Such as corrected_errors=off,hot=95."),
		flag("kernel-log", "MODE|PATH", config.Text(&s.KernelLog),
			"The kernel's log as second witness of what happens to devices. auto: /dev/kmsg, if it may be read; off; or a file of that form."),
		flag("expected-gpus", "N", config.Int(&s.ExpectedGPUs),
			"How many GPUs this node must have. 0: not known; those on the PCI bus, and those that were served before, are expected in any case."),
		flag(flagAMDSocket, "PATH", config.Text(&s.AMDSocket),
			"The Unix socket on which AMD's device plugin asks for the health of GPUs, as it does AMD's exporter. Empty: none."),
		flag("health-node-condition", "", config.Bool(&s.NodeCondition), "Write the health of this node's GPUs into a condition of the Kubernetes node."),
		flag("health-node-events", "", config.Bool(&s.NodeEvents), "Write a Kubernetes event of the node when the health of a GPU changes."),
		flag("health-node-labels", "", config.Bool(&s.NodeLabels),
			"Give the Kubernetes node the label metricsexporter.amd.com.gpu.<number>.state=unhealthy for each GPU of AMD's that has failed, as AMD's exporter does."),
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
