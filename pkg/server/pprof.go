package server

import (
	"net/http"
	"net/http/pprof"
)

const pprofPrefix = "/debug/pprof/"

// servePprof calls the profile handlers directly. net/http/pprof also registers
// them with http.DefaultServeMux, which is never served here. It moves the write
// deadline of a profile that takes longer by itself.
func servePprof(w http.ResponseWriter, r *http.Request) int {
	c := &codeWriter{ResponseWriter: w, code: http.StatusOK}
	switch r.URL.Path[len(pprofPrefix):] {
	case "cmdline":
		pprof.Cmdline(c, r)
	case "profile":
		pprof.Profile(c, r)
	case "symbol":
		pprof.Symbol(c, r)
	case "trace":
		pprof.Trace(c, r)
	default:
		pprof.Index(c, r)
	}
	return c.code
}

// codeWriter remembers the status code.
type codeWriter struct {
	http.ResponseWriter
	code int
}

func (c *codeWriter) WriteHeader(code int) {
	c.code = code
	c.ResponseWriter.WriteHeader(code)
}

// Unwrap lets http.ResponseController find the connection.
func (c *codeWriter) Unwrap() http.ResponseWriter { return c.ResponseWriter }
