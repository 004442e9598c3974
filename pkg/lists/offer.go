package lists

import (
	"fmt"
	"time"
)

// Offer is a field list that a server delivers. It must not be changed.
type Offer struct {
	Origin   string // source without secrets: a URL
	Revision string // the server's name for it: an ETag, the hex of OpAMP's config hash; can be empty
	Content  []byte // a counters CSV, or a YAML configuration file that contains only a list
	YAML     bool
}

// Outcome is the answer to an Offer.
type Outcome struct {
	Answer  Answer
	Tried   string    // SHA-256 of the Offer's content, hex
	Running string    // hash of the list in service
	Refused []Refusal // faults found by the guard or the parser
	Err     error     // why the current list stays, for the server's operator; nil: the offer serves, or was compared
	Until   time.Time // when the previous list returns by itself; zero: never
}

// String returns the refusal for messages.
func (r Refusal) String() string {
	if r.Line > 0 {
		return fmt.Sprintf("line %d: %s", r.Line, r.Text)
	}
	return r.Text
}
