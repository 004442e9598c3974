// Package exposition turns the newest rows of all rings into pages that
// Prometheus reads.
//
// A layout says which families and series there are and holds their label text,
// rendered once; it is built anew only when sources, fields, owners, accumulated
// series or the set of values per user change. A page is the layout plus the newest
// row of each ring and those values, rendered at most once per generation, format
// and compression, and shared by everybody who asks meanwhile.
//
// All methods of a Renderer may be called by any number of goroutines. Its locks
// are held while the processor works, never while anything is waited for: not
// for a GPU, a sampler, a disk or a client.
package exposition

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
