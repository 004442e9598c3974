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

// span is the time in which a list may serve.
type span struct {
	Hash    string    // SHA-256 of the list's content, hex
	Applied time.Time // first, by the wall clock
	Until   time.Time // zero: it stays
	For     bool      // Until is only what the wall clock said at the beginning
}

// service returns the list as the Desk serves it; nil, the local list, if l is nil.
func (l *List) service() *lists.List {
	if l == nil {
		return nil
	}
	return &lists.List{Origin: l.Origin, Revision: l.Revision, Hash: l.Hash, Until: l.Until, Fields: l.Fields}
}

// kept holds the lists that outlive the process.
type kept struct {
	Lasting *List  // the last good one without an end
	Passing *List  // in service until its end; nil: none
	Timed   []span // of lists with an end: delivering one again does not prolong it
}

// maxTimed bounds how many are remembered; the oldest are forgotten.
const maxTimed = 64

// maxKept bounds the file: two lists in base64, and the spans.
const maxKept = 16 << 20

const (
	keptName = "list"
	idName   = "instance-id"
)

// hashOf is the SHA-256 as sha256sum prints it.
func hashOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// directory is where lists are kept; "": they are not.
type directory string

func (d directory) private() file.Private {
	return file.Private{Path: string(d), Of: "lists", Flag: "remote-directory"}
}

// errSum means that a file has changed since it was written.
var errSum = errors.New("it is truncated or damaged")

// load returns the kept lists. A file begins with the SHA-256 of the rest.
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

// write replaces the kept lists.
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

// maxID is the length of an identifier as text.
const maxID = 64

// InstanceID returns the identifier of this node's exporter. It is the one in the directory; without one it is made
// of the machine's id and of names that tell this exporter from others.
func InstanceID(ctx context.Context, path string, names ...string) uuid.UUID {
	d := directory(path)
	machine, _ := file.NewReader(maxID).Read(ctx, "/etc/machine-id") // there may be none
	sum := sha256.Sum256([]byte("warpgauge\n" + strings.Join(names, "\n") + "\n" + strings.TrimSpace(string(machine))))
	sum[6], sum[8] = sum[6]&0x0f|0x80, sum[8]&0x3f|0x80 // RFC 9562: version 8, made by us
	made := uuid.UUID(sum[:16])
	if d == "" {
		return made
	}
	text, _ := d.private().Read(idName, maxID) // an error is reported when the lists are read
	if id, err := uuid.Parse(strings.TrimSpace(string(text))); err == nil {
		return id
	}
	_ = d.private().Write(idName, []byte(made.String()+"\n")) // the same is made again; the manager reports it
	return made
}

// span returns the time of a list with an end that the server has delivered before.
func (k *kept) span(hash string) (span, bool) {
	if i := slices.IndexFunc(k.Timed, func(s span) bool { return s.Hash == hash }); i >= 0 {
		return k.Timed[i], true
	}
	return span{}, false
}

// remember records the time of a list.
func (k *kept) remember(l *List) {
	if _, known := k.span(l.Hash); known {
		return
	}
	k.Timed = slices.Concat(k.Timed[max(0, len(k.Timed)-maxTimed+1):], []span{l.span}) // a copy: the former one may be on its way to the disk
}
