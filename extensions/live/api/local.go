package api

import (
	"bytes"
	"fmt"
	"io"
	"net/http"

	"warpgauge/extensions/live/apiv1"
)

// NewLocalClient returns a client of an API in this process. It has no streams, because it
// takes an answer when that is complete.
func NewLocalClient(a *API) *apiv1.Client {
	c, err := apiv1.NewClient("http://localhost", apiv1.ClientOptions{Transport: local{a}})
	if err != nil {
		panic("api: " + err.Error()) // the address is a constant
	}
	return c
}

// local asks an API without a network.
type local struct{ api *API }

func (l local) RoundTrip(r *http.Request) (*http.Response, error) {
	w := &localAnswer{header: http.Header{}, status: http.StatusOK}
	l.api.ServeHTTP(w, r)
	return &http.Response{
		Status: fmt.Sprintf("%d %s", w.status, http.StatusText(w.status)), StatusCode: w.status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: w.header, Body: io.NopCloser(&w.body), Request: r,
	}, nil
}

// localAnswer is an http.ResponseWriter into memory.
type localAnswer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (w *localAnswer) Header() http.Header         { return w.header }
func (w *localAnswer) WriteHeader(status int)      { w.status = status }
func (w *localAnswer) Write(b []byte) (int, error) { return w.body.Write(b) }
