package config

import (
	"errors"
	"fmt"
	"path/filepath"
)

// Health is what is kept and served of the devices' health.
type Health struct {
	Mode          string   // HealthOn or HealthOff
	Directory     string   // where verdicts outlive the process; "": in memory only
	Rules         []string // NAME=off, NAME=on or NAME=NUMBER; package health checks them
	KernelLog     string   // KernelLogAuto, KernelLogOff or a path
	ExpectedGPUs  int      // 0: not known
	AMDSocket     string   // where AMD's device plugin asks; "": it is not answered
	NodeCondition bool     // write a condition of the Kubernetes node
	NodeEvents    bool     // write events of the Kubernetes node
	NodeLabels    bool     // write labels of the Kubernetes node, as AMD's exporter does
}

// Values of Health.Mode.
const (
	HealthOn  = "on"
	HealthOff = "off"
)

// Values of Health.KernelLog that are no path.
const (
	KernelLogAuto = "auto"
	KernelLogOff  = "off"
)

func ownHealth(c *Config) []Flag {
	h := &c.Health
	return []Flag{
		{
			Name: "health", Env: "WARPGAUGE_HEALTH", Group: GroupHealth, Value: OneOf(&h.Mode, HealthOn, HealthOff),
			Metavar: "on|off", Usage: "Judge the health of devices, and read for it what the list does not name. off: no rule runs, nothing is read but the list, and the kernel's log and the PCI bus are not watched.",
		},
		{
			Name: "health-directory", Env: "WARPGAUGE_HEALTH_DIRECTORY", Group: GroupHealth, Value: Text(&h.Directory),
			Metavar: "DIR", Usage: "Where verdicts on devices are kept, so that a fault is not forgotten when the exporter restarts. Empty: in memory only.",
			ShownDefault: "health in $STATE_DIRECTORY, which systemd sets; else empty",
		},
		{
			Name: "health-rules", Env: "WARPGAUGE_HEALTH_RULES", Group: GroupHealth, Value: List(&h.Rules),
			Metavar: "RULE=VALUE,…", Usage: "Rules of health that differ from docs/health-rules.md: off or on, or a threshold in the rule's unit. Such as corrected_errors=off,hot=95.",
		},
		{
			Name: "kernel-log", Env: "WARPGAUGE_KERNEL_LOG", Group: GroupHealth, Value: Text(&h.KernelLog),
			Metavar: "MODE|PATH", Usage: "The kernel's log as second witness of what happens to devices. auto: /dev/kmsg, if it may be read; off; or a file of that form.",
		},
		{
			Name: "expected-gpus", Env: "WARPGAUGE_EXPECTED_GPUS", Group: GroupHealth, Value: Int(&h.ExpectedGPUs),
			Metavar: "N", Usage: "How many GPUs this node must have. 0: not known; those on the PCI bus, and those that were served before, are expected in any case.",
		},
		{
			Name: "health-amd-socket", Env: "WARPGAUGE_HEALTH_AMD_SOCKET", Group: GroupHealth, Value: Text(&h.AMDSocket),
			Metavar: "PATH", Usage: "The Unix socket on which AMD's device plugin asks for the health of GPUs, as it does AMD's exporter. Empty: none.",
		},
		{
			Name: "health-node-condition", Env: "WARPGAUGE_HEALTH_NODE_CONDITION", Group: GroupHealth, Value: Bool(&h.NodeCondition),
			Usage: "Write the health of this node's GPUs into a condition of the Kubernetes node.",
		},
		{
			Name: "health-node-events", Env: "WARPGAUGE_HEALTH_NODE_EVENTS", Group: GroupHealth, Value: Bool(&h.NodeEvents),
			Usage: "Write a Kubernetes event of the node when the health of a GPU changes.",
		},
		{
			Name: "health-node-labels", Env: "WARPGAUGE_HEALTH_NODE_LABELS", Group: GroupHealth, Value: Bool(&h.NodeLabels),
			Usage: "Give the Kubernetes node the label metricsexporter.amd.com.gpu.<number>.state=unhealthy for each GPU of AMD's that has failed, as AMD's exporter does.",
		},
	}
}

func (h *Health) validate() error {
	errs := []error{
		socketPath("health-amd-socket", &h.AMDSocket, true),
		atLeastN("expected-gpus", h.ExpectedGPUs, 0),
	}
	if h.Mode == HealthOff && (h.AMDSocket != "" || h.NodeCondition || h.NodeEvents || h.NodeLabels) {
		errs = append(errs, errors.New("--health is off: --health-amd-socket, --health-node-condition, --health-node-events and --health-node-labels need it"))
	}
	if h.Directory != "" && !filepath.IsAbs(h.Directory) {
		errs = append(errs, fmt.Errorf("--health-directory is %q: write an absolute path", h.Directory))
	}
	if k := h.KernelLog; k != KernelLogAuto && k != KernelLogOff && !filepath.IsAbs(k) {
		errs = append(errs, fmt.Errorf("--kernel-log is %q: write auto, off or an absolute path", k))
	}
	return errors.Join(errs...)
}
