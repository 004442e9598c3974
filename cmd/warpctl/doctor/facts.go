package doctor

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"warpgauge/extensions/live/apiv1"
	"warpgauge/pkg/field"
)

// Facts holds the results of the probes. Facts that could not be read are absent; Unread has the reasons.
type Facts struct {
	Version string             `json:"version"`
	Time    time.Time          `json:"time"`
	Host    Host               `json:"host"`
	Drivers map[string]*Driver `json:"drivers,omitempty"` // by vendor name
	Unread  []Unread           `json:"unread,omitempty"`

	exporter exporter
	log      string // last part of the exporter's log
	logError error
	flags    []string // settings: --name=value or NAME=value
}

// Unread is a fact that could not be read, with the reason.
type Unread struct {
	What string `json:"what"`
	Why  string `json:"why"`
}

// Host is the machine or container where doctor runs.
type Host struct {
	Kernel       string   `json:"kernel,omitempty"`
	OS           string   `json:"os,omitempty"`
	Architecture string   `json:"architecture"`
	User         string   `json:"user_id,omitempty"` // number
	Groups       []string `json:"groups,omitempty"`  // numbers
	Capabilities string   `json:"capabilities,omitempty"`
	Container    string   `json:"container,omitempty"` // kind of container: Kubernetes, Docker …
}

// Driver holds facts about a vendor's GPUs and driver.
type Driver struct {
	GPUs        []PCI    `json:"gpus,omitempty"`
	Module      string   `json:"kernel_module,omitempty"` // version, or "loaded"
	Rival       bool     `json:"rival,omitempty"`         // another module that binds the GPUs is loaded
	Nodes       []Node   `json:"device_nodes,omitempty"`
	Libraries   []string `json:"libraries,omitempty"`
	Release     string   `json:"release,omitempty"` // version of the vendor's software
	Persistence bool     `json:"persistence_daemon,omitempty"`
}

// PCI is a display controller.
type PCI struct {
	Address string `json:"address"`
	Driver  string `json:"driver,omitempty"` // bound kernel module
}

// Node is a device node.
type Node struct {
	Path   string `json:"path"`
	Mode   string `json:"mode"`
	Owner  string `json:"owner,omitempty"` // user:group as numbers
	Access string `json:"access"`          // "ok", or why this process cannot open it
}

// exporter holds the exporter's answers.
type exporter struct {
	url     string
	err     error  // why there is no answer
	other   string // other program at the address
	devices *apiv1.Devices
	fields  *apiv1.Fields
	health  *apiv1.Health
	list    *apiv1.List
	events  *apiv1.Events
	own     string // the exporter's own metrics
}

// probe reads facts. It returns a function that the caller applies, so that an abandoned probe changes nothing.
type probe struct {
	name  string
	limit time.Duration
	run   func(context.Context) (func(*Facts), error)
}

// limited runs p within its time limit and returns the function that applies its result. It abandons a hanging call,
// which ends with the process.
func (p *probe) limited(ctx context.Context) func(*Facts) {
	ctx, cancel := context.WithTimeout(ctx, p.limit)
	defer cancel()
	unread := func(why string) func(*Facts) {
		return func(f *Facts) { f.Unread = append(f.Unread, Unread{p.name, why}) }
	}
	done := make(chan func(*Facts), 1)
	go func() {
		apply, err := p.run(ctx)
		if err != nil {
			apply = unread(err.Error())
		}
		done <- apply
	}()
	select {
	case apply := <-done:
		return apply
	case <-ctx.Done():
		return unread(fmt.Sprintf("it does not answer within %v", p.limit))
	}
}

// system reads files below a root.
type system struct {
	root   string
	access func(path string, open bool) error
}

func (s *system) path(name string) string { return filepath.Join(s.root, name) }

const maxSmall = 64 << 10 // maximum bytes of a file in /proc or /sys

// text returns the content of a small file, or "" if it cannot be read.
func (s *system) text(name string) string {
	f, err := os.OpenFile(s.path(name), os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()                // opened for reading only
	b, _ := io.ReadAll(io.LimitReader(f, maxSmall)) // a partial content is enough
	return strings.TrimSpace(string(b))
}

func (s *system) exists(name string) bool {
	_, err := os.Lstat(s.path(name))
	return err == nil
}

// glob returns at most 512 names, without the root, that match any of the patterns.
func (s *system) glob(patterns ...string) (out []string) {
	for _, p := range patterns {
		found, _ := filepath.Glob(s.path(p)) // the patterns are constant and valid
		for _, f := range found {
			if len(out) < 512 {
				out = append(out, strings.TrimPrefix(f, strings.TrimSuffix(s.root, "/")))
			}
		}
	}
	return out
}

// host reads facts about the machine or container.
func (s *system) host(context.Context) (func(*Facts), error) {
	h := Host{Architecture: runtime.GOARCH, Kernel: s.text("/proc/sys/kernel/osrelease")}
	for l := range strings.Lines(s.text("/etc/os-release")) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(l), "PRETTY_NAME="); ok {
			h.OS = strings.Trim(v, `"`)
		}
	}
	for l := range strings.Lines(s.text("/proc/self/status")) {
		name, v, _ := strings.Cut(l, ":")
		switch parts := strings.Fields(v); name {
		case "Uid":
			if len(parts) > 1 {
				h.User = parts[1] // effective user id
			}
		case "Groups":
			h.Groups = parts
		case "CapEff":
			h.Capabilities = strings.TrimSpace(v)
		}
	}
	h.Container = s.container()
	return func(f *Facts) { f.Host = h }, nil
}

