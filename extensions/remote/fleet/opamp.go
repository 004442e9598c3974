package fleet

import (
	"compress/gzip"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/open-telemetry/opamp-go/protobufs"
	"github.com/open-telemetry/opamp-go/server"
	"github.com/open-telemetry/opamp-go/server/types"
	"golang.org/x/net/netutil"
)

// OpAMPPath is where agents report.
const OpAMPPath = "/v1/opamp"

// Bounds of an agent's connection.
const (
	maxMessage      = 512 << 10 // after decompression
	maxBetween      = maxMessage + 64<<10
	messageWithin   = 10 * time.Second // to send or take one
	idleAgent       = 5 * time.Minute  // of a WebSocket; agents send something every 30 s
	retryAfter      = 30 * time.Second
	maxHeaderBytes  = 16 << 10
	maxHTTPRequests = 256 // at once, so their bodies take at most 128 MiB; others wait
	slotWithin      = 5 * time.Second
)

// Reasons of refusals.
const (
	refusedLogin   = "login"
	refusedMessage = "message" // no OpAMP message, too large, no uid
	refusedFull    = "full"
	refusedBusy    = "busy"
)

func (s *Server) refuse(reason string) { s.totals.refused.WithLabelValues(reason).Inc() }

// agents returns the server for agents, on a listener of limit.
func (s *Server) agents(login *Login) (*http.Server, error) {
	library := server.New(nil)
	handler, connContext, err := library.Attach(server.Settings{Callbacks: types.Callbacks{OnConnecting: func(r *http.Request) types.ConnectionResponse {
		return types.ConnectionResponse{Accept: true, ConnectionCallbacks: s.callbacks(r)}
	}}})
	if err != nil {
		return nil, err
	}
	slots := make(chan struct{}, maxHTTPRequests)
	mux := http.NewServeMux()
	mux.HandleFunc(OpAMPPath, func(w http.ResponseWriter, r *http.Request) {
		if !login.Allows(r) {
			s.refuse(refusedLogin)
			http.Error(w, "a bearer token is needed", http.StatusUnauthorized)
			return
		}
		wait, cancel := context.WithTimeout(r.Context(), slotWithin)
		defer cancel()
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		case <-wait.Done():
			s.refuse(refusedBusy)
			w.Header().Set("Retry-After", "30")
			http.Error(w, "too many requests at once", http.StatusServiceUnavailable)
			return
		}
		if err := bound(w, r); err != nil {
			s.refuse(refusedMessage)
			http.Error(w, "no gzip", http.StatusBadRequest)
			return
		}
		handler(w, r)
	})
	return &http.Server{
		Handler: mux, ConnContext: connContext, MaxHeaderBytes: maxHeaderBytes,
		ReadHeaderTimeout: messageWithin, ReadTimeout: messageWithin, WriteTimeout: 2 * messageWithin, IdleTimeout: 2 * time.Minute,
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){}, // WebSockets need HTTP/1
		ErrorLog:     httpErrors(s.o.Log),
	}, nil
}

// bound limits a body before the library reads all of it: packed and unpacked.
func bound(w http.ResponseWriter, r *http.Request) error {
	r.Body = http.MaxBytesReader(w, r.Body, maxMessage)
	if r.Header.Get("Content-Encoding") != "gzip" {
		return nil
	}
	packed, err := gzip.NewReader(r.Body)
	if err != nil {
		return err
	}
	r.Header.Del("Content-Encoding")
	r.Body = http.MaxBytesReader(w, struct {
		io.Reader
		io.Closer
	}{packed, r.Body}, maxMessage)
	return nil
}

