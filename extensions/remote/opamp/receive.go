package opamp

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/open-telemetry/opamp-go/protobufs"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"warpgauge/pkg/lists"
)

// Bounds of a server's message, in addition to its length.
const (
	maxFiles = 64  // in a configuration
	maxHash  = 256 // bytes; the agent sends it back
)

// ignored names the fields of ServerToAgent that the agent counts and does not decode.
var ignored = map[protowire.Number]string{
	4:  "connection settings", // including own-telemetry settings
	5:  "packages",
	9:  "restart command",
	11: "custom message",
}

// used lists the decoded fields of ServerToAgent. Field 10 lists the server's custom messages; it is not an offer.
var used = []protowire.Number{1, 2, 3, 6, 7, 8}

// decode decodes the parts of a message that this package uses and returns the names of the others. It skips
// those to save memory: a decoded map of small entries is many times larger than its encoding.
func decode(b []byte) (*protobufs.ServerToAgent, []string, error) {
	var keep []byte
	var others []string
	files := 0
	err := fields(b, func(n protowire.Number, whole, value []byte) error {
		if name, ok := ignored[n]; ok && !slices.Contains(others, name) {
			others = append(others, name)
		}
		if !slices.Contains(used, n) {
			return nil
		}
		keep = append(keep, whole...)
		if n != 3 {
			return nil
		}
		// The config_map in AgentRemoteConfig.config; protobuf merges repeated ones.
		return fields(value, func(n protowire.Number, _, value []byte) error {
			if n != 1 {
				return nil
			}
			return fields(value, func(protowire.Number, []byte, []byte) error {
				if files++; files > maxFiles {
					return fmt.Errorf("the configuration has more than %d files", maxFiles)
				}
				return nil
			})
		})
	})
	if err != nil {
		return nil, nil, err
	}
	m := &protobufs.ServerToAgent{}
	if err := (proto.UnmarshalOptions{DiscardUnknown: true, RecursionLimit: 16}).Unmarshal(keep, m); err != nil {
		return nil, nil, fmt.Errorf("cannot decode the server's OpAMP message: %w", err)
	}
	return m, others, nil
}

// fields calls f for each field of an encoded message. whole is the encoded field; value is its content if it has a length.
func fields(b []byte, f func(n protowire.Number, whole, value []byte) error) error {
	for len(b) > 0 {
		n, kind, size := protowire.ConsumeField(b)
		if size < 0 {
			return fmt.Errorf("cannot decode the server's OpAMP message: %w", protowire.ParseError(size))
		}
		var value []byte
		if kind == protowire.BytesType {
			_, _, tag := protowire.ConsumeTag(b)
			value, _ = protowire.ConsumeBytes(b[tag:])
		}
		if err := f(n, b[:size], value); err != nil {
			return err
		}
		b = b[size:]
	}
	return nil
}

// offer is a server's remote configuration.
type offer struct {
	hash []byte // the server's
	sum  [sha256.Size]byte
	list *lists.Offer // nil: see err
	err  error        // why the configuration has no usable list
}

// newOffer extracts the list from a configuration.
func newOffer(c *protobufs.AgentRemoteConfig, origin string) *offer {
	o := &offer{hash: bytes.Clone(c.GetConfigHash())}
	switch n := len(o.hash); {
	case n == 0:
		o.err = errors.New("the offer has no config_hash, so the agent cannot acknowledge it")
	case n > maxHash:
		o.hash = nil
		o.err = fmt.Errorf("the offer's config_hash has %d bytes, more than %d", n, maxHash)
	default:
		o.list, o.err = list(c.GetConfig().GetConfigMap())
	}
	if o.err != nil {
		o.list, o.sum = nil, sha256.Sum256([]byte(o.err.Error()))
		return o
	}
	o.list.Origin, o.list.Revision = origin, hex.EncodeToString(o.hash)
	o.sum = sha256.Sum256(o.list.Content)
	return o
}

// list returns the field list among the files of a configuration and ignores the others. Without any file it returns an
// offer without content, which withdraws the server's list.
func list(files map[string]*protobufs.AgentConfigFile) (*lists.Offer, error) {
	file := cmp.Or(files[ConfigName], files[""])
	switch {
	case len(files) == 0:
		return &lists.Offer{}, nil
	case file == nil:
		return nil, fmt.Errorf("the offer has only files of other names (%d): name the field list %q, or leave its name empty", len(files), ConfigName)
	case len(file.GetBody()) == 0:
		return nil, errors.New("the offer's list is empty")
	}
	yaml, err := isYAML(file.GetContentType(), file.GetBody())
	return &lists.Offer{Content: file.GetBody(), YAML: yaml}, err
}

// isYAML reports whether a list is YAML. A YAML list has a version.
func isYAML(contentType string, body []byte) (bool, error) {
	kind, _, _ := strings.Cut(contentType, ";")
	switch strings.TrimSpace(kind) {
	case "text/csv":
		return false, nil
	case "application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml":
		return true, nil
	case "", "text/plain":
		return bytes.HasPrefix(body, []byte("version:")) || bytes.Contains(body, []byte("\nversion:")), nil
	}
	return false, errors.New("the list has another content type: send text/csv or application/yaml")
}
