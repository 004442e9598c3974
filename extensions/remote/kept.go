package remote

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"warpgauge/pkg/field"
	"warpgauge/pkg/file"
	"warpgauge/pkg/lists"
)

// List is a server's list that is or was in service.
type List struct {
	lists.Offer
	Hash   string     // SHA-256 of the list's content, hex
	Until  time.Time  // by the node's clock; zero: no end
	Fields field.List `json:"-"`
	Former string     // hash of the server's list before; that one may return whatever it takes away
}

// ended returns an error if the time of the list is over.
func (l *List) ended() error {
	if l.Until.IsZero() || time.Now().Before(l.Until) {
		return nil
	}
	return fmt.Errorf("its time was over at %s: deliver another list, or this one with another comment", l.Until.Format(time.RFC3339))
}

// service converts the list for the Desk. It returns nil, which means the local list, if l is nil.
func (l *List) service() *lists.List {
	if l == nil {
		return nil
	}
	return &lists.List{Origin: l.Origin, Revision: l.Revision, Hash: l.Hash, Until: l.Until, Fields: l.Fields}
}

// kept is the state on disk.
type kept struct {
	Lasting *List // last good list without an end
	Passing *List // in service until its end, or nil
}

// maxKept bounds the file: two lists in base64.
const maxKept = 16 << 20

const keptName = "list"

// hashOf returns the SHA-256 in sha256sum's format.
func hashOf(content []byte) string { return fmt.Sprintf("%x", sha256.Sum256(content)) }

// loadKept reads the saved lists. The file begins with the SHA-256 of the rest. A directory without a path saves nothing.
func loadKept(dir file.Private) (k kept, err error) {
	if dir.Path == "" {
		return k, nil
	}
	text, err := dir.Read(keptName, maxKept)
	if err != nil || text == nil {
		return k, err
	}
	sum, rest, _ := bytes.Cut(text, []byte("\n"))
	if string(sum) != hashOf(rest) {
		return k, errors.New("the kept list is ignored: it is truncated or damaged")
	}
	if err := json.Unmarshal(rest, &k); err != nil {
		return kept{}, fmt.Errorf("the kept list is ignored: %w", err)
	}
	return k, nil
}

// write replaces the saved lists.
func (k *kept) write(dir file.Private) error {
	if dir.Path == "" {
		return nil
	}
	rest, err := json.Marshal(k)
	if err != nil {
		return err
	}
	return dir.Write(keptName, append([]byte(hashOf(rest)+"\n"), rest...))
}
