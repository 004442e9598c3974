package exposition

func xidText(code float64) string { return "Unknown Error" }
