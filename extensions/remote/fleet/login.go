package fleet

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"log" //nolint:depguard // http.Server needs this type
	"net/http"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"warpgauge/pkg/file"
)

// Login checks bearer tokens against a file with one token per line. It reads the file again after
// some seconds, so tokens rotate without a restart. A nil Login allows every request.
type Login struct {
	path  string
	files *file.Reader

	mu     sync.Mutex
	read   time.Time
	tokens [][sha256.Size]byte
}

const (
	tokensFor     = 5 * time.Second
	maxTokenBytes = 64 << 10
)

// NewLogin returns a Login for a readable file with at least one token.
func NewLogin(path string) (*Login, error) {
	if path == "" {
		return nil, nil //nolint:nilnil // a nil Login allows every request
	}
	l := &Login{path: path, files: file.NewReader(maxTokenBytes)}
	return l, l.load()
}

func (l *Login) load() error {
	content, err := l.files.Read(context.Background(), l.path)
	if err != nil {
		return err
	}
	var tokens [][sha256.Size]byte
	for text := range bytes.Lines(content) {
		if text = bytes.TrimSpace(text); len(text) > 0 {
			tokens = append(tokens, sha256.Sum256(text))
		}
	}
	if len(tokens) == 0 {
		return errors.New("token file: it has no token")
	}
	l.tokens = tokens
	return nil
}

// Allows reports whether the request has one of the tokens. If the file is unreadable, the previous tokens stay valid.
func (l *Login) Allows(r *http.Request) bool {
	if l == nil {
		return true
	}
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.read) > tokensFor {
		_ = l.load() // the previous tokens stay valid
		l.read = time.Now()
	}
	sum, allowed := sha256.Sum256([]byte(token)), 0
	for i := range l.tokens {
		allowed |= subtle.ConstantTimeCompare(sum[:], l.tokens[i][:])
	}
	return ok && allowed == 1
}

// httpErrors returns a logger for http.Server's messages.
func httpErrors(l *zap.Logger) *log.Logger {
	errors, _ := zap.NewStdLogAt(l, zap.DebugLevel) // only unknown levels fail
	return errors
}
