package field

// ByID returns the descriptor with that id.
func ByID(id ID) (*Descriptor, bool) { return nil, false }
