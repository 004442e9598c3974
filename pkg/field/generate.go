package field

//go:generate go run ./internal/gencatalogue -o zz_generated_catalogue.go