func (s *system) container() string {
	switch {
	case s.exists("/var/run/secrets/kubernetes.io"):
		return "Kubernetes"
	case s.exists("/.dockerenv"):
		return "Docker"
	case s.exists("/run/.containerenv"):
		return "Podman"
	}
	groups := s.text("/proc/self/cgroup") + s.text("/proc/1/cgroup")
	for _, of := range [][2]string{{"kubepods", "Kubernetes"}, {"docker", "Docker"}, {"libpod", "Podman"}, {"lxc", "LXC"}} {
		if strings.Contains(groups, of[0]) {
			return of[1]
		}
	}
	return ""
}

// gpus returns the display controllers of a vendor.
func (s *system) gpus(v *field.Vendor) (out []PCI) {
	for _, dir := range s.glob("/sys/bus/pci/devices/*") {
		if s.text(dir+"/vendor") != v.PCI || !strings.HasPrefix(s.text(dir+"/class"), "0x03") && !strings.HasPrefix(s.text(dir+"/class"), "0x12") {
			continue
		}
		driver, _ := os.Readlink(s.path(dir + "/driver")) // no link means no driver
		if driver != "" {
			driver = filepath.Base(driver)
		}
		out = append(out, PCI{filepath.Base(dir), driver})
	}
	return out
}

// nodes returns a vendor's device nodes. It opens the one without side effects, because only that
// shows the limits of a device control group.
func (s *system) nodes(v *field.Vendor) (out []Node) {
	for _, name := range s.glob(v.Nodes...) {
		info, err := os.Stat(s.path(name))
		if err != nil {
			continue
		}
		if info.IsDir() {
			continue
		}
		n := Node{Path: name, Mode: info.Mode().String(), Owner: ownerOf(info), Access: "ok"}
		if err := s.access(s.path(name), name == v.Probe); err != nil {
			n.Access = err.Error()
		}
		out = append(out, n)
	}
	return out
}

// libraryFolders lists the library paths of distributions and containers.
var libraryFolders = []string{
	"/usr/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib", "/lib64",
	"/usr/local/nvidia/lib64", "/usr/lib/wsl/lib", "/usr/lib64/nvidia", "/usr/lib/x86_64-linux-gnu/nvidia/current",
}

// driverRoots lists other directories that may contain a driver's files. The first is the root itself.
var driverRoots = []string{"", "/run/nvidia/driver", "/driver-root", "/host", "/usr/local/nvidia", "/home/kubernetes/bin/nvidia", "/opt/nvidia/current"}

// libraries returns a library's files, under the names with a version.
func (s *system) libraries(name string, roots []string) (out []string) {
	seen := map[string]bool{}
	for _, root := range slices.Concat(roots, driverRoots) {
		folders := append(slices.Clone(libraryFolders), "/lib64", "/lib")
		for _, dir := range folders {
			for _, f := range s.glob(root + dir + "/" + name + ".so*") {
				if to, err := os.Readlink(s.path(f)); err == nil {
					f = filepath.Join(filepath.Dir(f), filepath.Base(to))
				}
				if !seen[f] && s.exists(f) {
					seen[f] = true
					out = append(out, f)
				}
			}
		}
	}
	return out
}

var moduleVersion = regexp.MustCompile(`[0-9]{3,}\.[0-9]+(\.[0-9]+)*`)

// driver reads the facts about a vendor's GPUs and driver.
func (s *system) driver(v *field.Vendor, roots []string) func(context.Context) (func(*Facts), error) {
	return func(context.Context) (func(*Facts), error) {
		d := Driver{
			GPUs: s.gpus(v), Module: s.text("/sys/module/" + v.Module + "/version"), Nodes: s.nodes(v),
			Rival: v.Rival != "" && s.exists("/sys/module/"+v.Rival), Persistence: v.Daemon != "" && (s.exists(v.Daemon) || s.exists("/var"+v.Daemon)),
		}
		for _, name := range v.Libraries {
			d.Libraries = append(d.Libraries, s.libraries(name, roots)...)
		}
		if v.Release != "" {
			d.Release = s.text(v.Release)
		}
		if d.Module == "" {
			d.Module = moduleVersion.FindString(s.text("/proc/driver/" + v.Module + "/version"))
		}
		if d.Module == "" && s.exists("/sys/module/"+v.Module) {
			d.Module = "loaded"
		}
		return func(f *Facts) { f.Drivers[v.Name] = &d }, nil
	}
}
