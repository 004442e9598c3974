package server

import (
	"cmp"
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

// Options configure a Server's listeners and endpoints.
type Options struct {
	// Address to listen on, in net.Listen's form: ":9400" means all addresses of both IP versions, "[::1]:9400" one IPv6
	// address, port 0 any free port.
	Address string
	// SystemdSocket uses the listening sockets of systemd's socket activation instead of Address.
	SystemdSocket bool
	// WebConfigFile is the exporter-toolkit file with TLS, basic auth and further headers; "" means plain HTTP. It is
	// read every few seconds, so that certificates and users can change.
	WebConfigFile string
	// Store keeps the addresses of right passwords across restarts; nil: they are forgotten.
	Store Store

	ReadTimeout  time.Duration // for a request, and at most 5 s of it for the header; 0 means 10s
	WriteTimeout time.Duration // from the end of the header to the end of the answer; 0 means 30s
	DrainTimeout time.Duration // time that Run gives running requests when it ends; 0 means 5s

	MaxConnections       int // open connections, not counting evicted ones; 0 means 512
	MaxConcurrentScrapes int // concurrent scrapes; further ones get 503; 0 means no limit

	// Status returns the state for /health and /readyz. nil means available and ready.
	Status  func() Status
	Desk    Desk // runs commands; nil if neither Reload nor Release is set
	Reload  bool // serve /-/reload
	Release bool // serve /-/release, /-/resume and /-/profiling/
	// Routes are additional routes.
	Routes []Route
	// Pprof serves /debug/pprof/.
	Pprof bool

	Logger     *zap.Logger           // may be nil
	Registerer prometheus.Registerer // for the server's own metrics; may be nil
}

// Store has files that outlive the process, as file.Private has.
type Store interface {
	Read(name string, limit int64) ([]byte, error)
	Write(name string, text []byte) error
}

// Desk changes what is read: *lists.Desk. A command's context ends when its time is over or the server stops, but not
// when the client leaves. A limit of 0 means the default; a negative limit lasts until the command that resumes. cause
// names the requester.
type Desk interface {
	Reload(ctx context.Context, cause string) error // one with a method Waiting does not count as failure
	// Release and Resume apply to all collectors if the name is empty. An error that is an fs.ErrNotExist is the
	// client's mistake.
	Release(ctx context.Context, collector string, limit time.Duration, cause string) error
	Resume(collector, cause string) error
	PauseProfiling(ctx context.Context, limit time.Duration, cause string) error
	ResumeProfiling(ctx context.Context, cause string) error
}

// Route is an additional path.
type Route struct {
	// Pattern is a pattern of http.ServeMux, such as "GET /gpumetrics"; for a Command only a path.
	Pattern string
	Handler http.Handler
	// Labels are the patterns that Handler sets on requests, for counting. Without Labels, Pattern's path counts requests.
	Labels []string
	// Close ends answers that otherwise last until the client leaves. The Server calls it when it stops. It may be nil.
	Close func()
	// Command runs on POST and PUT instead of Handler, which is nil then.
	Command *Command
}

// Command changes something. As for /-/reload, pages of other sites cannot run it in a browser.
type Command struct {
	Verb, Done string // for answers: "record: …", "recording"
	// Run returns when the change is done. Its context ends after half a minute or when the server stops, but not when
	// the client leaves. Nil forbids the command.
	Run      func(context.Context) error
	Disabled string // the answer if Run is nil
}

// Page returns the routes of a page for browsers: / and all paths below /page/.
func Page(h http.Handler) []Route {
	return []Route{{Pattern: "GET /{$}", Handler: h}, {Pattern: "GET /page/", Handler: h}}
}

func (r *Route) path() string {
	return strings.TrimSuffix(r.Pattern[strings.Index(r.Pattern, " ")+1:], "{$}")
}

// Status is the state of the exporter behind the server.
type Status struct {
	Available bool     // /metrics has a field list to serve (X-Registry-Available)
	Reloading bool     // a reload is running (X-Reload-In-Progress)
	Unhealthy string   // reason for /health to answer 503; empty means healthy
	NotReady  []string // reasons for /readyz to answer 503; empty means ready
}

const (
	maxHeaderBytes    = 16 << 10 // net/http adds 4 KiB
	maxStreams        = 16       // concurrent requests on one HTTP/2 connection
	readHeaderTimeout = 5 * time.Second
	idleTimeout       = 2 * time.Minute
	reloadTimeout     = time.Minute // also for pausing profiling
	releaseTimeout    = 30 * time.Second
	maxProfile        = time.Minute            // of /debug/pprof
	drainWaitTimeout  = 500 * time.Millisecond // see Server.drain
)

func (o *Options) setDefaults() {
	o.ReadTimeout = cmp.Or(o.ReadTimeout, 10*time.Second)
	o.WriteTimeout = cmp.Or(o.WriteTimeout, 30*time.Second)
	o.DrainTimeout = cmp.Or(o.DrainTimeout, 5*time.Second)
	o.MaxConnections = cmp.Or(o.MaxConnections, 512)
	if o.Status == nil {
		o.Status = func() Status { return Status{Available: true} }
	}
	o.Logger = cmp.Or(o.Logger, zap.NewNop())
}
