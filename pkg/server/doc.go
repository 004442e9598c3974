// Package server answers HTTP. A scrape is handed bytes that are in memory; no
// handler waits for a device, and none but /-/reload for a file.
//
// Paths. Those that are asked for otherwise, /metrics/ too, answer 404. Any
// method works where none is named; HEAD answers without a body.
//
//	/metrics       200: the page. Accept chooses between text 0.0.4, OpenMetrics 1.0
//	               and protobuf, Accept-Encoding whether it is compressed by gzip.
//	               503: more than Options.MaxConcurrentScrapes at a time; Retry-After: 1.
//	/health        always 200: "OK", during a reload "OK - reload in progress".
//	/livez         200 "ok": the process answers.
//	/readyz        200 "ok", or 503 and a reason per line.
//	/-/reload      POST, PUT: 200 when the new configuration is in service, 500 and
//	               what is wrong with it otherwise, 403 when not enabled or asked for
//	               by a page of another site in a browser. Other methods: 405.
//	/debug/pprof/  Go's profiles when enabled, else 404.
//	/              200: index of these.
//
// Headers. All answers carry X-Content-Type-Options: nosniff. /metrics has
// Content-Type with the format's version, Content-Length always, Vary: Accept,
// Accept-Encoding, and Content-Encoding: gzip where compressed. /health has
// X-Registry-Available: true or false, and during a reload
// X-Reload-In-Progress: true. The index has a Content-Security-Policy under
// which it loads nothing from anywhere.
//
// Limits. Header, read, write and idle timeouts, the size of headers, the bytes
// of a request body that are read, the connections: see Options. TLS, basic
// auth, systemd sockets and further headers come from exporter-toolkit, which
// also answers 401 and 429 by itself.
//
// Goroutines. Run owns the listeners' goroutines and ends them; handlers run in
// those of net/http. A Server's methods may be called from any goroutine.
package server
