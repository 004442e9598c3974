// Package doctor finds problems of an exporter and its machine, reports them with advice, and creates a support
// bundle. It works without an exporter, without root and without GPUs, and lists the facts that it could not
// read. Only the command warpctl doctor uses it. On systems other than Linux it examines only the exporter.
//
// Every probe has a time limit. A probe that hangs in a driver or file system is abandoned and ends with the process.
package doctor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"warpgauge/extensions/live/apiv1"
	"warpgauge/pkg/config"
	"warpgauge/pkg/field"
)

// Exporter queries an exporter. *apiv1.Client implements it.
type Exporter interface {
	URL() string
	Devices(ctx context.Context) (*apiv1.Devices, error)
	Fields(ctx context.Context, devices, patterns []string) (*apiv1.Fields, error)
	Health(ctx context.Context) (*apiv1.Health, error)
	List(ctx context.Context) (*apiv1.List, error)
	Events(ctx context.Context, since time.Time, limit int) (*apiv1.Events, error)
	Page(ctx context.Context, accept string, w io.Writer) error
}

// Options select what to examine.
type Options struct {
	Version  string
	Root     string   // root of the file system; "" means /
	Environ  []string // in the format of os.Environ
	Exporter Exporter
	Limit    time.Duration // time limit for the exporter's answers

	// Replaced by tests; nil means the system's.
	access  func(path string, open bool) error
	journal func(context.Context) ([]byte, error)
}

// Result holds facts and findings.
type Result struct {
	Findings []Finding `json:"findings"`

	facts    Facts
	redactor *redactor
}

// Wrong reports whether something is wrong.
func (r *Result) Wrong() bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Severity == Problem })
}

const probeLimit = 5 * time.Second

// Run runs all probes in parallel, then all checks.
func Run(ctx context.Context, o Options) *Result {
	if o.Root == "" {
		o.Root = "/"
	}
	if o.access == nil {
		o.access = access
	}
	if o.journal == nil {
		o.journal = journal
	}
	s := &system{root: o.Root, access: o.access}
	r := &Result{facts: Facts{Version: o.Version, Time: time.Now().UTC(), Drivers: map[string]*Driver{}}, redactor: newRedactor()}
	run := func(probes ...probe) {
		applies := make([]func(*Facts), len(probes))
		var wg sync.WaitGroup
		for i := range probes {
			wg.Go(func() { applies[i] = probes[i].limited(ctx) })
		}
		wg.Wait()
		for _, apply := range applies {
			apply(&r.facts)
		}
	}
	run(probe{"settings", probeLimit, func(context.Context) (func(*Facts), error) {
		flags := s.flags(o.Environ)
		return func(f *Facts) { f.flags = flags }, nil
	}})
	var passwd, resolv string
	probes := []probe{{"exporter", 2 * o.Limit, o.ask}}
	if runtime.GOOS == "linux" {
		probes = append(o.machine(s, rootsOf(r.facts.flags)), probes[0], probe{"names", probeLimit, func(context.Context) (func(*Facts), error) {
			users, domains, host := s.text("/etc/passwd"), s.text("/etc/resolv.conf"), s.text("/etc/hostname")
			return func(*Facts) { passwd, resolv = users, domains; r.redactor.host(host) }, nil
		}})
	}
	run(probes...)
	r.redactor.learn(&r.facts, o.Environ, passwd, resolv)
	for _, c := range checks {
		out := findings{check: c.name}
		c.make(&r.facts, &out)
		r.Findings = append(r.Findings, out.all...)
	}
	return r
}

// machine returns the probes of this machine: drivers, devices and the exporter's log.
func (o *Options) machine(s *system, roots []string) []probe {
	out := []probe{{"system", probeLimit, s.host}, {"log", probeLimit, o.log(s)}}
	for _, v := range field.Vendors() {
		out = append(out, probe{v.Name, probeLimit, s.driver(v, roots)})
	}
	return out
}

// ask queries the exporter.
func (o *Options) ask(ctx context.Context) (func(*Facts), error) {
	ctx, cancel := context.WithTimeout(ctx, o.Limit)
	defer cancel()
	e := exporter{url: o.Exporter.URL()}
	if e.err = e.from(ctx, o.Exporter); e.err != nil {
		e.other = other(ctx, o.Exporter)
	}
	return func(f *Facts) { f.exporter = e }, nil
}

