package config

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"warpgauge/pkg/field"
)

// Remote is how field lists come from a server.
type Remote struct {
	Mode       string // RemoteOff, RemoteReport, RemoteApply
	URL        string
	Interval   time.Duration
	Directory  string   // "": nothing is kept
	Allow      []string // AllowProfiling, AllowChangingLabels
	Limits     RemoteLimits
	TokenFile  string
	CAFile     string
	CertFile   string
	KeyFile    string
	NodeLabels map[string]string
}

// RemoteLimits are what a list of a server may not exceed.
type RemoteLimits struct {
	Bytes    int64
	Fields   int
	Series   int
	Interval time.Duration
	Cost     float64 // seconds in vendors' libraries per second
}

const flagRemote = "remote-config"

// Values of Remote.Mode and Remote.Allow.
const (
	RemoteOff           = "off"
	RemoteReport        = "report"
	RemoteApply         = "apply"
	AllowProfiling      = "profiling"
	AllowChangingLabels = "changing-labels"
)

func defaultRemote() Remote {
	return Remote{
		Mode: RemoteOff, Interval: 30 * time.Second,
		Limits: RemoteLimits{Bytes: 1 << 20, Fields: 500, Series: 50000, Interval: 100 * time.Millisecond, Cost: 0.5},
	}
}

// Wanted says whether a server is asked.
func (r *Remote) Wanted() bool { return r.Mode != RemoteOff }

// minRemoteInterval keeps a slip from becoming a flood.
const minRemoteInterval = time.Second

func (r *Remote) validate() error {
	if !r.Wanted() {
		return nil
	}
	errs := []error{
		r.validateURL(),
		atLeast("remote-interval", r.Interval, minRemoteInterval),
	}
	if (r.CertFile == "") != (r.KeyFile == "") {
		errs = append(errs, errors.New("--remote-cert-file and --remote-key-file belong together: set both or none"))
	}
	if r.Directory != "" && !filepath.IsAbs(r.Directory) {
		errs = append(errs, fmt.Errorf("--remote-directory is %q: write an absolute path", r.Directory))
	}
	for _, class := range r.Allow {
		if class != AllowProfiling && class != AllowChangingLabels {
			errs = append(errs, fmt.Errorf("--remote-allow has %q: write %s or %s", class, AllowProfiling, AllowChangingLabels))
		}
	}
	return errors.Join(errs...)
}

var remoteSchemes = []string{"http", "https", "opamp+http", "opamp+https", "opamp+ws", "opamp+wss"}

