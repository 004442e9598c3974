package opamp

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/open-telemetry/opamp-go/protobufs"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/time/rate"
	"google.golang.org/protobuf/proto"

	"warpgauge/extensions/remote/transport"
	"warpgauge/pkg/lists"
)

// Options are how an Agent reaches its server.
type Options struct {
	URL       *url.URL          // of scheme http or https; without a path that is /v1/opamp
	Transport http.RoundTripper // adds credentials
	Interval  time.Duration     // between two polls, give or take a fifth
	MaxBytes  int64             // of a list
	Identity  Identity
	Node      Node
	Desk      Desk
	Ignored   *prometheus.CounterVec // offers that are ignored, by name; label: offer
	Logger    *zap.Logger
}

// Desk decides on the server's offers. Its methods log changes only.
type Desk interface {
	// Deliver returns when a list is in service or refused.
	Deliver(ctx context.Context, o *lists.Offer) *lists.Outcome
	Answered()             // the server has sent a good answer
	Unreachable(err error) // the server cannot be used
	Refused(err error)     // no list can be taken from an offer
}

// Times and rates. All bounds hold whatever the server sends.
const (
	spread      = 10 * time.Second // in which nodes that start together send their first message
	soon        = time.Second      // until a new status is sent
	earlyBurst  = 5                // messages before their time; then one per interval
	maxBackOff  = 5 * time.Minute
	retryFailed = 5 * time.Minute
	minMessage  = 4 << 20 // bytes that a message may have; more if a list may
)

// Agent reports to an OpAMP server and takes lists from it.
type Agent struct {
	o       Options
	log     *zap.Logger
	link    link
	origin  string
	started time.Time

	// What follows belongs to the goroutine of Run.
	id            uuid.UUID // a server may assign another one
	sequence      uint64
	server        uint64 // ServerCapabilities; 0: not known
	known         sums
	sampleSeconds float64
	named         map[string]bool // ignored offers that were logged

	poll     time.Time // when the next message is due
	sooner   *rate.Limiter
	failures int // in a row

	status  *protobufs.RemoteConfigStatus // UNSET: no list was offered
	last    *offer                        // the newest one
	waiting *offer                        // not delivered yet
	tried   time.Time                     // when a list was delivered
	busy    bool                          // Deliver runs
}

// New returns an Agent. Only Run connects.
func New(o Options) *Agent {
	u := *o.URL
	origin := transport.Origin("opamp+" + u.String())
	if u.Path == "" {
		u.Path = "/v1/opamp"
	}
	a := &Agent{
		o: o, log: o.Logger.Named("opamp"), origin: origin, started: time.Now(), id: o.Identity.InstanceID,
		status: &protobufs.RemoteConfigStatus{},
		named:  map[string]bool{},
		sooner: rate.NewLimiter(rate.Every(o.Interval), earlyBurst),
	}
	for _, name := range ignored {
		o.Ignored.WithLabelValues(name)
	}
	a.link = link{url: u.String(), client: &http.Client{Transport: o.Transport, CheckRedirect: refuseRedirect}, limit: max(minMessage, o.MaxBytes+minMessage/4)}
	return a
}

// Run asks the server until ctx ends. In addition to its own there is a goroutine while a list is delivered.
func (a *Agent) Run(ctx context.Context) error {
	results := make(chan func(), 1) // what became of a list
	defer func() {
		if a.busy {
			<-results // deliver ends with ctx
		}
	}()
	a.resume()
	a.poll = time.Now().Add(upTo(min(spread, a.o.Interval)))
	timer := time.NewTimer(time.Until(a.poll))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			a.leave(ctx)
			return nil
		case <-timer.C:
			a.exchange(ctx)
		case report := <-results:
			a.busy = false
			report()
		}
		if o := a.waiting; o != nil && !a.busy {
			a.waiting, a.busy, a.tried = nil, true, time.Now()
			go func() {
				out := a.o.Desk.Deliver(ctx, o.list)
				results <- func() { a.delivered(o, out) }
			}()
		}
		timer.Reset(time.Until(a.poll))
	}
}

// resume takes up what was applied before the exporter started.
func (a *Agent) resume() {
	e := a.o.Node.Effective()
	if e == nil || e.Origin != a.origin {
		return
	}
	if hash, err := hex.DecodeString(e.Revision); err == nil && len(hash) > 0 {
		a.last = &offer{hash: hash, sum: sha256.Sum256(e.Content)}
		a.status = applied(hash)
	}
}

// wake has the next message sent soon. A server that has failed is left alone until its time has come.
func (a *Agent) wake() {
	if at := time.Now().Add(soon); a.failures == 0 && at.Before(a.poll) && a.sooner.Allow() {
		a.poll = at
	}
}

// exchange sends a message and obeys the answer.
func (a *Agent) exchange(ctx context.Context) {
	m, sums := a.message()
	a.poll = time.Now().Add(transport.Jitter(a.o.Interval))
	b, err := proto.Marshal(m)
	if err != nil {
		a.fail(err)
		return
	}
	ectx, cancel := context.WithTimeout(ctx, exchangeLimit)
	answer, err := a.link.exchange(ectx, b, a.id.String())
	cancel()
	switch {
	case ctx.Err() != nil:
	case err != nil:
		a.fail(err)
		if e := (*transport.ServerError)(nil); errors.As(err, &e) && e.Code == http.StatusRequestEntityTooLarge {
			a.known = sums // the same message must not be sent again
		}
	default:
		a.sequence++
		a.known = sums
		a.receive(answer)
	}
}

