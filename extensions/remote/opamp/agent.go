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

	"warpgauge/extensions/remote/transport"
	"warpgauge/pkg/lists"
)

// Options configure an Agent.
type Options struct {
	URL       *url.URL          // scheme http or https; the default path is /v1/opamp
	Transport http.RoundTripper // adds credentials
	Interval  time.Duration     // between two polls, give or take a fifth
	MaxBytes  int64             // of a list
	Identity  Identity
	Node      Node
	Desk      Desk
	Ignored   *prometheus.CounterVec // ignored offers by name; label: offer
	Logger    *zap.Logger
}

// Desk decides on the server's offers. Its methods log only changes.
type Desk interface {
	// Deliver returns when the list is in service or refused.
	Deliver(ctx context.Context, o *lists.Offer) *lists.Outcome
	Answered()             // the server sent a valid answer
	Unreachable(err error) // the server failed
	Refused(err error)     // an offer has no usable list
}

// Times and limits. They hold whatever the server sends.
const (
	spread      = 10 * time.Second // random delay of the first message, because nodes can start together
	soon        = time.Second      // delay of a new status
	earlyBurst  = 5                // burst of early messages; then one per interval
	maxBackOff  = 5 * time.Minute
	retryFailed = 5 * time.Minute
	minMessage  = 4 << 20 // bytes of a message, more if a list may be larger
)

// Agent reports to an OpAMP server and applies lists from it.
type Agent struct {
	o       Options
	log     *zap.Logger
	url     string
	client  *http.Client
	origin  string
	started time.Time

	// Only Run's goroutine uses the following fields.
	id            uuid.UUID // the server may assign another one
	sequence      uint64
	known         *protobufs.AgentToServer // parts that the server has; later messages omit them
	sampleSeconds float64
	named         map[string]bool // ignored offers already logged

	poll     time.Time // time of the next message
	sooner   *rate.Limiter
	failures int // consecutive failures

	status     *protobufs.RemoteConfigStatus // UNSET until a list is offered
	last       *offer                        // the newest one
	waiting    *offer                        // not delivered yet
	delivering *offer                        // a Deliver call is running
	tried      time.Time                     // time of the last delivery
}

// New returns an Agent. Only Run connects.
func New(o Options) *Agent {
	u := *o.URL
	origin := transport.Origin("opamp+" + u.String())
	if u.Path == "" {
		u.Path = "/v1/opamp"
	}
	for _, name := range ignored {
		o.Ignored.WithLabelValues(name)
	}
	return &Agent{
		o: o, log: o.Logger.Named("opamp"), origin: origin, started: time.Now(), id: o.Identity.InstanceID,
		url: u.String(), client: &http.Client{Transport: o.Transport, CheckRedirect: func(*http.Request, []*http.Request) error {
			return errors.New("redirects are not followed, as the token is for one server only")
		}},
		known:  &protobufs.AgentToServer{},
		status: &protobufs.RemoteConfigStatus{},
		named:  map[string]bool{},
		sooner: rate.NewLimiter(rate.Every(o.Interval), earlyBurst),
	}
}

// Run polls the server until ctx ends. It starts one more goroutine while it delivers a list.
func (a *Agent) Run(ctx context.Context) error {
	outcomes := make(chan *lists.Outcome, 1)
	defer func() {
		if a.delivering != nil {
			<-outcomes // wait for the delivery, which ends with ctx
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
		case out := <-outcomes:
			a.delivered(out)
		}
		if o := a.waiting; o != nil && a.delivering == nil {
			a.waiting, a.delivering, a.tried = nil, o, time.Now()
			go func() { outcomes <- a.o.Desk.Deliver(ctx, o.list) }()
		}
		timer.Reset(time.Until(a.poll))
	}
}

// resume restores the status of the list that was applied before the exporter started.
func (a *Agent) resume() {
	e := a.o.Node.Effective()
	if hash, err := hex.DecodeString(e.Revision); err == nil && len(hash) > 0 && e.Origin == a.origin {
		a.last = &offer{hash: hash, sum: sha256.Sum256(e.Content)}
		a.status = applied(hash)
	}
}

// wake schedules the next message soon. After a failure it keeps the retry time.
func (a *Agent) wake() {
	if at := time.Now().Add(soon); a.failures == 0 && at.Before(a.poll) && a.sooner.Allow() {
		a.poll = at
	}
}

