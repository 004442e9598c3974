package remote

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"warpgauge/extensions/remote/transport"
	"warpgauge/pkg/config"
)

// Settings holds the extension's flags.
type Settings struct {
	Mode       string // ModeOff, ModeReport, ModeApply
	URL        string
	Interval   time.Duration
	Directory  string   // "" saves nothing
	Allow      []string // AllowProfiling, AllowChangingLabels, AllowOtherOrigins
	Limits     Limits
	NodeLabels map[string]string
	transport.Credentials
}

// Limits bound a server's list.
type Limits struct {
	Bytes    int64
	Fields   int
	Series   int           // on this node's page
	Interval time.Duration // the shortest
	Cost     float64       // seconds in vendors' libraries per second, of all sources
	Lost     float64       // share of the fields and series in service that a list may take away
}

const flagMode = "remote-config"

// Values of Settings.Mode and Settings.Allow.
const (
	ModeOff             = "off"
	ModeReport          = "report"
	ModeApply           = "apply"
	AllowProfiling      = "profiling"
	AllowChangingLabels = "changing-labels"
	AllowOtherOrigins   = "other-origins"
)

func defaults() Settings {
	return Settings{
		Mode: ModeOff, Interval: 30 * time.Second,
		Limits: Limits{Bytes: 1 << 20, Fields: 500, Series: 50000, Interval: 100 * time.Millisecond, Cost: 0.5, Lost: 0.5},
	}
}

// Wanted reports whether a server is configured.
func (s *Settings) Wanted() bool { return s.Mode != ModeOff }

// minInterval prevents a mistyped interval from flooding the server.
const minInterval = time.Second

func (s *Settings) check(*config.Config) error {
	if !s.Wanted() {
		return nil
	}
	errs := []error{s.validateURL(), config.AtLeast("remote-interval", s.Interval, minInterval)}
	if (s.CertFile == "") != (s.KeyFile == "") {
		errs = append(errs, errors.New("--remote-cert-file and --remote-key-file belong together: set both or none"))
	}
	if s.Directory != "" && !filepath.IsAbs(s.Directory) {
		errs = append(errs, fmt.Errorf("--remote-directory is %q: write an absolute path", s.Directory))
	}
	for _, class := range s.Allow {
		if class != AllowProfiling && class != AllowChangingLabels && class != AllowOtherOrigins {
			errs = append(errs, fmt.Errorf("--remote-allow has %q: write %s, %s or %s", class, AllowProfiling, AllowChangingLabels, AllowOtherOrigins))
		}
	}
	return errors.Join(errs...)
}

var schemes = []string{"http", "https", "opamp+http", "opamp+https"}

