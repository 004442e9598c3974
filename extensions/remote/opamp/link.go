package opamp

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/open-telemetry/opamp-go/protobufs"
	"google.golang.org/protobuf/proto"

	"warpgauge/extensions/remote/transport"
)

const (
	exchangeLimit = 15 * time.Second // of a request, from connecting to the end of the answer
	farewellLimit = 300 * time.Millisecond
)

// send sends a message as one HTTP request and returns the answer.
func (a *Agent) send(ctx context.Context, m *protobufs.AgentToServer, within time.Duration) ([]byte, error) {
	message, err := proto.Marshal(m)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url, bytes.NewReader(message))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/x-protobuf")
	r.Header.Set("OpAMP-Instance-UID", a.id.String())
	answer, err := a.client.Do(r)
	if err != nil {
		return nil, transport.Plain(err, within)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return nil, transport.Fault(answer)
	}
	// The rest of a longer body is not read, and its connection is closed.
	limit := max(minMessage, a.o.MaxBytes+minMessage/4)
	body, err := io.ReadAll(io.LimitReader(answer.Body, limit+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the answer: %w", transport.Plain(err, within))
	case int64(len(body)) > limit:
		return nil, fmt.Errorf("the server's message is too long: more than %d bytes", limit)
	}
	return body, nil
}
