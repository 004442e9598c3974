package opamp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"warpgauge/extensions/remote/transport"
)

const (
	exchangeLimit = 15 * time.Second // of a request, from connecting to the end of the answer
	farewellLimit = 300 * time.Millisecond
)

// refuseRedirect is a CheckRedirect of http.Client.
func refuseRedirect(*http.Request, []*http.Request) error {
	return errors.New("redirects are not followed, as the token is for one server only")
}

// link exchanges messages with a server, one HTTP request per message.
type link struct {
	url    string
	client *http.Client
	limit  int64 // bytes of an answer
}

// exchange sends a message and returns the answer.
func (l *link) exchange(ctx context.Context, message []byte, id string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, l.url, bytes.NewReader(message))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/x-protobuf")
	r.Header.Set("OpAMP-Instance-UID", id)
	answer, err := l.client.Do(r)
	if err != nil {
		return nil, transport.WithoutURL(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return nil, transport.Fault(answer)
	}
	// The rest of a longer body is not read, and its connection is closed.
	body, err := io.ReadAll(io.LimitReader(answer.Body, l.limit+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the answer: %w", err)
	case int64(len(body)) > l.limit:
		return nil, fmt.Errorf("the server's message is too long: more than %d bytes", l.limit)
	}
	return body, nil
}
