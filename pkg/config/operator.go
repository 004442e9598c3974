package config

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"warpgauge/pkg/field"
	"warpgauge/pkg/file"
)

// Operator is how this program stands in for AMD's exporter: its flags, and what AMD's GPU
// Operator sets. (internal/metricsexporter of https://github.com/ROCm/gpu-operator and
// cmd/exporter of https://github.com/ROCm/device-metrics-exporter)
type Operator struct {
	Detected bool   // the environment is that of AMD's operator
	File     string // of AMD's exporter's configuration; "": none
	Start    *AMD   // what it said at start; nil: none, or it is wrong
	Failed   error  // why the default file is not used

	bind             string
	gpus, pods, jobs bool
}

// What AMD's operator sets, and where it puts things.
const (
	operatorPort    = "METRICS_EXPORTER_PORT"
	operatorRelaxed = "AMD_EXPORTER_RELAXED_FLAGS_PARSING"
	operatorNode    = "DS_NODE_NAME"

	flagAMDConfig = "amd-config"
	flagBind      = "bind"
	amdPort       = "5000"
	amdConfig     = "/etc/metrics/config.json"
	amdSocket     = "/var/lib/amd-metrics-exporter/amdgpu_device_metrics_exporter_grpc.socket"
	amdJobs       = "/var/run/exporter"
)

// Relaxed says whether flags that are unknown are warned of only, as AMD's operator wants it.
func Relaxed(lookup func(string) (string, bool)) bool {
	v, _ := lookup(operatorRelaxed)
	return v != ""
}

// NodeName is the node's name in Kubernetes: NODE_NAME, or what AMD's operator sets.
func NodeName(lookup func(string) (string, bool)) string {
	if name, _ := lookup("NODE_NAME"); name != "" {
		return name
	}
	name, _ := lookup(operatorNode)
	return name
}

// amdFlags are those of AMD's exporter. Its -s, the socket of its agent, is dcgm-exporter's
// --switch-devices here.
func amdFlags(c *Config) []Flag {
	o := &c.Operator
	without := func(name, metavar string, v Value, usage, why string) Flag {
		return Flag{Name: name, Group: GroupAMD, Value: v, Metavar: metavar, Usage: usage, NoEffect: why}
	}
	off := func(name, usage, why string) Flag { return without(name, "", Bool(new(false)), usage, why) }
	return []Flag{
		{
			Name: flagBind, Group: GroupAMD, Value: Text(&o.bind),
			Metavar: "HOST", Usage: "Host part of the address to listen on, if --address is not set. The port is $" + operatorPort + ", that of the file of --amd-config, or --address's.",
			ShownDefault: "all addresses",
		},
		{
			Name: "monitor-gpu", Group: GroupAMD, Value: Bool(&o.gpus),
			Usage: "false is the same as --enable-rocm=false.",
		},
		{
			Name: "enable-k8s-scl", Group: GroupAMD, Value: Bool(&o.pods),
			Usage: "false: --kubernetes is not set by AMD's operator.",
		},
		{
			Name: "enable-slurm-scl", Group: GroupAMD, Value: Bool(&o.jobs),
			Usage: "false: --hpc-job-mapping-dir is not set by AMD's operator.",
		},
		off("monitor-nic", "Read network cards.", noNetwork),
		off("monitor-ifoe", "Read IFOE network cards.", noNetwork),
		off("sriov-enable", "Read GPUs of a host of virtual machines.", "only GPUs with the amdgpu driver are read"),
		off("exit-on-agent-down", "Exit if the agent does not answer.", "there is no agent; what fails is tried again"),
		off("exit-on-rocpctl-error", "Exit if the profiler does not answer.", noProfiler),
		without("enable-k8s", "", Bool(new(true)), "Use the API server of Kubernetes.", "it is asked only for what other flags want of it"),
		without("enable-cri", "", Bool(new(true)), "Ask the container runtime.", noNetwork+"; see --container-runtime-socket"),
		without("agent-grpc-port", "PORT", Int(new(0)), "Port of the agent.", "there is no agent"),
		without("log-file-path", "FILE", Text(new("/var/log/exporter.log")), "Where to write the log.", noLogFile),
	}
}

func ownAMD(c *Config) []Flag {
	return []Flag{{
		Name: flagAMDConfig, Aliases: []string{"amd-metrics-config"}, Env: "WARPGAUGE_AMD_CONFIG", Group: GroupAMD, Value: Text(&c.Operator.File),
		Metavar: "FILE", Usage: "config.json of AMD's exporter. Names, labels and the log's level are read again when it changes, the rest at start. It makes as-written,amd the default of --field-names.",
		ShownDefault: amdConfig + " if AMD's operator has started this, else none",
	}}
}

