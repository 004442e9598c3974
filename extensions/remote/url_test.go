package remote

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/lists"
)

// serving is a URL source with a handler instead of a network, so that time can be simulated.
type serving struct {
	*URL
	handler  http.HandlerFunc
	requests []*http.Request
	failed   []string
	answered int
	also     func(error) // called on failures, unless nil
	offers   []*lists.Offer
	outcome  lists.Answer
}

func (s *serving) RoundTrip(r *http.Request) (*http.Response, error) {
	s.requests = append(s.requests, r)
	w := httptest.NewRecorder()
	s.handler(w, r)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	answer := w.Result()
	answer.Request = r
	return answer, nil
}

func newServing(handler http.HandlerFunc) *serving {
	u, _ := url.Parse("https://user:secret@lists.example/list.csv?token=secret")
	s := &serving{handler: handler, outcome: lists.Applied}
	s.URL = newURL(u, s, &Settings{Interval: 30 * time.Second, Limits: Limits{Bytes: 1000}}, "warpgauge/test", s)
	return s
}

// Deliver and the next three methods implement opamp.Desk.
func (s *serving) Deliver(_ context.Context, o *lists.Offer) *lists.Outcome {
	s.offers = append(s.offers, o)
	out := &lists.Outcome{Answer: s.outcome}
	if s.outcome.Bad() {
		out.Err = errors.New("not here")
	}
	return out
}

func (s *serving) Answered()   { s.answered++ }
func (*serving) Refused(error) {}

func (s *serving) Unreachable(err error) {
	s.failed = append(s.failed, err.Error())
	if s.also != nil {
		s.also(err)
	}
}

// run polls for that long.
func (s *serving) run(t *testing.T, d time.Duration) {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	must(t, s.Run(ctx))
}

func TestURL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		content, tag := listA, `W/"one"`
		s := newServing(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("ETag", tag)
			if r.Header.Get("If-None-Match") == tag {
				w.WriteHeader(http.StatusNotModified)
				return
			}
			io.WriteString(w, content)
		})
		s.run(t, 10*time.Minute)
		if n := len(s.requests); n < 17 || n > 25 || len(s.offers) != 1 || s.answered != n-1 || len(s.failed) > 0 {
			t.Errorf("%d requests, %d lists, %d times unchanged, failed %v", len(s.requests), len(s.offers), s.answered, s.failed)
		}
		o := s.offers[0]
		testkit.ErrorIf(t, o.Origin != "https://lists.example/list.csv" || o.Revision != "one" || string(o.Content) != listA || o.YAML, "offer = %+v", o)
		testkit.Equal(t, "user agent", "warpgauge/test", s.requests[0].Header.Get("User-Agent"))
		content, tag = listB, `"two"`
		s.run(t, time.Minute)
		testkit.ErrorIf(t, len(s.offers) != 2 || s.offers[1].Revision != "two", "offers = %+v", s.offers)
		// A refused list is tried again, because the cause can be on this node.
		content, tag, s.outcome = listC, `"three"`, lists.Failed
		s.run(t, 2*time.Minute)
		if n := len(s.offers); n < 4 || n > 7 {
			t.Errorf("%d offers", n)
		}
	})
}

func TestURLWithoutETag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const at = "Fri, 01 May 2026 18:00:00 GMT"
		s := newServing(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Last-Modified", at)
			w.Header().Set("Content-Type", "application/yaml")
			io.WriteString(w, "version: 2\n")
		})
		s.run(t, 2*time.Minute)
		testkit.ErrorIf(t, len(s.offers) < 3 || s.offers[0].Revision != "2026-05-01T18:00:00Z" || !s.offers[0].YAML, "offers = %+v", s.offers)
	})
}

// TestURLFaults: each fault is reported, delivers nothing and leaves the list in service.
func TestURLFaults(t *testing.T) {
	bomb := &bytes.Buffer{}
	z := gzip.NewWriter(bomb)
	z.Write(make([]byte, 10<<20))
	z.Close()
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		want    string
	}{
		"not found":  {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }, `404 Not Found`},
		"denied":     {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }, `401 Unauthorized`},
		"no content": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }, `204 No Content`},
		"partial":    {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusPartialContent) }, `206 Partial Content`},
		"not asked":  {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotModified) }, "304 Not Modified"},
		"is large":   {func(w http.ResponseWriter, _ *http.Request) { w.Write(make([]byte, 1001)) }, "more than 1000 bytes"},
		"gzip": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			w.Write(bomb.Bytes())
		}, "an encoding that was not asked for"},
		"hangs": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "has not answered within 1m"},
		"redirects to no TLS": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://lists.example/x", http.StatusFound)
		}, "from https to http"},
		"redirects for ever": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://lists.example"+r.URL.Path+"x", http.StatusFound)
		}, "more than 3 times"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, b := newServing(c.handler), newBench(t)
			b.want("b", listB, lists.Applied, lists.Applied, "b")
			s.also = b.Unreachable
			s.run(t, 10*time.Minute)
			if len(s.offers) > 0 || len(s.failed) == 0 {
				t.Fatalf("%s: delivered %v, failed %q", name, s.offers, s.failed)
			}
			if b.wantService("b"); b.state().Condition() != lists.Unreachable || !strings.Contains(b.state().Down, c.want) {
				t.Errorf("%s: the state is %+v", name, b.state())
			}
			if n := len(s.failed); n > 8 {
				t.Errorf("%s: %d requests in 10 minutes: there is no back-off", name, n)
			}
			for _, text := range s.failed {
				testkit.ErrorIf(t, !strings.Contains(text, c.want) || strings.Contains(text, "secret"), "%s: failed with %q, want %q and no secret", name, text, c.want)
			}
		})
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestURLReadsNoMoreThanItMay(t *testing.T) {
	body := &io.LimitedReader{R: rand.NewChaCha8([32]byte{}), N: 10 << 30}
	s := newServing(nil)
	s.client.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, ContentLength: -1, Request: r, Body: io.NopCloser(body)}, nil
	})
	if err := s.ask(t.Context()); err == nil || !strings.Contains(err.Error(), "more than 1000 bytes") || body.N < 10<<30-1<<20 {
		t.Errorf("%v, %d bytes are left", err, body.N)
	}
}