// exchange sends a message and applies the answer.
func (a *Agent) exchange(ctx context.Context) {
	changed, whole := a.message()
	a.poll = time.Now().Add(transport.Jitter(a.o.Interval))
	answer, err := a.send(ctx, changed, exchangeLimit)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		a.fail(err)
		if e := (*transport.ServerError)(nil); errors.As(err, &e) && e.Code == http.StatusRequestEntityTooLarge {
			a.known = whole // never send the same message again
		}
	default:
		a.sequence++
		a.known = whole
		a.receive(answer)
	}
}

// leave sends a goodbye if the server is reachable.
func (a *Agent) leave(ctx context.Context) {
	defer a.client.CloseIdleConnections()
	if a.sequence == 0 || a.failures > 0 {
		return
	}
	m := a.envelope()
	m.AgentDisconnect = &protobufs.AgentDisconnect{}
	_, _ = a.send(context.WithoutCancel(ctx), m, farewellLimit) // errors do not matter at exit
}

// fail records a failure of the server and schedules a retry. The next message has the full state, because the server may
// have missed or lost any part of it.
func (a *Agent) fail(err error) {
	a.client.CloseIdleConnections()
	a.failures++
	a.known = &protobufs.AgentToServer{}
	most := max(maxBackOff, a.o.Interval)
	wait := min(a.o.Interval<<min(a.failures-1, 10), most)
	wait = wait/2 + upTo(wait/2)
	if e := (*transport.ServerError)(nil); errors.As(err, &e) {
		wait = max(wait, e.After+upTo(e.After/5))
	}
	a.poll = time.Now().Add(wait)
	a.o.Desk.Unreachable(err)
}

// receive applies a server message within the agent's permissions.
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
		a.fail(&transport.ServerError{
			Text:  "the server reports an error: " + strings.TrimPrefix(e.GetType().String(), "ServerErrorResponseType_"),
			After: time.Duration(min(e.GetRetryInfo().GetRetryAfterNanoseconds(), uint64(transport.MaxRetryAfter))),
		})
		if e.GetType() == protobufs.ServerErrorResponseType_ServerErrorResponseType_BadRequest {
			a.known = reported // never send the same message again
		}
		return
	}
	a.failures = 0
	a.o.Desk.Answered()
	for _, name := range others {
		a.o.Ignored.WithLabelValues(name).Inc()
		if !a.named[name] {
			a.named[name] = true
			a.log.Warn("ignoring an unsupported offer of the server", zap.String("offer", name))
		}
	}
	if id, err := uuid.FromBytes(m.GetAgentIdentification().GetNewInstanceUid()); err == nil && id != uuid.Nil && id != a.id {
		a.id = id // valid until the exporter ends
		a.log.Info("the server assigns another instance id", zap.Stringer("id", id))
		a.wake()
	}
	if m.GetFlags()&uint64(protobufs.ServerToAgentFlags_ServerToAgentFlags_ReportFullState) != 0 {
		a.known = &protobufs.AgentToServer{}
		a.wake()
	}
	if c := m.GetRemoteConfig(); c != nil {
		a.offered(newOffer(c, a.origin))
	}
}

// offered handles an offer, unless it repeats the last one.
func (a *Agent) offered(o *offer) {
	if a.last != nil && bytes.Equal(o.hash, a.last.hash) {
		if o.sum != a.last.sum {
			if o.err == nil {
				o.err = errors.New("the offer's config_hash came with another list before")
			}
			a.refuse(o)
			return
		}
		// The cause of a failure may be over.
		if a.status.GetStatus() != protobufs.RemoteConfigStatuses_RemoteConfigStatuses_FAILED || o.list == nil || time.Since(a.tried) <= retryFailed {
			a.known.RemoteConfigStatus = nil // a server that repeats the offer does not know its status
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

// refuse reports an offer without a usable list.
func (a *Agent) refuse(o *offer) {
	a.o.Desk.Refused(o.err)
	a.status = failed(o.hash, o.err.Error(), a.o.Node.Facts().ListHash)
	a.wake()
}

// delivered reports the outcome of a list if no newer offer has come. Deliver has logged it.
func (a *Agent) delivered(out *lists.Outcome) {
	hash := a.delivering.hash
	a.delivering = nil
	if bytes.Equal(hash, a.status.GetLastRemoteConfigHash()) {
		a.status = statusOf(hash, out)
		a.wake()
	}
}

// upTo returns a random duration, so that nodes do not poll at the same moment.
func upTo(d time.Duration) time.Duration {
	return rand.N(d + 1) //nolint:gosec // spreads load
}