// callbacks handle one request or WebSocket.
func (s *Server) callbacks(r *http.Request) types.ConnectionCallbacks {
	plain := r.Header.Get("Content-Type") == "application/x-protobuf" // as the library decides
	var uid UID                                                       // of the WebSocket's agent
	return types.ConnectionCallbacks{
		OnConnected: func(_ context.Context, conn types.Connection) {
			if l := limitedOf(conn.Connection()); l != nil && !plain {
				l.begin()
			}
		},
		OnMessage: func(ctx context.Context, conn types.Connection, m *protobufs.AgentToServer) *protobufs.ServerToAgent {
			if plain {
				return s.message(ctx, newReport(m, nil))
			}
			if l := limitedOf(conn.Connection()); l != nil {
				l.message()
			}
			report := newReport(m, conn)
			if report != nil {
				uid = report.uid // the last one, if the server gives it another
			}
			return s.message(ctx, report)
		},
		OnConnectionClose: func(conn types.Connection) {
			if !plain && uid != (UID{}) {
				_ = s.do(context.Background(), func(c *core) { c.closed(uid, conn) }) // the server ends
			}
		},
		OnReadMessageError: func(conn types.Connection, _ int, _ []byte, _ error) {
			s.refuse(refusedMessage)
			_ = conn.Disconnect() // garbage has no end, so no message can follow it
		},
	}
}

// message answers one.
func (s *Server) message(ctx context.Context, r *report) *protobufs.ServerToAgent {
	if r == nil {
		s.refuse(refusedMessage)
		return &protobufs.ServerToAgent{ErrorResponse: &protobufs.ServerErrorResponse{
			Type: protobufs.ServerErrorResponseType_ServerErrorResponseType_BadRequest, ErrorMessage: "an instance uid has 16 bytes, not all of them zero",
		}}
	}
	out, err := ask(ctx, s, func(c *core) *protobufs.ServerToAgent { return c.report(r, time.Now()) })
	if err != nil {
		s.refuse(refusedBusy)
		return unable(err)
	}
	out.Capabilities = uint64(protobufs.ServerCapabilities_ServerCapabilities_AcceptsStatus |
		protobufs.ServerCapabilities_ServerCapabilities_OffersRemoteConfig | protobufs.ServerCapabilities_ServerCapabilities_AcceptsEffectiveConfig)
	return out
}

// unable asks an agent to come back later.
func unable(err error) *protobufs.ServerToAgent {
	return &protobufs.ServerToAgent{ErrorResponse: &protobufs.ServerErrorResponse{
		Type: protobufs.ServerErrorResponseType_ServerErrorResponseType_Unavailable, ErrorMessage: err.Error(),
		Details: &protobufs.ServerErrorResponse_RetryInfo{RetryInfo: &protobufs.RetryInfo{RetryAfterNanoseconds: uint64(retryAfter)}},
	}}
}

// limit wraps a listener: the library sets no limits for WebSockets, so their connections do.
func (s *Server) limit(l net.Listener) net.Listener {
	return limitedListener{netutil.LimitListener(l, s.o.MaxAgents+maxHTTPRequests)}
}

type limitedListener struct{ net.Listener }

func (l limitedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &limitedConn{Conn: conn}, nil
}

// limitedConn ends a WebSocket that is silent, takes nothing, or sends more than a message has. Before it
// is a WebSocket, http.Server's own limits hold.
type limitedConn struct {
	net.Conn
	websocket atomic.Bool
	read      atomic.Int64 // bytes since the last message
}

func limitedOf(conn net.Conn) *limitedConn {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	l, _ := conn.(*limitedConn)
	return l
}

// drop ends a WebSocket without a farewell, because TLS would wait to send one.
func drop(conn types.Connection) {
	if l := limitedOf(conn.Connection()); l != nil {
		_ = l.Close() // whatever it says, the client is gone
	}
}

func (c *limitedConn) begin() {
	c.message()
	c.websocket.Store(true)
	_ = c.SetReadDeadline(time.Now().Add(idleAgent)) // a closed connection says so when it is read
}

func (c *limitedConn) message() { c.read.Store(0) }

func (c *limitedConn) Read(b []byte) (int, error) {
	if !c.websocket.Load() {
		return c.Conn.Read(b)
	}
	if c.read.Load() > maxBetween {
		return 0, errTooMuch
	}
	if err := c.SetReadDeadline(time.Now().Add(idleAgent)); err != nil {
		return 0, err
	}
	n, err := c.Conn.Read(b)
	c.read.Add(int64(n))
	return n, err
}

func (c *limitedConn) Write(b []byte) (int, error) {
	if c.websocket.Load() {
		if err := c.SetWriteDeadline(time.Now().Add(messageWithin)); err != nil {
			return 0, err
		}
	}
	return c.Conn.Write(b)
}
