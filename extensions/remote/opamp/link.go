package opamp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/time/rate"

	"warpgauge/extensions/remote/transport"
)

// link is the way to a server. Only one goroutine uses it.
type link interface {
	// up says whether the server has had the messages before: false before the first one on
	// each WebSocket.
	up() bool
	// exchange sends a message. An answer of nil comes later, by received.
	exchange(ctx context.Context, message []byte, id string) (answer []byte, err error)
	received() <-chan reception
	// close ends the connection; with a farewell if there is time for it.
	close(farewell bool)
}

// reception is a message of the server, or the error that ends the connection.
type reception struct {
	message []byte
	err     error
}

const (
	exchangeLimit = 15 * time.Second // of a request, from connecting until its answer is read
	farewellLimit = 300 * time.Millisecond
	contentType   = "application/x-protobuf"
)

// errTooLong ends an answer before it fills the memory.
var errTooLong = errors.New("the server's message is too long")

// errClosed is a WebSocket that was open.
var errClosed = errors.New("the WebSocket has ended")

// errRedirect refuses a redirect.
var errRedirect = errors.New("redirects are not followed, as the token is for one server only")

// direct follows no redirect.
func direct(transport http.RoundTripper) *http.Client {
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return errRedirect }}
}

// plain is the link of one HTTP request per message.
type plain struct {
	url    string
	client *http.Client
	limit  int64 // bytes of an answer
}

func (*plain) up() bool                   { return true }
func (*plain) received() <-chan reception { return nil }

func (p *plain) close(bool) { p.client.CloseIdleConnections() }

func (p *plain) exchange(ctx context.Context, message []byte, id string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(message))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", contentType)
	r.Header.Set("OpAMP-Instance-UID", id)
	answer, err := p.client.Do(r)
	if err != nil {
		return nil, transport.WithoutURL(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return nil, transport.Fault(answer)
	}
	// What follows the limit is not read: the connection is closed with it.
	body, err := io.ReadAll(io.LimitReader(answer.Body, p.limit+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the answer: %w", err)
	case int64(len(body)) > p.limit:
		return nil, fmt.Errorf("%w: more than %d bytes", errTooLong, p.limit)
	}
	return body, nil
}

// socket is the link of one WebSocket, which is opened by the first message.
type socket struct {
	url    string
	client *http.Client
	limit  int64

	in   chan reception
	conn *websocket.Conn // nil: not open
	stop context.CancelFunc
	done chan struct{} // closed when the reader has ended
}

// What a server may send without being asked. More waits in the connection.
const (
	socketRate  = 10 // messages per second
	socketBurst = 50
)

func (s *socket) up() bool                   { return s.conn != nil }
func (s *socket) received() <-chan reception { return s.in }

func (s *socket) exchange(ctx context.Context, message []byte, id string) ([]byte, error) {
	if s.conn == nil {
		if err := s.open(ctx, id); err != nil {
			return nil, err
		}
	}
	// The header, of one byte in this version of the protocol.
	if err := s.conn.Write(ctx, websocket.MessageBinary, append([]byte{0}, message...)); err != nil {
		s.close(false)
		return nil, fmt.Errorf("%w: %w", errClosed, err)
	}
	return nil, nil
}

func (s *socket) open(ctx context.Context, id string) error {
	conn, answer, err := websocket.Dial(ctx, s.url, &websocket.DialOptions{
		HTTPClient: s.client, HTTPHeader: http.Header{"Opamp-Instance-Uid": {id}},
	})
	if err != nil {
		if answer != nil {
			_ = answer.Body.Close()
			if answer.StatusCode != http.StatusSwitchingProtocols {
				return transport.Fault(answer)
			}
		}
		return transport.WithoutURL(err)
	}
	conn.SetReadLimit(s.limit)
	// Not of ctx, which ends with this message.
	reading, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.conn, s.stop, s.done = conn, stop, make(chan struct{})
	go func() {
		defer close(s.done)
		pace := rate.NewLimiter(socketRate, socketBurst)
		for {
			r := next(reading, conn)
			if r.err == nil {
				r.err = pace.Wait(reading)
			}
			select {
			case s.in <- r:
			case <-reading.Done():
				return
			}
			if r.err != nil {
				return
			}
		}
	}()
	return nil
}

// next waits for a message, without its header.
func next(ctx context.Context, conn *websocket.Conn) reception {
	kind, b, err := conn.Read(ctx)
	switch {
	case errors.Is(err, websocket.ErrMessageTooBig):
		return reception{err: fmt.Errorf("%w: %w", errTooLong, err)}
	case err != nil:
		return reception{err: fmt.Errorf("%w: %w", errClosed, err)}
	case kind != websocket.MessageBinary:
		return reception{err: errors.New("the server's message is text: OpAMP's are binary")}
	case len(b) > 0 && b[0] == 0:
		b = b[1:] // servers of before 2023 send no header
	}
	return reception{message: b}
}

func (s *socket) close(farewell bool) {
	if s.conn == nil {
		return
	}
	if farewell {
		late := time.AfterFunc(farewellLimit, s.stop)
		_ = s.conn.Close(websocket.StatusNormalClosure, "")
		late.Stop()
	}
	s.stop()
	_ = s.conn.CloseNow()
	<-s.done
	s.conn = nil
}
