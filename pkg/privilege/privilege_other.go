//go:build !linux

package privilege

type capabilities struct{ effective, permitted, inheritable Set }

func get() (capabilities, error) { return capabilities{}, ErrNotSupported }
func (capabilities) set() error  { return ErrNotSupported }
func verify() error              { return ErrNotSupported }
