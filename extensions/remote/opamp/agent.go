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
	URL       *url.URL          // of scheme http, https, ws or wss; without a path that is /v1/opamp
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
	spread        = 10 * time.Second // in which nodes that start together send their first message
	soon          = time.Second      // until a new status is sent
	changeDelay   = 5 * time.Second  // until a changed health is sent
	earlyBurst    = 5                // messages before their time; then one per interval
	maxBackOff    = 5 * time.Minute
	maxUnanswered = 3 // messages on a WebSocket
	// Lists beyond a burst wait, and the newest one is delivered: so Deliver, which refuses the
	// eleventh change in ten minutes, has no reason to.
	changesEvery = 2 * time.Minute
	changesBurst = 5
	retryFailed  = 5 * time.Minute
	minMessage   = 4 << 20 // bytes that a message may have; more if a list may
)

// Agent reports to an OpAMP server and takes lists from it.
type Agent struct {
	o       Options
	log     *zap.Logger
	link    link
	origin  string
	started time.Time
	warn    rate.Sometimes // about offers

	// What follows belongs to the goroutine of Run.
	id            uuid.UUID // a server may assign another one
	sequence      uint64
	server        uint64 // ServerCapabilities; 0: not known
	known         sums
	sampleSeconds float64
	named         map[string]bool // ignored offers that were logged

	poll       time.Time // when the next message is due
	early      time.Time // when a message is sent if there is something to say; zero: never
	sooner     *rate.Limiter
	failures   int       // in a row
	failed     time.Time // the last one
	unanswered int
	changed    <-chan struct{}

	status  *protobufs.RemoteConfigStatus // UNSET: no list was offered
	last    *offer                        // the newest one
	waiting *offer                        // not delivered yet
	tried   time.Time                     // when a list was delivered
	busy    bool                          // Deliver runs
	due     <-chan time.Time              // when waiting may be delivered; nil: nothing waits
	changes *rate.Limiter
}

// New returns an Agent. Only Run connects.
func New(o Options) (*Agent, error) {
	id, err := uuid.Parse(o.Identity.InstanceID)
	if err != nil {
		return nil, fmt.Errorf("instance id: %w", err)
	}
	u := *o.URL
	origin := transport.Origin("opamp+" + u.String())
	if u.Path == "" {
		u.Path = "/v1/opamp"
	}
	a := &Agent{
		o: o, log: o.Logger.Named("opamp"), origin: origin, started: time.Now(), id: id,
		status: &protobufs.RemoteConfigStatus{},
		warn:   rate.Sometimes{First: 10, Interval: time.Minute}, named: map[string]bool{},
		sooner:  rate.NewLimiter(rate.Every(o.Interval), earlyBurst),
		changes: rate.NewLimiter(rate.Every(changesEvery), changesBurst),
	}
	for _, name := range ignored {
		o.Ignored.WithLabelValues(name)
	}
	limit := max(minMessage, o.MaxBytes+minMessage/4)
	client := direct(o.Transport)
	if strings.HasPrefix(u.Scheme, "ws") {
		a.link = &socket{url: u.String(), client: client, limit: limit, in: make(chan reception)}
	} else {
		a.link = &plain{url: u.String(), client: client, limit: limit}
	}
	return a, nil
}

// Run asks the server until ctx ends. In addition to its own there is a goroutine while a list is delivered,
// and one that reads a WebSocket.
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
			a.tick(ctx)
		case <-a.changed:
			a.changed = nil
			a.wake(changeDelay)
		case r := <-a.link.received():
			if r.err != nil {
				a.fail(r.err)
			} else {
				a.receive(r.message)
			}
		case <-a.due:
			o := a.waiting
			a.due, a.waiting, a.busy, a.tried = nil, nil, true, time.Now()
			go func() {
				out := a.o.Desk.Deliver(ctx, o.list)
				results <- func() { a.delivered(o, out) }
			}()
		case report := <-results:
			a.busy = false
			report()
			a.schedule()
		}
		next := a.poll
		if !a.early.IsZero() && a.early.Before(next) {
			next = a.early
		}
		timer.Reset(time.Until(next))
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

