package amd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"warpgauge/pkg/config"
	"warpgauge/pkg/field"
	"warpgauge/pkg/file"
)

// Variables and paths of AMD's GPU Operator (internal/metricsexporter of https://github.com/ROCm/gpu-operator and
// cmd/exporter of https://github.com/ROCm/device-metrics-exporter).
const (
	operatorPort    = "METRICS_EXPORTER_PORT"
	operatorRelaxed = "AMD_EXPORTER_RELAXED_FLAGS_PARSING"

	flagConfig          = "amd-config"
	flagBind            = "bind"
	operatorDefaultPort = "5000"
	defaultConfig       = "/etc/metrics/config.json"
	pluginSocket        = "/var/lib/amd-metrics-exporter/amdgpu_device_metrics_exporter_grpc.socket"
	jobDirectory        = "/var/run/exporter"
	operatorList        = "/etc/warpgauge/amd-counters.csv"
)

// operatorDirectory is a directory of the node, which the operator mounts.
var operatorDirectory = filepath.Dir(pluginSocket)

// Headings and origin of the flags in help and documentation.
const (
	group  config.Group  = "In place of AMD's exporter"
	origin config.Origin = "AMD's exporter" // AMD's device-metrics-exporter defines the flag
)

// Reasons why flags and keys have no effect.
const (
	networkUnread  = "network cards are not read"
	profilerUnread = "the profiler is not read"
	logToStderr    = "the log goes to standard error"
)

// Flags adds the flags of AMD's exporter, and --amd-config. AMD's -s, its agent's socket, means dcgm-exporter's
// --switch-devices here.
func (e *Extension) Flags(s *config.Set) {
	e.set = s
	e.gpus, e.pods, e.jobs = true, true, true
	s.AddDialect(e, "amd: for AMD's GPUs the names, labels and units of AMD's exporter instead; new,amd and so on: in addition.")
	s.Add(config.Section{Origin: origin, ParentOnly: true, Defaults: e.setDefaults, Notices: e.notices, Flags: []config.Flag{
		{
			Name: flagBind, Group: group, Value: config.Text(&e.bind),
			Metavar: "HOST", Usage: "Host part of the address to listen on, if --address is not set. The port is from $" + operatorPort + ", from the file of --amd-config, or from --address.",
			ShownDefault: "all addresses",
		},
		{
			Name: "monitor-gpu", Group: group, Value: config.Bool(&e.gpus),
			Usage: "false is the same as --enable-rocm=false.",
		},
		{
			Name: "enable-k8s-scl", Group: group, Value: config.Bool(&e.pods),
			Usage: "false: AMD's operator does not set --kubernetes.",
		},
		{
			Name: "enable-slurm-scl", Group: group, Value: config.Bool(&e.jobs),
			Usage: "false: AMD's operator does not set --hpc-job-mapping-dir.",
		},
		config.Idle("monitor-nic", "", config.Bool(new(false)), networkUnread),
		config.Idle("monitor-ifoe", "", config.Bool(new(false)), networkUnread),
		config.Idle("sriov-enable", "", config.Bool(new(false)), "only GPUs with the amdgpu driver are read"),
		config.Idle("exit-on-agent-down", "", config.Bool(new(false)), "there is no agent; what fails is tried again"),
		config.Idle("exit-on-rocpctl-error", "", config.Bool(new(false)), profilerUnread),
		config.Idle("enable-k8s", "", config.Bool(new(true)), "other flags select what is read from Kubernetes"),
		config.Idle("enable-cri", "", config.Bool(new(true)), networkUnread),
		config.Idle("agent-grpc-port", "", config.Int(new(0)), "there is no agent"),
		config.Idle("log-file-path", "", config.Text(new("/var/log/exporter.log")), logToStderr),
	}})
	s.Add(config.Section{Origin: config.Own, ParentOnly: true, Flags: []config.Flag{{
		Name: flagConfig, Aliases: []string{"amd-metrics-config"}, Env: "WARPGAUGE_AMD_CONFIG", Group: group, Value: config.Text(&e.path),
		Metavar: "FILE", Usage: "config.json of AMD's exporter. Names, labels and the log's level are read again when it changes, the rest at start. It makes as-written,amd the default of --field-names.",
		ShownDefault: defaultConfig + " if AMD's operator has started this, else none",
	}}})
	if v, _ := s.Lookup(operatorRelaxed); v != "" {
		e.operator = true
		s.AllowUnknown()
	}
}

