package fleet

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"warpgauge/pkg/file"
)

// Login says who sent a request: the owner of a bearer token from a file or of a Kubernetes service account, else the owner of
// a certificate or password that the listener has checked. It reads the file again after some seconds, so tokens rotate
// without a restart. A nil Login has neither tokens nor service accounts.
type Login struct {
	// Review returns the node or pod that a Kubernetes token is for. nil: such tokens are unknown.
	Review func(ctx context.Context, token string) (string, error)

	path  string
	files *file.Reader

	mu     sync.Mutex
	read   time.Time
	tokens map[[sha256.Size]byte]bool // of many agents
}

// credential identifies an agent.
type credential struct {
	name   string // has no secret; "" for none
	shared bool   // many agents may have it
}

// Audience is the audience of the Kubernetes tokens that agents send.
const Audience = "warpgauge-fleet"

// sharedToken begins the line of a token that many agents have.
const sharedToken = "shared "

const (
	tokensFor     = 5 * time.Second
	maxTokenBytes = 64 << 10
)

// NewLogin returns a Login for a readable file with at least one token, a line each.
func NewLogin(path string) (*Login, error) {
	if path == "" {
		return nil, nil //nolint:nilnil // a nil Login has no tokens
	}
	l := &Login{path: path, files: file.NewReader(maxTokenBytes)}
	return l, l.load()
}

func (l *Login) load() error {
	content, err := l.files.Read(context.Background(), l.path)
	if err != nil {
		return err
	}
	tokens := map[[sha256.Size]byte]bool{}
	for text := range bytes.Lines(content) {
		token, shared := bytes.CutPrefix(bytes.TrimSpace(text), []byte(sharedToken))
		if token = bytes.TrimSpace(token); len(token) > 0 {
			tokens[sha256.Sum256(token)] = shared
		}
	}
	if len(tokens) == 0 {
		return errors.New("token file: it has no token")
	}
	l.tokens = tokens
	return nil
}

// who returns the credential of a request, and whether it suffices. If the file is unreadable, the previous tokens stay valid.
func (l *Login) who(r *http.Request) (shown credential, ok bool) {
	if l != nil {
		token, given := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !given {
			return credential{}, false
		}
		return l.owner(r.Context(), token)
	}
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		return credential{name: "certificate " + r.TLS.PeerCertificates[0].Subject.String()}, true
	}
	if user, _, given := r.BasicAuth(); given {
		return credential{name: "user " + user, shared: true}, true
	}
	return credential{shared: true}, true
}

func (l *Login) owner(ctx context.Context, token string) (shown credential, ok bool) {
	sum := sha256.Sum256([]byte(token)) // which token it is takes as long for each
	l.mu.Lock()
	if l.files != nil && time.Since(l.read) > tokensFor {
		_ = l.load() // the previous tokens stay valid
		l.read = time.Now()
	}
	shared, ok := l.tokens[sum]
	l.mu.Unlock()
	if ok {
		return credential{"token " + hex.EncodeToString(sum[:8]), shared}, true
	}
	if l.Review == nil {
		return credential{}, false
	}
	name, err := l.Review(ctx, token)
	return credential{name: name}, err == nil
}