// TestCutAnswers: an answer that may be cut or changed is not taken for whole.
func TestCutAnswers(t *testing.T) {
	sum := sha256.Sum256([]byte(listA))
	digest, chunked := "Digest: sha-256=:"+base64.StdEncoding.EncodeToString(sum[:])+":\r\n", fmt.Sprintf("\r\n%x\r\n%s\r\n0\r\n", len(listA), listA)
	length := fmt.Sprintf("Content-Length: %d\r\n", len(listA))
	const chunks, another = "Transfer-Encoding: chunked\r\n", "Digest: sha-512=:x:, sha-256=:x:\r\n"
	for text, want := range map[string]string{
		"\r\n" + listA: "",
		length + "Content-" + digest + "\r\n" + listA:  "",
		length + "Content-" + another + "\r\n" + listA: "another SHA-256",
		"\r\n" + listA[:9]:                                                         "a whole line",
		"Content-Length: 9\r\n\r\n" + listA[:9]:                                    "a whole line",
		chunks + "\r\n9\r\n" + listA[:9] + "\r\n0\r\n\r\n":                         "a whole line",
		"Content-Length: 900\r\n\r\n" + listA:                                      "unexpected EOF",
		"Content-Length: 0\r\n\r\n":                                                "a whole line",
		"Repr-" + digest + "\r\n" + listA:                                          "no length",
		"Content-MD5: x\r\n\r\n" + listA:                                           "no length",
		"x-goog-hash: md5=x\r\n\r\n" + listA:                                       "no length",
		"Trailer: Repr-Digest\r\n\r\n" + listA:                                     "promised trailer",
		chunks + "Trailer: Repr-Digest\r\n" + chunked + "\r\n":                     "promised trailer",
		chunks + "Trailer: Repr-Digest\r\n" + chunked + "Repr-" + another + "\r\n": "another SHA-256",
		chunks + "Trailer: Repr-Digest\r\n" + chunked + "Repr-" + digest + "\r\n":  "",
	} {
		s := newServing(nil)
		s.client.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
			return http.ReadResponse(bufio.NewReader(strings.NewReader("HTTP/1.1 200 OK\r\n"+text)), r)
		})
		if err := s.ask(t.Context()); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) || len(s.offers) > 0 != (err == nil) {
			t.Errorf("%q: %v, want %q; delivered %v", text, err, want, s.offers)
		}
	}
}

// TestURLBacksOff: the pause follows the server's request, else doubles with each failure. After an
// answer it returns to the usual interval.
func TestURLBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		after, code := "600", http.StatusTooManyRequests
		s := newServing(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", after)
			w.WriteHeader(code)
			io.WriteString(w, listA)
		})
		s.run(t, time.Hour)
		if n := len(s.requests); n < 5 || n > 9 {
			t.Errorf("%d requests in an hour with Retry-After: 600", n)
		}
		after, s.requests = "soon", nil
		s.run(t, time.Hour)
		if n := len(s.requests); n < 12 || n > 20 {
			t.Errorf("%d requests in an hour of failures", n)
		}
		code, s.requests = http.StatusOK, nil
		s.run(t, 10*time.Minute)
		if n := len(s.requests); n < 15 {
			t.Errorf("%d requests in 10 minutes after the server is back", n)
		}
	})
}

func TestRevision(t *testing.T) {
	for _, c := range [][3]string{
		{`"abc"`, "", "abc"}, {`W/"abc"`, "x", "abc"}, {"", "garbage", ""}, {"", "Fri, 01 May 2026 18:00:00 GMT", "2026-05-01T18:00:00Z"},
		{printable("\"a\x00\""), "", ""}, {printable(strings.Repeat("x", 300)), "", ""},
	} {
		testkit.Equal(t, "revision of "+c[0]+", "+c[1], c[2], revision(c[0], c[1]))
	}
}
