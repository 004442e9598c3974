// Package exporter joins the core's packages into one program: collectors' supervisors, owners of devices, pages, HTTP.
// A program only supplies a table of vendors and a table of extensions. The package starts no goroutine before its
// stages run; they end in the reverse order.
//
// An Extension is a capability in addition to the page, such as health verdicts. It is a folder with its flags,
// goroutines, routes and tests, uses the core through Core, and never imports another extension. An extension with
// further needs implements Reader, ProcessViewer, Commander or Guard, interfaces of one method.
package exporter

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/urfave/cli/v3"
	"go.uber.org/zap"

	"warpgauge/pkg/config"
	"warpgauge/pkg/events"
	"warpgauge/pkg/exposition"
	"warpgauge/pkg/field"
	"warpgauge/pkg/lists"
	"warpgauge/pkg/owner"
	"warpgauge/pkg/rows"
	"warpgauge/pkg/server"
	"warpgauge/pkg/view"
)

// Extension is a capability that is built into the program by one line of its table.
type Extension interface {
	// Flags adds the extension's rows to the flag table. Each Set is parsed once.
	Flags(*config.Set)
	// Start returns the extension's stages and HTTP routes. It may open sockets, so that configuration errors
	// appear before anything runs. It starts no goroutine.
	Start(Core) ([]Stage, []Route, error)
}

// Reader is an Extension that needs readings which the field list may lack.
type Reader interface {
	// Readings returns the readings that it needs in addition to a list. It is called after the flags were checked, in the exporter
	// and in the child processes that run collectors.
	Readings(*config.Config, field.List) []field.Reading
}

// ProcessViewer is an Extension that shows the processes on devices.
type ProcessViewer interface {
	// ViewsProcesses reports whether the exporter must be able to read processes.
	ViewsProcesses() bool
}

// Commander is an Extension with its own commands.
type Commander interface {
	Commands(*Program) []*cli.Command
}

// Guard is an Extension that can refuse a server's list.
type Guard interface {
	// ParseGuarded parses a list from a server. refused returns the guard's objections for the devices of a View; its
	// error means that the list cannot be applied.
	ParseGuarded(in *config.Content, files *lists.Files) (p *lists.Parsed, refused func(*view.View) ([]field.Problem, error))
}

// Stage is a part of the exporter that runs until its context ends.
type Stage struct {
	Name  string
	Run   func(context.Context) error
	Grace time.Duration // the exporter waits at least this long for the stage's end; 0 means ShortGrace
}

// Route is a path that HTTP serves.
type Route = server.Route

// Core is the exporter as extensions see it.
type Core struct {
	Config   *config.Config
	Lookup   func(name string) (string, bool) // reads the environment
	Hostname string                           // value of the hostname label; empty: no label
	Version  string

	Board    *view.Board   // sources, devices, columns
	Engine   *Engine       // states of collectors and their devices
	States   *States       // when each state began
	Rows     *rows.Reader  // every row of every ring, once
	Past     *rows.Past    // recent samples, if an extension keeps them
	Events   *events.Bus   // events of devices, collectors and lists
	Verdicts *events.Board // empty until an extension publishes verdicts
	Owners   *owner.Keeper // users of devices; nil: owners are off
	Lists    *lists.Desk   // the list in service, and proposed lists
	Page     Page
	NotReady func() []string // reasons for /readyz to answer 503; empty: ready
	Kept     *server.Store   // the server's files, if an extension with a directory sets it before the server is made

	Registry *prometheus.Registry // own metrics; extensions register in Start
	Log      *zap.Logger
}

// Page is the page of metrics. Only stages and handlers may call its methods, because extensions start before
// the page exists.
type Page interface {
	Counts() []exposition.Count // series that count events
	Sync(now time.Time)         // brings the layout up to date
	Series() int                // as of the last Sync
	Scrapes() uint64            // pages that scrapers were given
}