func (s *Settings) validateURL() error {
	u, err := url.Parse(s.URL)
	switch {
	case s.URL == "":
		return fmt.Errorf("--%s=%s without --remote-url: name the server", flagMode, s.Mode)
	case err != nil:
		return errors.New("--remote-url cannot be read: write https://HOST/PATH") // url.Error quotes the URL, which can have a password
	case !slices.Contains(schemes, u.Scheme) || u.Host == "":
		return fmt.Errorf("--remote-url is %q: write a host and one of the schemes %s", u.Redacted(), strings.Join(schemes, ", "))
	case s.TokenFile != "" && strings.HasSuffix(u.Scheme, "http") && !isLoopback(u.Hostname()):
		return fmt.Errorf("--remote-token-file with a %s URL: everyone on the way could read the token; use TLS", u.Scheme)
	}
	return nil
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// Flags adds the extension's flags. Child processes do not get them, because a URL can have a password.
func (s *Settings) Flags(set *config.Set) {
	flag := func(name, metavar string, v config.Value, usage string) config.Flag {
		return config.Flag{Name: name, Group: "Field lists from a server", Value: v, Metavar: metavar, Needs: flagMode, Usage: usage}
	}
	mode := flag(flagMode, "off|report|apply", config.OneOf(&s.Mode, ModeOff, ModeReport, ModeApply),
		"What to do with the field list of --remote-url. apply: check it against the guard and put it into service; report: check and compare it, and change nothing; off: ask no server.")
	mode.Needs = ""
	ca := flag("remote-ca-file", "FILE", config.Text(&s.CAFile),
		"PEM file of certificate authorities; one of them must have signed the server's certificate. Read again when it changes.")
	ca.ShownDefault = "the system's"
	set.Add(config.Section{Origin: config.Own, ParentOnly: true, Check: s.check, Flags: []config.Flag{
		mode,
		flag("remote-url", "URL", config.Text(&s.URL),
			"Address of the list: http:// or https:// for a file on a web server, opamp+http:// or opamp+https:// for an OpAMP server."),
		flag("remote-interval", "DURATION", config.Duration(&s.Interval),
			"Time between two requests to the server, give or take a fifth. After failures it grows to 5 minutes, unless it is longer already."),
		flag("remote-directory", "DIR", config.Text(&s.Directory),
			"Directory that keeps the server's last good list, for a start without the server. Unset: keep none; the local list serves until the server answers."),
		flag("remote-allow", "CLASS,…", config.List(&s.Allow),
			"What a server may do although it is refused by default. profiling: ask for DCGM_FI_PROF_…, whose hardware only one program at a time can use; changing-labels: ask for labels that make new series each time their value changes; other-origins: redirect to another scheme, host or port."),
		flag("remote-limit", "NAME=VALUE,…", limits{&s.Limits},
			"Limits for the server's lists. bytes: size of the list; fields: their number; series: on this node's page; interval: the shortest allowed; cost: seconds in vendors' libraries per second, all devices together; lost: the share of the fields and of the series in service that a list may take away, at most 1."),
		flag("remote-token-file", "FILE", config.Text(&s.TokenFile),
			"File with a bearer token for the server, sent only over TLS or to this machine. The exporter reads it again for each request."),
		ca,
		flag("remote-cert-file", "FILE", config.Text(&s.CertFile),
			"This node's certificate (PEM) for the server. Read again when it changes."),
		flag("remote-key-file", "FILE", config.Text(&s.KeyFile),
			"The private key (PEM) of --remote-cert-file."),
		flag("node-label", "NAME=VALUE,…", pairs{&s.NodeLabels},
			"Labels by which an OpAMP server chooses this node's list. They are not on the page."),
	}})
}

// limits implements the value of --remote-limit: each given name changes its limit.
type limits struct{ at *Limits }

func (l limits) Set(text string) error {
	values := map[string]interface{ Set(string) error }{
		"bytes": config.Bytes(&l.at.Bytes), "fields": config.Int(&l.at.Fields), "series": config.Int(&l.at.Series),
		"interval": config.Duration(&l.at.Interval), "cost": config.Number(&l.at.Cost), "lost": config.Number(&l.at.Lost),
	}
	for _, item := range config.SplitList(text) {
		name, value, _ := strings.Cut(item, "=")
		v, known := values[name]
		if !known {
			return fmt.Errorf("unknown limit %q: write bytes=, fields=, series=, interval=, cost= or lost=", name)
		}
		if err := v.Set(value); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if l.at.Bytes < 1 || l.at.Fields < 1 || l.at.Series < 1 || !(l.at.Cost > 0) || !(l.at.Lost > 0) {
		return errors.New("a limit must be more than 0")
	}
	return nil
}

func (l limits) String() string {
	return fmt.Sprintf("bytes=%s,fields=%d,series=%d,interval=%s,cost=%v,lost=%v", config.Bytes(&l.at.Bytes), l.at.Fields, l.at.Series, config.Duration(&l.at.Interval), l.at.Cost, l.at.Lost)
}

// pairs implements a flag with names and values, which can be repeated.
type pairs struct{ at *map[string]string }

var labelName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_./-]{0,99}$`)

// maxPair bounds the labels, because every request carries them.
const (
	maxPairs      = 64
	maxPairLength = 256
)

func (p pairs) Set(text string) error {
	if *p.at == nil {
		*p.at = map[string]string{}
	}
	for _, item := range config.SplitList(text) {
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
