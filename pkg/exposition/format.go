// Package exposition turns the newest rows of all rings into pages that
// Prometheus reads.
//
// A layout says which families and series there are and holds their label text,
// rendered once; a new one is built only when sources, fields, owners, accumulated
// series or the set of values per user change. A page is the layout plus the newest
// row of each ring and those values. It is immutable and shared by all scrapes until
// the next one is rendered.
//
// A page is rendered when a scrape finds the last one out of date, and for new rows
// at most once per minRenderInterval and format: a served page is at most that much
// older than the rows, however many sources there are. A change of devices, owners,
// accumulated series or own metrics is on the next page at once.
//
// All methods of a Renderer may be called by any number of goroutines. Its lock
// is held while the processor works, never while anything is waited for: not
// for a GPU, a session, a disk or a client.
package exposition

import (
	"net/http"
	"strings"

	"github.com/prometheus/common/expfmt"
)

// Format is an exposition format that this package writes.
type Format uint8

const (
	Text           Format = iota // Prometheus text 0.0.4
	OpenMetrics                  // OpenMetrics 1.0.0
	Protobuf                     // length-delimited io.prometheus.client.MetricFamily
	OpenMetrics001               // the bytes of OpenMetrics, for clients that know version 0.0.1 only

	formats = iota
)

// String returns the format's name in our own metrics.
func (f Format) String() string {
	switch f {
	case OpenMetrics, OpenMetrics001:
		return "openmetrics"
	case Protobuf:
		return "protobuf"
	}
	return "text"
}

// ContentType returns the value of the Content-Type header for pages of the
// format. There is no escaping parameter: every name that we write is valid in
// the legacy character set, so all escaping schemes give the same page.
func (f Format) ContentType() string {
	switch f {
	case OpenMetrics:
		return "application/openmetrics-text; version=1.0.0; charset=utf-8"
	case OpenMetrics001:
		return "application/openmetrics-text; version=0.0.1; charset=utf-8"
	case Protobuf:
		return "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
	}
	return "text/plain; version=0.0.4; charset=utf-8"
}

// bytes returns the format whose pages are served for f.
func (f Format) bytes() Format {
	switch f {
	case OpenMetrics, Protobuf:
		return f
	case OpenMetrics001:
		return OpenMetrics
	}
	return Text
}

// Negotiate returns the format to answer an Accept header with. What cannot be
// served (protobuf as text, unknown versions) or understood is answered with
// Text, as Prometheus' own client libraries do.
//
// A client that prefers OpenMetrics gets it only if it names neither of the others. The
// names of most counters do not end in _total, so that in OpenMetrics they are of unknown
// type (family.finish), and a client that stores types, such as an OpenTelemetry receiver,
// would take them for gauges.
func Negotiate(accept string) Format {
	accept = acceptable(accept)
	if got := negotiate(accept); got != OpenMetrics && got != OpenMetrics001 {
		return got
	}
	if others := typed(accept); others != "" {
		return negotiate(others)
	}
	return negotiate(accept)
}

// Negotiated returns the newest page in the form that a scraper's Accept and Accept-Encoding headers ask for.
func (r *Renderer) Negotiated(accept, acceptEncoding string) (page []byte, contentType string, gzip bool) {
	f, gzip := Negotiate(accept), AcceptsGzip(acceptEncoding)
	return r.Page(f, gzip), f.ContentType(), gzip
}

// typed returns what of an Accept header names a format that has the type of every
// counter.
func typed(accept string) string {
	var kept []string
	for item := range strings.SplitSeq(accept, ",") {
		media, params, _ := strings.Cut(strings.ReplaceAll(item, " ", ""), ";")
		text := strings.EqualFold(media, "text/plain") && (!strings.Contains(params, "version=") || strings.Contains(params, "version="+expfmt.TextVersion))
		if text || negotiate(item) == Protobuf {
			kept = append(kept, item)
		}
	}
	return strings.Join(kept, ",")
}

func negotiate(accept string) Format {
	header := http.Header{"Accept": {accept}}
	got := expfmt.NegotiateAccept(header, expfmt.DefaultOpenMetricsAcceptedFormats()...)
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

// AcceptsGzip reports whether an Accept-Encoding header allows gzip. A missing
// header and unknown encodings do not allow it.
func AcceptsGzip(acceptEncoding string) bool {
	wildcard := false
	for item := range strings.SplitSeq(acceptEncoding, ",") {
		coding, _, _ := strings.Cut(item, ";")
		switch coding = strings.TrimSpace(coding); {
		case strings.EqualFold(coding, "gzip"), strings.EqualFold(coding, "x-gzip"):
			return !refused(item) // says more than a * does
		case coding == "*":
			wildcard = !refused(item)
		}
	}
	return wildcard
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
