package remote

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"warpgauge/pkg/field"
	"warpgauge/pkg/file"
	"warpgauge/pkg/lists"
)

// List is a server's list that is or was in service.
type List struct {
	lists.Offer
	span
	Fields field.List `json:"-"`
}

// span is the period in which a list may serve.
type span struct {
	Hash    string    // SHA-256 of the list's content, hex
	Applied time.Time // first time, by the wall clock
	Until   time.Time // zero: no end
	For     bool      // the list gave a duration, so Until is an estimate by the wall clock
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
	Lasting *List  // last good list without an end
	Passing *List  // in service until its end, or nil
	Timed   []span // lists with an end: a second delivery does not prolong one
}

// maxTimed bounds the remembered spans; the oldest are forgotten.
const maxTimed = 64

// maxKept bounds the file: two lists in base64 and the spans.
const maxKept = 16 << 20

const (
	keptName = "list"
	idName   = "instance-id"
)

// hashOf returns the SHA-256 in sha256sum's format.
func hashOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// directory is the path for saved lists; "" disables saving.
type directory string

func (d directory) private() file.Private {
	return file.Private{Path: string(d), Of: "lists", Flag: "remote-directory"}
}

// errSum reports that the saved list does not match its checksum.
var errSum = errors.New("it is truncated or damaged")

// load reads the saved lists. The file begins with the SHA-256 of the rest.
func (d directory) load() (k kept, err error) {
	if d == "" {
		return k, nil
	}
	text, err := d.private().Read(keptName, maxKept)
	if err != nil {
		return k, fmt.Errorf("read the kept list: %w", err)
	} else if text == nil {
		return k, nil
	}
	sum, rest, _ := bytes.Cut(text, []byte("\n"))
	if string(sum) != hashOf(rest) {
		return k, fmt.Errorf("the kept list is ignored: %w", errSum)
	}
	if err := json.Unmarshal(rest, &k); err != nil {
		return kept{}, fmt.Errorf("the kept list is ignored: %w", err)
	}
	return k, nil
}

// write replaces the saved lists.
func (d directory) write(k *kept) error {
	if d == "" {
		return nil
	}
	rest, err := json.Marshal(k)
	if err != nil {
		return err
	}
	return d.private().Write(keptName, append([]byte(hashOf(rest)+"\n"), rest...))
}

// maxID is the length of an identifier in text form.
const maxID = 64

// InstanceID returns the identifier of this node's exporter. It reads it from the directory. Without one it derives
// it from the machine id and from names that distinguish exporters on one machine.
func InstanceID(ctx context.Context, path string, names ...string) uuid.UUID {
	d := directory(path)
	machine, _ := file.NewReader(maxID).Read(ctx, "/etc/machine-id") // the file is optional
	sum := sha256.Sum256([]byte("warpgauge\n" + strings.Join(names, "\n") + "\n" + strings.TrimSpace(string(machine))))
	sum[6], sum[8] = sum[6]&0x0f|0x80, sum[8]&0x3f|0x80 // RFC 9562: version 8, custom
	made := uuid.UUID(sum[:16])
	if d == "" {
		return made
	}
	text, _ := d.private().Read(idName, maxID) // load reports a bad directory later
	if id, err := uuid.Parse(strings.TrimSpace(string(text))); err == nil {
		return id
	}
	_ = d.private().Write(idName, []byte(made.String()+"\n")) // the next start derives the same id; the manager reports the error
	return made
}

// span returns the span of a timed list that the server delivered before.
func (k *kept) span(hash string) (span, bool) {
	if i := slices.IndexFunc(k.Timed, func(s span) bool { return s.Hash == hash }); i >= 0 {
		return k.Timed[i], true
	}
	return span{}, false
}

// remember records the span of a list.
func (k *kept) remember(l *List) {
	if _, known := k.span(l.Hash); known {
		return
	}
	k.Timed = slices.Concat(k.Timed[max(0, len(k.Timed)-maxTimed+1):], []span{l.span}) // a copy, because another goroutine may be writing the old slice
}