// wake has a message sent before its time, if there is something to say then. A server that
// has failed is left alone until its time has come.
func (a *Agent) wake(d time.Duration) {
	at := time.Now().Add(d)
	if a.failures == 0 && (a.early.IsZero() || at.Before(a.early)) {
		a.early = at
	}
}

// tick sends a message if it is time.
func (a *Agent) tick(ctx context.Context) {
	now := time.Now()
	a.early = time.Time{}
	a.changed = a.o.Node.Changed() // before the status is taken
	if !a.link.up() {
		a.known, a.unanswered = sums{}, 0
	}
	m, sums := a.message()
	if now.Before(a.poll) && (sums == a.known || !a.sooner.AllowN(now, 1)) {
		return
	}
	if a.unanswered >= maxUnanswered {
		a.fail(fmt.Errorf("the server has not answered %d messages", a.unanswered))
		return
	}
	a.poll = now.Add(transport.Jitter(a.o.Interval))
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
		if a.unanswered++; answer != nil {
			a.receive(answer)
		}
	}
}

// leave says goodbye to a server that answers.
func (a *Agent) leave(ctx context.Context) {
	answers := a.sequence > 0 && a.failures == 0 && a.link.up()
	if answers {
		m := a.envelope()
		m.AgentDisconnect = &protobufs.AgentDisconnect{}
		if b, err := proto.Marshal(m); err == nil {
			lctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewellLimit)
			_, _ = a.link.exchange(lctx, b, a.id.String())
			cancel()
		}
	}
	a.link.close(answers)
}

// fail records that the server cannot be used now, and asks it again later. The agent reports everything then, because the
// server may have missed or lost any of it.
func (a *Agent) fail(err error) {
	a.link.close(false)
	a.failures++
	a.known, a.early, a.unanswered = sums{}, time.Time{}, 0
	most := max(maxBackOff, a.o.Interval)
	wait := min(a.o.Interval<<min(a.failures-1, 10), most)
	wait = wait/2 + upTo(wait/2)
	if errors.Is(err, errClosed) && time.Since(a.failed) > 2*a.o.Interval {
		wait = upTo(min(spread, a.o.Interval)) // a server that has restarted gets all nodes back in this time
	}
	if e := (*transport.ServerError)(nil); errors.As(err, &e) {
		wait = max(wait, e.After+upTo(e.After/5))
	}
	a.failed = time.Now()
	a.poll = a.failed.Add(wait)
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
	a.failures, a.unanswered = 0, 0
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
		a.warn.Do(func() { a.log.Info("the server assigns another instance id", zap.Stringer("id", id)) })
		a.wake(soon)
	}
	if m.GetFlags()&uint64(protobufs.ServerToAgentFlags_ServerToAgentFlags_ReportFullState) != 0 {
		a.known = sums{}
		a.wake(soon)
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
		a.waiting, a.due = nil, nil
		a.refuse(o)
		return
	}
	a.status = &protobufs.RemoteConfigStatus{LastRemoteConfigHash: o.hash, Status: protobufs.RemoteConfigStatuses_RemoteConfigStatuses_APPLYING}
	a.waiting = o
	a.schedule()
	a.wake(soon)
}

// schedule has the offer that waits delivered as soon as changes may be made.
func (a *Agent) schedule() {
	if a.waiting == nil || a.busy || a.due != nil {
		return
	}
	d := a.changes.Reserve().Delay()
	if d > soon {
		a.warn.Do(func() {
			a.log.Warn("the server changes the list too often, its newest one waits", zap.Duration("for", d))
		})
	}
	a.due = time.After(d)
}

// refuse reports an offer without a list that could be tried.
func (a *Agent) refuse(o *offer) {
	a.o.Desk.Refused(o.err)
	a.status = failed(o.hash, o.err.Error(), a.o.Node.Facts().ListHash)
	a.wake(soon)
}

// delivered reports what became of a list, if it still is the newest one. Deliver has
// logged it.
func (a *Agent) delivered(o *offer, out *lists.Outcome) {
	if !bytes.Equal(o.hash, a.status.GetLastRemoteConfigHash()) {
		return
	}
	a.status = statusOf(o.hash, out)
	a.wake(soon)
}

// upTo returns a random time, so that nodes do not ask at the same moment.
func upTo(d time.Duration) time.Duration {
	return rand.N(d + 1) //nolint:gosec // spreads load
}