func (r *Remote) validateURL() error {
	u, err := url.Parse(r.URL)
	switch {
	case r.URL == "":
		return fmt.Errorf("--%s=%s without --remote-url: name the server", flagRemote, r.Mode)
	case err != nil:
		return errors.New("--remote-url cannot be read: write https://HOST/PATH") // the URL can have a password, and url.Error has the URL
	case !slices.Contains(remoteSchemes, u.Scheme) || u.Host == "":
		return fmt.Errorf("--remote-url is %q: write a host and one of the schemes %s", u.Redacted(), strings.Join(remoteSchemes, ", "))
	case r.TokenFile != "" && (u.Scheme == "http" || u.Scheme == "opamp+http" || u.Scheme == "opamp+ws") && !isLoopback(u.Hostname()):
		return fmt.Errorf("--remote-token-file with a %s URL: everyone on the way could read the token; use TLS", u.Scheme)
	}
	return nil
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// limits is the value of --remote-limit: each name that is given changes its limit.
type limits struct{ at *RemoteLimits }

func (l limits) Set(text string) error {
	for _, item := range SplitList(text) {
		name, value, _ := strings.Cut(item, "=")
		var v interface{ Set(string) error }
		switch name {
		case "bytes":
			v = Bytes(&l.at.Bytes)
		case "fields":
			v = Int(&l.at.Fields)
		case "series":
			v = Int(&l.at.Series)
		case "interval":
			v = Duration(&l.at.Interval)
		case "cost":
			v = Number(&l.at.Cost)
		default:
			return fmt.Errorf("%q is no limit: write bytes=, fields=, series=, interval= or cost=", name)
		}
		if err := v.Set(value); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if l.at.Bytes < 1 || l.at.Fields < 1 || l.at.Series < 1 || !(l.at.Cost > 0) {
		return errors.New("a limit must be more than 0")
	}
	return nil
}

func (l limits) String() string {
	return fmt.Sprintf("bytes=%s,fields=%d,series=%d,interval=%s,cost=%v", formatBytes(l.at.Bytes), l.at.Fields, l.at.Series, shortDuration(l.at.Interval), l.at.Cost)
}

// pairs are names and values, which may also be given several times.
type pairs struct{ at *map[string]string }

var labelName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_./-]{0,99}$`)

// maxPair bounds what each request to a server carries.
const (
	maxPairs      = 64
	maxPairLength = 256
)

func (p pairs) Set(text string) error {
	if *p.at == nil {
		*p.at = map[string]string{}
	}
	for _, item := range SplitList(text) {
		name, value, ok := strings.Cut(item, "=")
		if !ok || !labelName.MatchString(name) || len(value) > maxPairLength {
			return fmt.Errorf("write NAME=VALUE instead of %q, the name of letters, digits and . _ / -", item)
		}
		(*p.at)[name] = value
	}
	if len(*p.at) > maxPairs {
		return fmt.Errorf("%d labels are more than %d", len(*p.at), maxPairs)
	}
	return nil
}

func (p pairs) String() string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(*p.at)) {
		out = append(out, name+"="+(*p.at)[name])
	}
	return strings.Join(out, ",")
}

func (p pairs) Reset() { *p.at = nil }

// ParseDelivered reads a list that a server has delivered: a counters CSV, or a YAML
// configuration. That may have the list and its intervals only; bad names everything else
// that it has.
func ParseDelivered(data []byte, name string, isYAML bool, dialects ...string) (c *Content, bad []field.Problem, err error) {
	if !isYAML {
		return &Content{CSV: data, Name: name}, nil, nil
	}
	y, err := parseYAML(data, name, dialects...)
	if err != nil {
		return nil, nil, err
	}
	var root yaml.Node
	if err := yaml.Unmarshal(data, &root); err != nil {
		return nil, nil, err
	}
	for _, path := range [][]string{
		{"metrics", "file"}, {"metrics", "enableExporterMetrics"}, {"server"}, {"sources"}, {"collections", "sources"},
	} {
		for _, line := range linesOf(&root, path) {
			bad = append(bad, field.Problem{File: name, Line: line, Severity: field.Error, Message: strings.Join(path, ".") + ": a delivered list can set fields and intervals only"})
		}
	}
	return &Content{CSV: y.csv(), Name: name, YAML: y, yaml: data}, bad, nil
}

// linesOf returns where a key is, in each entry of lists on the way.
func linesOf(n *yaml.Node, path []string) (out []int) {
	switch n.Kind {
	case yaml.AliasNode:
		return linesOf(n.Alias, path)
	case yaml.DocumentNode, yaml.SequenceNode:
		for _, entry := range n.Content {
			out = append(out, linesOf(entry, path)...)
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			switch key := n.Content[i]; {
			case key.Value == "<<": // a merge
				out = append(out, linesOf(n.Content[i+1], path)...)
			case key.Value != path[0]:
			case len(path) == 1:
				out = append(out, key.Line)
			default:
				out = append(out, linesOf(n.Content[i+1], path[1:])...)
			}
		}
	}
	return out
}

// ApplyInterval gives the interval of all fields to those of a delivered list that have none
// and would have that of --collect-interval, which only the start of the exporter takes from
// a file.
func (y *YAML) ApplyInterval(list field.List) {
	if y == nil {
		return
	}
	ms, err := strconv.ParseInt(y.flags["collect-interval"], 10, 64)
	if err != nil {
		return // there is none
	}
	for i := range list.Fields {
		f := &list.Fields[i]
		if f.Interval == 0 && f.Type != field.Label && (f.Desc.Cost == field.EachTick || f.Desc.Event) {
			f.Interval = time.Duration(ms) * time.Millisecond
		}
	}
}
