package remote

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"go.uber.org/zap"
)

// URLOptions are how a list is fetched from a web server.
type URLOptions struct {
	URL       *url.URL // http or https
	Transport *Transport
	Interval  time.Duration // between two requests, give or take
	Node      *Node
	MaxBytes  int64
	// Failed hears of a request that failed, Answered of one that did not.
	Failed   func(error)
	Answered func()
	Logger   *zap.Logger
}

// URL is a Source: a list on a web server.
type URL struct {
	o      URLOptions
	client *http.Client
}

// NewURL returns a Source that asks a web server.
func NewURL(o URLOptions) *URL {
	return &URL{o: o, client: &http.Client{Transport: o.Transport, CheckRedirect: Redirect}}
}

// Run implements Source.
func (u *URL) Run(ctx context.Context, _ Deliver) error {
	<-ctx.Done()
	return nil
}