// setDefaults applies AMD's operator and the configuration file to the flags that the user has not set.
func (e *Extension) setDefaults(s *config.Set) error {
	port, _ := s.Lookup(operatorPort)
	if strings.Contains(port, "://") { // set by Kubernetes for a Service named metrics-exporter
		port = ""
	}
	e.operator = e.operator || port != ""
	var errs []error
	set := func(name, text string, from config.Source) { errs = append(errs, s.SetDefault(name, text, from)) }
	if !e.gpus {
		set("enable-rocm", "false", config.FromCommandLine)
	}
	if e.operator {
		set(flagConfig, defaultConfig, config.FromExtension)
		if _, err := os.Stat(operatorList); err == nil { // of the image
			set("collectors", operatorList, config.FromExtension)
		}
	}
	c := s.Settings()
	e.given = c.Source(flagConfig) > config.FromExtension
	if err := e.readAtStart(); err != nil {
		return err
	}
	if e.path != "" {
		set("field-names", string(field.NamesAsWritten)+","+Dialect, config.FromExtension)
	}
	if f := e.start; f != nil {
		for name, text := range f.flags {
			set(name, text, config.FromFile)
		}
		if f.level != "" {
			set("log-level", f.level, config.FromFile)
		}
		c.Kubernetes.Facts = f.names.podFacts()
	}
	if e.operator {
		if e.flag("health") != "off" {
			if e.start == nil || !e.start.noHealth {
				set("health-amd-socket", pluginSocket, config.FromExtension)
			}
			if _, err := os.Stat(operatorDirectory); err == nil {
				set("health-directory", operatorDirectory+"/warpgauge", config.FromExtension)
			}
		}
		if e.jobs {
			set("hpc-job-mapping-dir", jobDirectory, config.FromExtension)
		}
		if e.pods && hasKubelet(&c.Kubernetes) {
			set("kubernetes", "true", config.FromExtension)
		}
	}
	errs = append(errs, e.setAddress(s, port))
	return errors.Join(errs...)
}

// podFacts returns the pod facts that the labels need.
func (s *Settings) podFacts() (out config.PodFacts) {
	for _, l := range s.PodLabels {
		out.Labels = append(out.Labels, field.NameValue(l))
	}
	out.UID = listed(s.Labels, "POD_UUID")
	return out
}

// hasKubelet reports whether the kubelet's directory exists. Its socket may come later.
func hasKubelet(k *config.Kubernetes) bool {
	_, err := os.Stat(filepath.Dir(strings.TrimPrefix(k.Socket, "unix://")))
	return err == nil
}

// readAtStart reads AMD's configuration file. The operator's file may be absent. If it is invalid,
// the exporter starts without it and reads it again after a change.
func (e *Extension) readAtStart() error {
	if e.path == "" {
		return nil
	}
	data, err := file.NewReader(field.MaxFileBytes).Read(context.Background(), e.path)
	missing := errors.Is(err, fs.ErrNotExist)
	if err == nil {
		e.start, err = parseFile(data, e.path)
	} else {
		err = readError(err)
	}
	switch {
	case e.given:
		return err
	case !missing:
		e.failed = err
	}
	return nil
}

func readError(err error) error {
	return fmt.Errorf("read configuration file of AMD's exporter: %w", err)
}

// setAddress sets the address unless the user has set it. The host is --bind. The port comes from AMD's operator, else from
// the file, else it is AMD's default.
func (e *Extension) setAddress(s *config.Set, port string) error {
	c := s.Settings()
	if c.Source("address") != config.FromDefault {
		return nil
	}
	host, own, err := net.SplitHostPort(c.Web.Address)
	if err != nil {
		return err
	}
	from := config.FromExtension
	switch f := e.start; {
	case port != "":
		if _, err := strconv.ParseUint(port, 10, 16); err != nil {
			return fmt.Errorf("environment variable %s is %q: write a number from 0 to 65535", operatorPort, port)
		}
		own, from = port, config.FromEnvironment
	case f != nil && f.port != 0:
		own, from = strconv.Itoa(f.port), config.FromFile
	case e.operator:
		own = operatorDefaultPort
	}
	if src := c.Source(flagBind); src != config.FromDefault {
		host, from = e.host(), src
	}
	if address := net.JoinHostPort(host, own); address != c.Web.Address {
		return s.SetDefault("address", address, from)
	}
	return nil
}

// notices returns a notice if --bind has no effect.
func (e *Extension) notices(c *config.Config) (out []config.Notice) {
	src := c.Source(flagBind)
	if host, _, err := net.SplitHostPort(c.Web.Address); src == config.FromDefault || err == nil && host == e.host() {
		return nil
	}
	return []config.Notice{{Flag: flagBind, Source: src, Text: "--bind is not used: --address is " + c.Web.Address}}
}

// host returns --bind without the brackets of an IPv6 address.
func (e *Extension) host() string { return strings.Trim(e.bind, "[]") }