// from sends all queries to an exporter. It fails only if the query for devices fails.
func (e *exporter) from(ctx context.Context, x Exporter) error {
	devices, err := x.Devices(ctx)
	if err != nil {
		return err
	}
	e.devices = devices
	// Failed queries after this are missing in the bundle.
	e.fields, _ = x.Fields(ctx, nil, nil)
	e.health, _ = x.Health(ctx)
	e.list, _ = x.List(ctx)
	e.events, _ = x.Events(ctx, time.Time{}, 1000)
	page := limitedBuffer{limit: maxPage}
	if err := x.Page(ctx, "text/plain;version=0.0.4", &page); err == nil || page.Len() > 0 {
		e.own = ownMetrics(page.String())
	}
	return nil
}

const maxPage = 64 << 20 // bytes of /metrics to search for the exporter's own metrics

// limitedBuffer keeps only the first bytes written to it.
type limitedBuffer struct {
	bytes.Buffer
	limit int
}

func (b *limitedBuffer) Write(p []byte) (int, error) {
	if b.Len()+len(p) > b.limit {
		return 0, errors.New("too long")
	}
	return b.Buffer.Write(p)
}

// ownMetrics returns the lines with the exporter's own metrics.
func ownMetrics(page string) string {
	var b strings.Builder
	for l := range strings.Lines(page) {
		name := strings.TrimPrefix(strings.TrimPrefix(l, "# HELP "), "# TYPE ")
		if strings.HasPrefix(name, "warpgauge_") || strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") {
			b.WriteString(l)
		}
	}
	return b.String()
}

// other describes another program that answers at the exporter's address. It returns "" if nothing
// answers or if it is warpgauge.
func other(ctx context.Context, x Exporter) string {
	page := limitedBuffer{limit: maxPage}
	if err := x.Page(ctx, "text/plain;version=0.0.4", &page); err != nil {
		if errors.Is(err, apiv1.ErrNoPage) {
			return "another program"
		}
		return ""
	}
	text := page.String()
	switch {
	case strings.Contains(text, "warpgauge_"):
		return ""
	case strings.Contains(text, "DCGM_FI_"):
		return "dcgm-exporter"
	}
	return "another program"
}

// log reads the end of the exporter's log.
func (o *Options) log(s *system) func(context.Context) (func(*Facts), error) {
	return func(ctx context.Context) (func(*Facts), error) {
		var text []byte
		var err error
		if s.container() != "" {
			err = errors.New("it is the container's standard error, which cannot be read from inside")
		} else if text, err = o.journal(ctx); err == nil && len(bytes.TrimSpace(text)) == 0 {
			err = errors.New("the journal has no line of the unit warpgauge that this user may read")
		}
		return func(f *Facts) { f.log, f.logError = string(text), err }, nil
	}
}

// journal returns the end of the systemd unit's log.
func journal(ctx context.Context) ([]byte, error) {
	c := exec.CommandContext(ctx, "journalctl", "--unit=warpgauge", "--lines=2000", "--no-pager", "--quiet", "--output=short-iso-precise")
	c.WaitDelay = time.Second
	out := limitedBuffer{limit: maxFile}
	c.Stdout = &out
	if err := c.Run(); err != nil {
		if errors.Is(err, exec.ErrNotFound) {
			return nil, errors.New("there is no journalctl here")
		}
		return nil, fmt.Errorf("journalctl: %w", err)
	}
	return out.Bytes(), nil
}

// Table writes the findings for people.
func (r *Result) Table(w io.Writer) error {
	width, n := 0, 0
	for _, f := range r.Findings {
		width = max(width, len(f.Check))
		if f.Severity == Problem {
			n++
		}
	}
	var b strings.Builder
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "%-7s  %-*s  %s\n", strings.ToUpper(string(f.Severity)), width, f.Check, config.OneLine(f.Finding))
		if f.Do != "" && f.Severity != OK {
			fmt.Fprintf(&b, "%*s  to do: %s\n", width+9, "", config.OneLine(f.Do))
		}
	}
	end := "no problem was found"
	if n > 0 {
		end = config.Counted(n, "problem")
	}
	fmt.Fprintf(&b, "\n%s\n", end)
	_, err := io.WriteString(w, b.String())
	return err
}
