// Package exposition turns the newest rows of all rings into pages that Prometheus reads.
//
// A layout lists the families and series and holds their label text, rendered once; a new one is built only when sources,
// fields, owners, accumulated series or the set of values per user change. A page is the layout plus the newest row of each
// ring and those values. It is immutable and shared by all scrapes until the next one is rendered.
//
// A page is rendered when a scrape finds the last one out of date, and for new rows at most once per
// minRenderInterval and format: a served page is at most that much older than the rows, however many sources
// there are. A change of devices, owners, accumulated series or own metrics is on the next page at once.
//
// All methods of a Renderer may be called by any number of goroutines. A holder of its lock only computes and
// never waits for a GPU, a session, a disk or a client.
package exposition

import (
	"net/http"
	"strings"

	"github.com/prometheus/common/expfmt"
)

// Format is an exposition format that this package writes.
type Format uint8

const (
	Text        Format = iota // Prometheus text 0.0.4
	OpenMetrics               // OpenMetrics 1.0.0
	Protobuf                  // length-delimited io.prometheus.client.MetricFamily

	formats = iota
)

// String returns the format's name in our own metrics.
func (f Format) String() string {
	return [...]string{Text: "text", OpenMetrics: "openmetrics", Protobuf: "protobuf"}[f]
}

// ContentType returns the value of the Content-Type header for pages of the format. It has no escaping parameter: every name
// on our pages is valid in the legacy character set, so all escaping schemes give the same page.
func (f Format) ContentType() string {
	return [...]string{
		Text:        "text/plain; version=0.0.4; charset=utf-8",
		OpenMetrics: "application/openmetrics-text; version=1.0.0; charset=utf-8",
		Protobuf:    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited",
	}[f]
}

// Negotiate returns the format for an Accept header. If it cannot serve (protobuf as text, unknown versions)
// or parse the header, it returns Text, as Prometheus' own client libraries do.
//
// A client that prefers OpenMetrics gets it only if it names no other format. The names of most counters do
// not end in _total, so in OpenMetrics they have an unknown type (family.finish), and a client that stores
// types, such as an OpenTelemetry receiver, would store them as gauges.
func Negotiate(accept string) Format {
	got := negotiate(accept)
	if others := typed(accept); got == OpenMetrics && others != "" {
		return negotiate(others)
	}
	return got
}

// Negotiated returns the newest page for a scraper's Accept and Accept-Encoding headers.
func (r *Renderer) Negotiated(accept, acceptEncoding string) (page []byte, contentType string, gzip bool) {
	f, gzip := Negotiate(accept), AcceptsGzip(acceptEncoding)
	r.scrapes.Add(1)
	return r.Page(f, gzip), f.ContentType(), gzip
}

// typed returns the parts of an Accept header that name a format with the type of every counter.
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
		return OpenMetrics
	}
	return Text
}

// AcceptsGzip reports whether an Accept-Encoding header allows gzip. A missing header and unknown encodings do not allow it.
func AcceptsGzip(acceptEncoding string) bool {
	wildcard := false
	for item := range strings.SplitSeq(acceptEncoding, ",") {
		coding, _, _ := strings.Cut(item, ";")
		switch coding = strings.TrimSpace(coding); {
		case strings.EqualFold(coding, "gzip"), strings.EqualFold(coding, "x-gzip"):
			return !refused(item) // more specific than a *
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
