package server

import (
	"net/http"
	"time"
)

// boundBody keeps a request's body from costing more than a few kilobytes: no
// path has a use for one. net/http reads up to 256 KiB after the handler to keep
// the connection. A small body of known length it may have; from others nothing
// more can be read, so it announces and closes the end of the connection.
func boundBody(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength >= 0 && r.ContentLength <= maxBodyBytes {
		return
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0)) // a recorder has none
}
