package remote

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
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
	Hash   string     // SHA-256 of the list's content, hex
	Until  time.Time  // by the node's clock; zero: no end
	Fields field.List `json:"-"`
}

// ended returns an error if the time of the list is over.
func (l *List) ended() error {
	if l.Until.IsZero() || time.Now().Before(l.Until) {
		return nil
	}
	return fmt.Errorf("its time was over at %s: %w", l.Until.Format(time.RFC3339), errEnded)
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

// InstanceID derives the identifier of this node's exporter from the machine id and from names that distinguish
// exporters on one machine.
func InstanceID(ctx context.Context, names ...string) uuid.UUID {
	machine, _ := file.NewReader(maxID).Read(ctx, "/etc/machine-id") // the file is optional
	sum := sha256.Sum256([]byte("warpgauge\n" + strings.Join(names, "\n") + "\n" + strings.TrimSpace(string(machine))))
	sum[6], sum[8] = sum[6]&0x0f|0x80, sum[8]&0x3f|0x80 // RFC 9562: version 8, custom
	return uuid.UUID(sum[:16])
}
