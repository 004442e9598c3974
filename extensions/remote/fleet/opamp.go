package fleet

import (
	"io"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/open-telemetry/opamp-go/protobufs"
	"google.golang.org/protobuf/proto"
)

// OpAMPPath is the path for agents' reports.
const OpAMPPath = "/v1/opamp"

// Bounds of agents' connections.
const (
	maxMessage      = 512 << 10        // all requests together take at most 128 MiB
	messageWithin   = 10 * time.Second // to send or receive one message
	retryAfter      = 30 * time.Second
	maxHeaderBytes  = 16 << 10
	maxHTTPRequests = 256 // in parallel, half of them with shared credentials; further ones are told to retry
	maxOfOne        = 4   // of them with one credential
	maxOfMany       = 16  // with a shared one from one address (IPv6: /64)
)

// Reasons for refusals.
const (
	refusedLogin   = "login"
	refusedMessage = "message" // not an OpAMP message, too large, or without a uid
	refusedFull    = "full"
	refusedBusy    = "busy"
)

func (s *Server) refuse(reason string) { s.totals.refused.WithLabelValues(reason).Inc() }

// agents returns the server for agents.
func (s *Server) agents(login *Login) *http.Server {
	slots := slots{of: map[string]int{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+OpAMPPath, func(w http.ResponseWriter, r *http.Request) {
		who, ok := login.who(r)
		if !ok {
			s.refuse(refusedLogin)
			w.Header().Set("Connection", "close") // a stranger's connection keeps no place
			http.Error(w, "a bearer token is needed, or this one is unknown", http.StatusUnauthorized)
			return
		}
		key, most := who.name, maxOfOne
		if who.shared {
			from, _ := netip.ParseAddrPort(r.RemoteAddr)
			network, _ := from.Addr().Unmap().Prefix(min(64, from.Addr().Unmap().BitLen())) // one machine may own a /64 of IPv6
			key, most = who.name+" "+network.String(), maxOfMany
		}
		if !slots.add(1, who.shared, key, most) {
			s.refuse(refusedBusy)
			w.Header().Set("Retry-After", "30")
			http.Error(w, "too many requests at once", http.StatusServiceUnavailable)
			return
		}
		defer slots.add(-1, who.shared, key, most)
		var m protobufs.AgentToServer
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxMessage))
		if err == nil {
			err = proto.Unmarshal(body, &m)
		}
		if err != nil {
			s.refuse(refusedMessage)
			http.Error(w, "no OpAMP message", http.StatusBadRequest)
			return
		}
		out := s.message(newReport(&m), who)
		out.InstanceUid = m.InstanceUid
		if body, err = proto.Marshal(out); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
		_, _ = w.Write(body) // the agent may have gone away
	})
	return s.bounded(mux, 2*messageWithin)
}

// slots bounds parallel requests: one slow agent, or all agents with shared credentials, cannot take every place.
type slots struct {
	mu          sync.Mutex
	all, shared int
	of          map[string]int // by credential
}

// add counts requests that begin or end, and reports whether a new one may begin.
func (s *slots) add(n int, shared bool, key string, most int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n > 0 && (s.all >= maxHTTPRequests || shared && s.shared >= maxHTTPRequests/2 || s.of[key] >= most) {
		return false
	}
	if s.all += n; shared {
		s.shared += n
	}
	if s.of[key] += n; s.of[key] == 0 {
		delete(s.of, key)
	}
	return true
}

// message applies one report and returns the answer.
func (s *Server) message(r *report, who credential) (out *protobufs.ServerToAgent) {
	if r == nil {
		s.refuse(refusedMessage)
		return &protobufs.ServerToAgent{ErrorResponse: &protobufs.ServerErrorResponse{
			Type: protobufs.ServerErrorResponseType_ServerErrorResponseType_BadRequest, ErrorMessage: "an instance uid has 16 bytes, not all of them zero",
		}}
	}
	s.locked(func(c *core) { out = c.report(r, who, time.Now()) })
	out.Capabilities = uint64(protobufs.ServerCapabilities_ServerCapabilities_AcceptsStatus |
		protobufs.ServerCapabilities_ServerCapabilities_OffersRemoteConfig | protobufs.ServerCapabilities_ServerCapabilities_AcceptsEffectiveConfig)
	return out
}
