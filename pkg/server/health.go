package server

import (
	"net/http"
	"strconv"
	"strings"
)

// serveHealth answers as dcgm-exporter does: always 200, the state in headers.
func (s *Server) serveHealth(w http.ResponseWriter, r *http.Request) int {
	st := s.o.Status()
	w.Header().Set("X-Registry-Available", strconv.FormatBool(st.Available))
	text := "OK"
	if st.Reloading {
		w.Header().Set("X-Reload-In-Progress", "true")
		text = "OK - reload in progress"
	}
	return writeText(w, r, http.StatusOK, text)
}

// serveLivez says that the process answers, and no more: restarting it would
// repair no device.
func serveLivez(w http.ResponseWriter, r *http.Request) int {
	return writeText(w, r, http.StatusOK, "ok\n")
}

func (s *Server) serveReadyz(w http.ResponseWriter, r *http.Request) int {
	reasons := s.o.Status().NotReady
	if s.draining.Load() {
		reasons = append(reasons[:len(reasons):len(reasons)], "shutting down")
	}
	if len(reasons) == 0 {
		return writeText(w, r, http.StatusOK, "ok\n")
	}
	var b strings.Builder
	for _, reason := range reasons {
		b.WriteString(strings.ReplaceAll(reason, "\n", " "))
		b.WriteByte('\n')
	}
	return writeText(w, r, http.StatusServiceUnavailable, b.String())
}