// standIn takes what AMD's operator and the configuration of AMD's exporter say for flags that
// are not set.
func standIn(s *Set) error {
	o := &s.config.Operator
	port, _ := s.lookup(operatorPort)
	if strings.Contains(port, "://") { // Kubernetes', of a Service called metrics-exporter
		port = ""
	}
	o.Detected = port != "" || Relaxed(s.lookup)
	if !o.gpus {
		if err := s.SetDefault("enable-rocm", "false", FromCommandLine); err != nil {
			return err
		}
	}
	var errs []error
	set := func(name, text string, from Source) { errs = append(errs, s.SetDefault(name, text, from)) }
	if o.Detected {
		set(flagAMDConfig, amdConfig, FromOperator)
	}
	if err := s.readAMD(); err != nil {
		return err
	}
	if o.File != "" {
		set("field-names", namesOfAMD, FromOperator)
	}
	if a := o.Start; a != nil {
		for name, text := range a.flags {
			set(name, text, FromFile)
		}
		if a.Level != "" {
			set("log-level", a.Level, FromFile)
		}
	}
	if o.Detected {
		if o.Start == nil || !o.Start.noHealth {
			set("health-amd-socket", amdSocket, FromOperator)
		}
		if o.jobs {
			set(flagJobs, amdJobs, FromOperator)
		}
		if o.pods && s.config.Kubernetes.usable() {
			set(flagKubernetes, "true", FromOperator)
		}
	}
	errs = append(errs, s.listenAs(port))
	return errors.Join(errs...)
}

// namesOfAMD is the default of --field-names if AMD's exporter is stood in for.
const namesOfAMD = string(field.NamesAsWritten) + ",amd"

// usable says whether the kubelet's directory is there. Its socket may come later.
func (k *Kubernetes) usable() bool {
	_, err := os.Stat(filepath.Dir(strings.TrimPrefix(k.Socket, "unix://")))
	return err == nil
}

// readAMD reads the configuration of AMD's exporter. The default file may be missing, and if it is
// wrong, this does not prevent the start: it is read again when it changes.
func (s *Set) readAMD() error {
	o := &s.config.Operator
	if o.File == "" {
		return nil
	}
	data, err := file.NewReader(field.MaxFileBytes).Read(context.Background(), o.File)
	if err == nil {
		o.Start, err = parseAMD(data, o.File)
	} else if err = fmt.Errorf("read configuration file of AMD's exporter: %w", err); errors.Is(err, fs.ErrNotExist) && s.config.Source(flagAMDConfig) == FromOperator {
		return nil
	}
	if s.config.Source(flagAMDConfig) == FromOperator {
		o.Failed, err = err, nil
	}
	return err
}

// listenAs sets the address, unless it was given: the host of --bind, and the port of AMD's
// operator, of the file, or AMD's.
func (s *Set) listenAs(port string) error {
	c := s.config
	if c.Source("address") != FromDefault {
		return nil
	}
	host, own, err := net.SplitHostPort(c.Web.Address)
	if err != nil {
		return err
	}
	from := FromOperator
	switch a := c.Operator.Start; {
	case port != "":
		if _, err := strconv.ParseUint(port, 10, 16); err != nil {
			return fmt.Errorf("environment variable %s is %q: write a number from 0 to 65535", operatorPort, port)
		}
		own, from = port, FromEnvironment
	case a != nil && a.port != 0:
		own, from = strconv.Itoa(a.port), FromFile
	case c.Operator.Detected:
		own = amdPort
	}
	if src := c.Source(flagBind); src != FromDefault {
		host, from = c.Operator.host(), src
	}
	if address := net.JoinHostPort(host, own); address != c.Web.Address {
		return s.SetDefault("address", address, from)
	}
	return nil
}

// PodsOf says which labels of pods the configuration of AMD's exporter wants, and whether pods
// must be known for what it wants.
func (o *Operator) PodsOf() (labels []field.NameValue, needed bool) {
	if o.Start == nil {
		return nil, false
	}
	n := &o.Start.Names
	return n.PodLabels, len(n.PodLabels) > 0 || slices.ContainsFunc(n.Labels, func(l string) bool { return strings.EqualFold(l, "POD_UUID") })
}

// bindNotice says that --bind is not used, if it is not.
func bindNotice(c *Config) (out []Notice) {
	src := c.Source(flagBind)
	if host, _, err := net.SplitHostPort(c.Web.Address); src == FromDefault || err == nil && host == c.Operator.host() {
		return nil
	}
	return []Notice{{flagBind, src, "--bind is not used: --address is " + c.Web.Address}}
}

func (o *Operator) host() string { return strings.Trim(o.bind, "[]") }
