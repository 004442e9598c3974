package server

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

// Options change how a Server listens and what it offers.
type Options struct {
	// Addresses to listen on, as net.Listen takes them: ":9400" is all
	// addresses of both IP versions, "[::1]:9400" one of IPv6, port 0 any free
	// port. None means ":9400".
	Addresses []string
	// SystemdSocket takes the listening sockets from systemd's socket
	// activation instead of Addresses.
	SystemdSocket bool
	// WebConfigFile is the exporter-toolkit file with TLS, basic auth and
	// further headers; "" means plain HTTP. It is read again for each TLS
	// handshake and request, so that certificates and users can change.
	WebConfigFile string

	ReadTimeout  time.Duration // for a request, and at most 5 s of it for the header; 0 means 10s
	WriteTimeout time.Duration // from the end of the header to the end of the answer; 0 means 30s
	IdleTimeout  time.Duration // of a kept-alive connection between requests; 0 means 120s
	DrainTimeout time.Duration // what Run gives requests under way when it ends; 0 means 5s

	MaxConnections       int // open connections, those that are being ended apart; 0 means 512
	MaxConcurrentScrapes int // scrapes at a time, more are answered 503; 0 means no limit

	// Status returns what /health and /readyz answer. nil means available and ready.
	Status func() Status
	// Reload reads the configuration again; its error is shown to the client.
	// It is called for one request at a time; its context ends after a minute
	// or when the server stops, not when the client goes away. nil forbids
	// /-/reload.
	Reload func(context.Context) error
	// Release releases a collector, or all if the name is empty, for a time: 0
	// means the usual one, a negative one until Resume. It returns when nothing is
	// held any more; its error says what still is. Its context ends after half a
	// minute. An error that wraps lists.ErrUnknownCollector is the client's mistake.
	// nil forbids /-/release and /-/resume.
	Release func(ctx context.Context, collector string, limit time.Duration) error
	// Resume ends a release.
	Resume func(collector string) error
	// PauseProfiling has profiling fields no longer read, for a time as in Release.
	// It returns when none is read any more. Its context ends after a minute. nil
	// forbids /-/profiling/pause and /-/profiling/resume.
	PauseProfiling func(ctx context.Context, limit time.Duration) error
	// ResumeProfiling ends a pause. Its context ends after a minute.
	ResumeProfiling func(context.Context) error
	// Routes are served in addition.
	Routes []Route
	// Pprof serves /debug/pprof/.
	Pprof bool

	Logger     *zap.Logger           // nil logs nothing
	Registerer prometheus.Registerer // for the server's own metrics; nil means none
}

// Route is a path that is served in addition to the server's own.
type Route struct {
	// Pattern is one of http.ServeMux, such as "GET /gpumetrics"; for a Command a path alone.
	Pattern string
	Handler http.Handler
	// Labels are what Handler sets the pattern of requests to; requests are counted by them. None:
	// by the path of Pattern.
	Labels []string
	// Close ends answers that last until the client leaves. The Server calls it when it stops. Nil:
	// there are none.
	Close func()
	// Command is run by POST and PUT in place of Handler, which is nil then.
	Command *Command
}

// Command changes something. As of /-/reload, pages of other sites cannot run it in a browser.
type Command struct {
	Verb, Done string // of answers: "record: …", "recording"
	// Run returns when it is done. Its context ends after half a minute or when the server stops,
	// not when the client goes away. Nil forbids the command.
	Run      func(context.Context) error
	Disabled string // the answer if Run is nil
}

// Page returns the routes of a page for browsers: / and all paths below /page/.
func Page(h http.Handler) []Route {
	return []Route{{Pattern: "GET /{$}", Handler: h}, {Pattern: "GET /page/", Handler: h}}
}

// path returns the path of the pattern.
func (r *Route) path() string {
	_, path, ok := strings.Cut(r.Pattern, " ")
	if !ok {
		path = r.Pattern
	}
	return strings.TrimSuffix(path, "{$}")
}

// Status is the state of what lies behind the server.
type Status struct {
	Available bool     // /metrics has a field list to serve (X-Registry-Available)
	Reloading bool     // a reload is under way (X-Reload-In-Progress)
	Unhealthy string   // reason for /health to answer 503; none means healthy
	NotReady  []string // reasons for /readyz to answer 503; none means ready
}

const (
	maxHeaderBytes    = 16 << 10 // net/http adds 4 KiB
	maxStreams        = 16       // requests at a time on one HTTP/2 connection
	readHeaderTimeout = 5 * time.Second
	reloadTimeout     = time.Minute // also for pausing profiling
	releaseTimeout    = 30 * time.Second
	maxProfile        = time.Minute            // of /debug/pprof
	drainWaitTimeout  = 500 * time.Millisecond // see Server.drain
)

func (o *Options) setDefaults() {
	if len(o.Addresses) == 0 {
		o.Addresses = []string{":9400"}
	}
	defaultTo(&o.ReadTimeout, 10*time.Second)
	defaultTo(&o.WriteTimeout, 30*time.Second)
	defaultTo(&o.IdleTimeout, 120*time.Second)
	defaultTo(&o.DrainTimeout, 5*time.Second)
	if o.MaxConnections <= 0 {
		o.MaxConnections = 512
	}
	if o.Status == nil {
		o.Status = func() Status { return Status{Available: true} }
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
}

func defaultTo(d *time.Duration, v time.Duration) {
	if *d <= 0 {
		*d = v
	}
}
