package exposition

import (
	"fmt"
	"strings"
	"testing"

	"warpgauge/internal/testkit"
)

// Headers as real scrapers send them.
const (
	accept242      = `application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1`
	accept225      = `application/openmetrics-text; version=0.0.1,text/plain;version=0.0.4;q=0.5,*/*;q=0.1`
	accept3        = `application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2`
	accept3Native  = `application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1`
	acceptProtoOld = `application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited; q=0.7,text/plain;version=0.0.4;q=0.3`
)

func TestNegotiate(t *testing.T) {
	f := func(accept string, want Format) {
		t.Helper()
		testkit.Equal(t, fmt.Sprintf("format for %q", accept), want, Negotiate(accept))
	}
	f("", Text)
	f("text/plain;version=1.0.0;escaping=allow-utf-8", Text)
	f(accept242, Text) // though it prefers OpenMetrics: see Negotiate
	f(accept225, Text)
	f(accept3, Text)
	f("application/openmetrics-text;version=1.0.0,*/*;q=0.1", OpenMetrics)
	f("application/openmetrics-text;version=1.0.0,text/plain;version=1.0.0;q=0.5", OpenMetrics)
	f("application/openmetrics-text;version=1.0.0, text/plain; q=0.1", Text)
	f("application/openmetrics-text;version=1.0.0,application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.1", Protobuf)
	f("application/openmetrics-text;version=1.0.0;q=0.9,"+acceptProtoOld, Protobuf)
	f(accept3Native, Protobuf)
	f(acceptProtoOld, Protobuf)
	f("application/openmetrics-text;version=2.0.0", Text)
	f("application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily", Text)               // in what encoding?
	f("application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=text", Text) // not written here
	f("application/vnd.google.protobuf;proto=some.Other;encoding=delimited", Text)                   //
	f("application/openmetrics-text;version=1.0.0;q=0.001", OpenMetrics)                             //
	f("application/openmetrics-text;version=0.0.1;q=0.5,application/openmetrics-text;version=1.0.0", OpenMetrics)
	f(strings.Repeat("a/b,", 10_000), Text)
}

func TestAcceptsGzip(t *testing.T) {
	f := func(header string, want bool) {
		t.Helper()
		testkit.Equal(t, fmt.Sprintf("gzip for %q", header), want, AcceptsGzip(header))
	}
	f("", false)
	f("gzip", true)
	f("GZip", true)
	f("x-gzip", true)
	f("deflate, br", false)
	f("deflate, gzip;q=1.0, *;q=0.5", true)
	f("gzip;q=0", false)
	f("gzip; Q=0.0", false)
	f("gzip ; q=0.01", true)
	f("*", true)
	f("*;q=0", false)
	f("*, gzip;q=0", false)
	f("gzip, *;q=0", true)
	f("gzipped", false)
	f("gzip;q", true)
	f(",;,", false)
}

func FuzzNegotiate(f *testing.F) {
	for _, s := range []string{accept242, accept225, accept3, accept3Native, acceptProtoOld, "gzip;q=0, *"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, header string) {
		AcceptsGzip(header)
		got := Negotiate(header)
		testkit.ErrorIf(t, got >= formats, "format %d for %q", got, header)
	})
}
