package server

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/crypto/bcrypt"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/exposition"
	"warpgauge/pkg/view"
)

var must = testkit.Must

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const textPage = "# HELP x A number.\n# TYPE x gauge\nx 1\n"

// selfPage is a page about the exporter itself, without devices.
type selfPage struct{ text []byte }

func (p selfPage) Version() uint64     { return 1 }
func (p selfPage) Text() []byte        { return p.text }
func (p selfPage) OpenMetrics() []byte { return p.text }
func (p selfPage) Protobuf() []byte    { return nil }

func pagesOf(text string) *exposition.Renderer {
	return exposition.New(&view.Board{}, exposition.Options{Self: selfPage{[]byte(text)}})
}

// bigPage exceeds the kernel's buffers for a client that does not read.
func bigPage() *exposition.Renderer {
	return pagesOf("# HELP x A number.\n# TYPE x gauge\n" + strings.Repeat("# "+strings.Repeat("x", 1021)+"\n", 32<<10) + "x 1\n")
}

// testDesk passes each command, as a text with its arguments, to a function; nil succeeds.
type testDesk func(ctx context.Context, call string) error

func (d testDesk) do(ctx context.Context, format string, args ...any) error {
	if d == nil {
		return nil
	}
	return d(ctx, fmt.Sprintf(format, args...))
}

func (d testDesk) Reload(ctx context.Context, cause string) error {
	return d.do(ctx, "reload by %s", cause)
}
func (d testDesk) Release(ctx context.Context, name string, limit time.Duration, cause string) error {
	return d.do(ctx, "release %q for %v by %s", name, limit, cause)
}
func (d testDesk) Resume(name, cause string) error {
	return d.do(context.Background(), "resume %q by %s", name, cause)
}
func (d testDesk) PauseProfiling(ctx context.Context, limit time.Duration, cause string) error {
	return d.do(ctx, "pause for %v by %s", limit, cause)
}
func (d testDesk) ResumeProfiling(ctx context.Context, cause string) error {
	return d.do(ctx, "resume profiling by %s", cause)
}

// withDesk returns Options that serve all commands.
func withDesk(d testDesk) Options { return Options{Desk: d, Reload: true, Release: true} }

// basicAuth writes a web config file with the user prometheus, whose password is "secret".
func basicAuth(t *testing.T, cost int) string {
	t.Helper()
	hash := testkit.Get(bcrypt.GenerateFromPassword([]byte("secret"), cost))(t)
	return webConfig(t, t.TempDir(), "basic_auth_users: {prometheus: "+string(hash)+"}\n")
}

// ask calls the handler without a network.
func ask(s *Server, method, path string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	return w
}

// start runs a server on a free port until the test ends. stop ends it earlier and returns what Run returned.
func start(t *testing.T, pages Pages, o Options) (s *Server, address string, stop func() error) {
	t.Helper()
	o.Address = "127.0.0.1:0"
	s = New(pages, o)
	ctx, cancel := context.WithCancel(context.Background())
	if err := s.Listen(ctx); err != nil {
		cancel()
		t.Fatal(err)
	}
	done := make(chan struct{})
	var err error
	go func() {
		defer close(done)
		err = s.Run(ctx)
	}()
	stop = func() error {
		cancel()
		<-done
		return err
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return s, addrs(s)[0].String(), stop
}

// addrs returns the listening addresses, with the ports chosen for port 0; none before Listen.
func addrs(s *Server) []net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []net.Addr
	for _, l := range s.listeners {
		out = append(out, l.Addr())
	}
	return out
}

// client is an HTTP client whose connections end with the test.
func client(t *testing.T) *http.Client {
	t.Helper()
	tr := &http.Transport{DisableCompression: true}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// answer is a response that was read to its end.
type answer struct {
	code, proto int
	header      http.Header
	closed      bool // the server ended the connection
	body        string
}

// get asks over the network.
func get(t *testing.T, c *http.Client, url string) answer { return request(t, c, http.MethodGet, url) }

func post(t *testing.T, c *http.Client, url string) answer {
	return request(t, c, http.MethodPost, url)
}

func request(t *testing.T, c *http.Client, method, url string) answer {
	t.Helper()
	req := testkit.Get(http.NewRequest(method, url, nil))(t)
	return do(t, c, req)
}

func do(t *testing.T, c *http.Client, req *http.Request) answer {
	t.Helper()
	resp, err := c.Do(req)
	must(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("read body of %s: %v", req.URL, err)
	}
	return answer{resp.StatusCode, resp.ProtoMajor, resp.Header, resp.Close, string(body)}
}

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	c := testkit.Get(net.Dial("tcp", address))(t)
	t.Cleanup(func() { c.Close() })
	return c
}

func send(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatalf("send %q: %v", text, err)
	}
}

// closedByServer waits until the server has closed c and returns what it sent.
func closedByServer(t *testing.T, c net.Conn) string {
	t.Helper()
	var b bytes.Buffer
	io.Copy(&b, c) // a reset is an end as well
	return b.String()
}
