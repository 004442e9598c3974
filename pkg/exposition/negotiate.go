package exposition

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/common/expfmt"
)

// Negotiate returns the format to answer an Accept header with. What cannot be
// served (protobuf as text, unknown versions) or understood is answered with
// Text, as Prometheus' own client libraries do. Renderer.Negotiate remembers
// its answers.
func Negotiate(accept string) Format {
	header := http.Header{"Accept": {acceptable(accept)}}
	got := expfmt.NegotiateIncludingOpenMetrics(header)
	switch got.FormatType() {
	case expfmt.TypeProtoDelim:
		return Protobuf
	case expfmt.TypeOpenMetrics:
		if strings.Contains(string(got), "version="+expfmt.OpenMetricsVersion_0_0_1) {
			return OpenMetrics001
		}
		return OpenMetrics
	}
	return Text
}

// acceptable removes what the client says it does not accept, with q=0; expfmt
// takes that for a low preference.
func acceptable(accept string) string {
	if !strings.Contains(accept, "=0") {
		return accept
	}
	var kept []string
	for item := range strings.SplitSeq(accept, ",") {
		if !refused(item) {
			kept = append(kept, item)
		}
	}
	return strings.Join(kept, ",")
}

// refused reports whether an item of an Accept… header has the weight 0.
func refused(item string) bool {
	_, params, _ := strings.Cut(item, ";")
	for param := range strings.SplitSeq(params, ";") {
		name, value, _ := strings.Cut(param, "=")
		if !strings.EqualFold(strings.TrimSpace(name), "q") {
			continue
		}
		value = strings.TrimSpace(value)
		return value != "" && strings.Trim(value, "0.") == "" && strings.Contains(value, "0")
	}
	return false
}

// Negotiate is the function Negotiate with a memory: a header that was seen
// before costs a map look-up and no allocation.
func (r *Renderer) Negotiate(accept string) Format { return r.accepts.negotiate(accept) }

// Bounds of a memo. A fleet of Prometheus servers sends a handful of headers of
// some 200 bytes; whoever sends others costs himself, not us.
const (
	memoEntries = 64
	memoBytes   = 1024 // longest header that is remembered
)

// memo remembers answers. The map is never changed, only replaced, so that
// readers need no lock.
type memo struct {
	known atomic.Pointer[map[string]Format]
	mu    sync.Mutex // serialises replacing
}

func (m *memo) negotiate(accept string) Format {
	if known := m.known.Load(); known != nil {
		if f, ok := (*known)[accept]; ok {
			return f
		}
	}
	f := Negotiate(accept)
	if len(accept) <= memoBytes {
		m.remember(strings.Clone(accept), f)
	}
	return f
}

func (m *memo) remember(accept string, f Format) {
	m.mu.Lock()
	defer m.mu.Unlock()
	next := map[string]Format{accept: f}
	if old := m.known.Load(); old != nil && len(*old) < memoEntries { // else begin anew
		for k, v := range *old {
			next[k] = v
		}
	}
	m.known.Store(&next)
}