// leave says goodbye to a server that answers.
func (a *Agent) leave(ctx context.Context) {
	defer a.link.client.CloseIdleConnections()
	if a.sequence == 0 || a.failures > 0 {
		return
	}
	m := a.envelope()
	m.AgentDisconnect = &protobufs.AgentDisconnect{}
	if b, err := proto.Marshal(m); err == nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewellLimit)
		defer cancel()
		_, _ = a.link.exchange(ctx, b, a.id.String()) // the exporter ends
	}
}

// fail records that the server cannot be used now, and asks it again later. The agent reports everything then, because the
// server may have missed or lost any of it.
func (a *Agent) fail(err error) {
	a.link.client.CloseIdleConnections()
	a.failures++
	a.known = sums{}
	most := max(maxBackOff, a.o.Interval)
	wait := min(a.o.Interval<<min(a.failures-1, 10), most)
	wait = wait/2 + upTo(wait/2)
	if e := (*transport.ServerError)(nil); errors.As(err, &e) {
		wait = max(wait, e.After+upTo(e.After/5))
	}
	a.poll = time.Now().Add(wait)
	a.o.Desk.Unreachable(err)
}

// receive obeys a message of the server, as far as it may.
func (a *Agent) receive(b []byte) {
	m, others, err := decode(b)
	if err != nil {
		a.fail(err)
		return
	}
	if id := m.GetInstanceUid(); len(id) > 0 && !bytes.Equal(id, a.id[:]) {
		a.fail(fmt.Errorf("the server's message is for another agent, %q", text(hex.EncodeToString(id), 64)))
		return
	}
	if e := m.GetErrorResponse(); e != nil {
		reported := a.known
		a.fail(reportedError(e))
		if e.GetType() == protobufs.ServerErrorResponseType_ServerErrorResponseType_BadRequest {
			a.known = reported // the same message must not be sent again
		}
		return
	}
	a.failures = 0
	a.o.Desk.Answered()
	for _, name := range others {
		a.o.Ignored.WithLabelValues(name).Inc()
		if !a.named[name] {
			a.named[name] = true
			a.log.Warn("the server offers what this agent does not take", zap.String("offer", name))
		}
	}
	if c := m.GetCapabilities(); c != 0 {
		a.server = c
	}
	if id, err := uuid.FromBytes(m.GetAgentIdentification().GetNewInstanceUid()); err == nil && id != uuid.Nil && id != a.id {
		a.id = id // until the exporter ends
		a.log.Info("the server assigns another instance id", zap.Stringer("id", id))
		a.wake()
	}
	if m.GetFlags()&uint64(protobufs.ServerToAgentFlags_ServerToAgentFlags_ReportFullState) != 0 {
		a.known = sums{}
		a.wake()
	}
	if c := m.GetRemoteConfig(); c != nil {
		a.offered(newOffer(c, a.origin))
	}
}

// reportedError returns the error in a server's message.
func reportedError(e *protobufs.ServerErrorResponse) error {
	return &transport.ServerError{
		Text:  fmt.Sprintf("the server reports an error: %s: %q", strings.TrimPrefix(e.GetType().String(), "ServerErrorResponseType_"), text(e.GetErrorMessage(), 256)),
		After: time.Duration(min(e.GetRetryInfo().GetRetryAfterNanoseconds(), uint64(transport.MaxRetryAfter))),
	}
}

// offered handles an offer, unless it is the last one again.
func (a *Agent) offered(o *offer) {
	if a.last != nil && bytes.Equal(o.hash, a.last.hash) {
		switch {
		case o.sum != a.last.sum:
			if o.err == nil {
				o.err = errors.New("the offer's config_hash came with another list before")
			}
			a.refuse(o)
			return
		case a.status.GetStatus() == protobufs.RemoteConfigStatuses_RemoteConfigStatuses_FAILED && o.list != nil && time.Since(a.tried) > retryFailed:
			// What it failed of may be over.
		default:
			a.known.status = [sha256.Size]byte{} // a server that offers it again does not know what became of it
			return
		}
	}
	a.last = o
	if o.list == nil {
		a.waiting = nil
		a.refuse(o)
		return
	}
	a.status = &protobufs.RemoteConfigStatus{LastRemoteConfigHash: o.hash, Status: protobufs.RemoteConfigStatuses_RemoteConfigStatuses_APPLYING}
	a.waiting = o
	a.wake()
}

// refuse reports an offer without a list that could be tried.
func (a *Agent) refuse(o *offer) {
	a.o.Desk.Refused(o.err)
	a.status = failed(o.hash, o.err.Error(), a.o.Node.Facts().ListHash)
	a.wake()
}

// delivered reports what became of a list, if it still is the newest one. Deliver has
// logged it.
func (a *Agent) delivered(o *offer, out *lists.Outcome) {
	if !bytes.Equal(o.hash, a.status.GetLastRemoteConfigHash()) {
		return
	}
	a.status = statusOf(o.hash, out)
	a.wake()
}

// upTo returns a random time, so that nodes do not ask at the same moment.
func upTo(d time.Duration) time.Duration {
	return rand.N(d + 1) //nolint:gosec // spreads load
}
