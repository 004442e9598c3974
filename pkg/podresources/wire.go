package podresources

import (
	"errors"

	"google.golang.org/protobuf/encoding/protowire"
)

// errWire says that bytes are not a protobuf message.
var errWire = errors.New("not a protobuf message")

// walk visits the length-delimited fields of a message, which are all that this
// package reads: strings and messages. It stops at the first error.
func walk(message []byte, visit func(field protowire.Number, value []byte) error) error {
	for b := message; len(b) > 0; {
		field, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return errWire
		}
		b = b[n:]
		if kind != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(field, kind, b); n < 0 {
				return errWire
			}
			b = b[n:]
			continue
		}
		value, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return errWire
		}
		b = b[n:]
		if err := visit(field, value); err != nil {
			return err
		}
	}
	return nil
}

// fields are the values of the first few string fields of a message, by number;
// the last of a field counts, as protobuf wants it.
type fields [8][]byte

func read(message []byte) (f fields, err error) {
	err = walk(message, func(field protowire.Number, value []byte) error {
		if int(field) < len(f) {
			f[field] = value
		}
		return nil
	})
	return f, err
}
